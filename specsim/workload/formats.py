"""Known formats of traces, and files that hold none: one table of names of columns, one of what else people have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sized
from difflib import get_close_matches
from typing import NamedTuple

from specsim.errors import SpecsimError, nearest
from specsim.files.checked_mapping import shown
from specsim.workload.columns import CHAT, COLLECTED, PARENT, UNITS, Unit, number
from specsim.workload.readers import FileTable

MOST_COLUMNS = 1000
ARRIVAL, PROMPT, OUTPUT = ROLES = ("arrival_s", "prompt_tokens", "output_tokens")
"""The columns that make a trace, by specsim's own names."""
OBJECTIVES = ("tpot_slo_s", "tpot_slo_ratio", "ttft_slo_s")
SPAN_SESSIONS = ("gen_ai.conversation.id", "attributes.gen_ai.conversation.id")
AIPERF_SESSIONS = ("metadata.x_correlation_id", "metadata.conversation_id")
SESSIONS = ("session_id", "Session ID", *SPAN_SESSIONS, *AIPERF_SESSIONS)
"""Columns that name the session of a request: specsim's, BurstGPT's, OpenTelemetry's and aiperf's."""
HASHES = "hash_ids"
DELAYS = {"delay_s": 1.0, "delay": 1e-3, "delay_ms": 1e-3}
"""Columns of the time from an answer to the next turn, in seconds: specsim's own, then those of aiperf and Dynamo."""
OPTIONAL = ("slo_class", *OBJECTIVES, "cached_tokens", SESSIONS[0], "delay_s", "delay_ms")
Names = tuple[str, ...]
STARTS = ("startTimeUnixNano", "start_time_unix_nano")
INPUT_TOKENS = tuple(
    f"{above}gen_ai.usage.{name}_tokens" for above in ("", "attributes.") for name in ("input", "prompt")
)
OUTPUT_TOKENS = tuple(
    f"{above}gen_ai.usage.{name}_tokens" for above in ("", "attributes.") for name in ("output", "completion")
)
PROMPTS = (
    *("prompt_tokens", "input_tokens", "tokens_prompt", "usage.prompt_tokens", "usage.input_tokens"),
    *("isl", "input_len", "num_input_tokens", "number_input_tokens"),
)
COMPLETIONS = (
    *("completion_tokens", "output_tokens", "tokens_completion"),
    *("usage.completion_tokens", "usage.output_tokens", "osl", "output_len"),
    *("num_output_tokens", "number_output_tokens"),
)
TIMES = (
    *("startTime", "start_time", "request_start_time", "started_at", "created_at", "created", "timestamp", "start"),
    *("arrival", "arrival_time", "time", "request_time"),
)
"""Names of arrivals in logs, beside lengths of any names; the unit of numbers in them is not known."""
ENDS: Mapping[str, Unit] = {
    **{f"_{unit}": unit for unit in UNITS},
    **{"nano": "ns", "nanos": "ns", "_millis": "ms", "_sec": "s", "_seconds": "s"},
}
"""Units at the end of a name."""


class Format(NamedTuple):
    """A format by the three columns that make a trace, each under one of several names.

    Attributes
    ----------
    name : for the user. arrival, prompt, output : names of columns, the first that a file has is read
    unit : of numbers in `arrival`; None if it has none of its own
    failures : whether a request of 0 tokens is a failed one, which is left out; otherwise it is a mistake
    also : further required columns. optional : columns read if present
    logged : whether a request without an output length is a failed one, too
    """

    name: str
    arrival: Names
    prompt: Names
    output: Names
    unit: Unit | None
    failures: bool = True
    also: Names = ()
    optional: Names = OPTIONAL
    logged: bool = False

    @property
    def roles(self) -> Mapping[str, Names]:
        """The names of each column, by specsim's own."""
        return dict(zip(ROLES, (self.arrival, self.prompt, self.output), strict=True))


ADASERVE = "AdaServe"
FORMATS = (
    Format("specsim", (ARRIVAL,), (PROMPT,), (OUTPUT,), "s", failures=False, optional=(*OPTIONAL, HASHES)),
    # AzurePublicDataset, AzureLLMInferenceDataset2023.md and 2024.md; the multimodal one of 2025 adds NumImages.
    Format("Azure", ("TIMESTAMP",), ("ContextTokens",), ("GeneratedTokens",), None),
    # HPMLL/BurstGPT, README: releases 1 and 2 have six columns, release 3 adds Session ID and Elapsed time.
    Format(
        "BurstGPT", ("Timestamp",), ("Request tokens",), ("Response tokens",), "s", optional=(*OPTIONAL, SESSIONS[1])
    ),
    # Mooncake's FAST25 release (milliseconds), Alibaba's Bailian traces (seconds), and vLLM's dataset timed_trace,
    # which reads both with --timed-trace-sec-multiplier, 1 by default.
    Format(
        *("Mooncake / vLLM timed trace", ("timestamp",), ("input_length",), ("output_length",), None),
        optional=(*OPTIONAL, HASHES, CHAT, PARENT, "delay"),
    ),
    # The artifact of AdaServe (EuroSys '26), exps/fig*/emission_*.json.
    Format(
        *(ADASERVE, ("emission_time_ms",), ("input_length",), ("output_length",), "ms"),
        failures=False,
        also=("slo_ratio",),
        optional=("prompt", *COLLECTED),
    ),
    # vllm bench serve --save-result --save-detailed: start_times, in seconds of the client's clock, since its pull
    # request 32667 (January 2026). sglang.bench_serving --output-details writes the lengths alone.
    Format("benchmark result", ("start_times",), ("input_lens",), ("output_lens",), "s"),
    # microsoft/vidur's replay traces, and its request_metrics.csv, which has lengths alone, as project-etalon's traces.
    Format(
        *("vidur", ("arrived_at",), ("num_prefill_tokens", "request_num_prefill_tokens")),
        *(("num_decode_tokens", "request_num_decode_tokens"), "s"),
    ),
    # Mutinifni/splitwise-sim, generate_trace.py.
    Format("splitwise-sim", ("arrival_timestamp",), ("prompt_size",), ("token_size",), "s"),
    # casys-kaist/LLMServingSim, a flat JSON line a request.
    Format("LLMServingSim", ("arrival_time_ns",), ("input_toks",), ("output_toks",), "ns"),
    # ai-dynamo/aiperf, profile_export.jsonl: docs/tutorials/working-with-profile-exports.md.
    Format(
        *("aiperf records", ("metadata.request_start_ns",), ("metrics.input_sequence_length.value",)),
        *(("metrics.output_sequence_length.value",), "ns"),
        optional=(*OPTIONAL, *AIPERF_SESSIONS),
        logged=True,
    ),
    # NVIDIA/TensorRT-LLM, trtllm-bench --request_json: its start times are of clients that wait, or all alike.
    Format("trtllm-bench requests", (), ("num_input_tokens",), ("num_total_output_tokens", "output_tokens"), None),
    # Spans of OpenTelemetry's GenAI conventions, as collectors and trace stores export them; vLLM's own spans have the
    # names before 1.27.
    Format(
        *("OpenTelemetry spans", STARTS, INPUT_TOKENS, OUTPUT_TOKENS, "ns"),
        optional=(*OPTIONAL, *SPAN_SESSIONS),
        logged=True,
    ),
    # LiteLLM's spend logs (startTime), OpenRouter's (created_at, tokens_prompt), answers of the OpenAI API (created,
    # usage), llmperf's records, and what else logs call a request's start, prompt and completion.
    Format(
        *("gateway log", TIMES, (*PROMPTS, *INPUT_TOKENS), (*COMPLETIONS, *OUTPUT_TOKENS), None),
        optional=(*OPTIONAL, *SPAN_SESSIONS),
        logged=True,
    ),
    # kubernetes-sigs/inference-perf, per_request_lifecycle_metrics.json.
    Format(
        *("inference-perf records", ("start_time",), ("info.input_tokens",), ("info.output_tokens",), "s"), logged=True
    ),
    # inference-sim/inference-sim (BLIS), sim/workload/tracev2.go: the CSV beside the header of a trace.
    Format("BLIS", ("arrival_time_us",), ("input_tokens",), ("output_tokens",), "us"),
)
WORDS = re.compile("[^ _.]+")
NOT_MEANT = {PROMPT: ("output", "completion", "response", "decode"), OUTPUT: ("input", "prompt", "context", "prefill")}
"""Words in a name by which a column is not the one of the role."""
TEXTS = ("prompt", "messages", "input_ids", "prompt_token_ids", "text", "question", "turns")
"""Columns in which datasets hold what is sent, rather than how long it is."""
REQUIRED = frozenset(name for each in FORMATS for names in each.roles.values() for name in names)
"""Columns in which no cell may be empty."""
KNOWN = REQUIRED.union(OPTIONAL, *(each.also for each in FORMATS))


class Other(NamedTuple):
    """A file of another kind: its outermost `keys` tell it, `unless` one of these names is there."""

    name: str
    keys: frozenset[str]
    instead: str
    unless: str | None = None


POINTS = "`specsim calibrate` reads such summaries as points of a server"
OTHERS = (
    *(
        Other(
            "a summary of sglang.bench_serving without its requests",
            frozenset(keys),
            "--output-details adds their lengths, which run with concurrency= or rps=",
            unless="input_lens",
        )
        for keys in ({"total_output_tokens_retokenized"}, {"backend=sglang", "request_throughput"})
    ),
    Other(
        "a summary of `vllm bench serve` without its requests",
        frozenset({"request_throughput", "total_input_tokens"}),
        f"expected one that --save-detailed wrote; {POINTS}",
        unless="input_lens",
    ),
    Other(
        "a summary of aiperf or genai-perf without its requests",
        frozenset({"input_config"}),
        f"aiperf's profile_export.jsonl of the same folder has a line a request; {POINTS}",
    ),
    Other(
        "genai-perf's texts and times, without counts of tokens",
        frozenset({"service_kind", "experiments"}),
        f"expected profile_export_genai_perf.json of the same folder; {POINTS}",
    ),
    Other(
        "a report of trtllm-bench, which does not say how many clients sent",
        frozenset({"world_info", "request_info"}),
        "expected its --request_json for a trace; for a point of `specsim calibrate` a CSV's row of isl, osl, "
        "concurrency (its --concurrency), ttft_ms and tpot_ms",
    ),
    Other(
        "a summary of aiperf without its requests",
        frozenset({"Metric", "avg", "p99"}),
        "expected profile_export.jsonl of the same folder, which has a line a request",
    ),
    Other(
        "a summary of inference-perf without its requests",
        frozenset({"load_summary", "successes"}),
        "expected per_request_lifecycle_metrics.json of the same folder (report.request_lifecycle.per_request: true)",
    ),
    Other(
        "a report of GuideLLM",
        frozenset({"benchmarks"}),
        "`specsim import` makes a trace of each benchmark's requests; "
        "it must hold them, in benchmarks[].requests.successful",
    ),
    *(
        Other("a report of GuideLLM in CSV or YAML", frozenset(keys), "expected its benchmarks.json, with the requests")
        for keys in ({"Run Info", "Benchmark"}, {"Type", "Run Id", "Id", "Name"}, {"args:"}, {"benchmarks:"})
    ),
    Other(
        "points of a server, for `specsim calibrate`",
        frozenset({"isl", "osl", "concurrency", "tpot_ms"}),
        "expected a trace, with a row a request",
    ),
    Other(
        "conversations without counts of tokens, as ShareGPT's",
        frozenset({"conversations"}),
        "expected prompt_tokens and output_tokens of each, counted by the target's tokenizer",
    ),
    Other(
        "sessions of LLMServingSim, whose requests follow one another",
        frozenset({"sub_requests"}),
        "expected a row a turn: session_id, and delay_s where it waits for the answer before (docs/closed-loops.md)",
    ),
)


class Columns(NamedTuple):
    """The columns of a table that are read, and their meaning.

    Attributes
    ----------
    form : whose names they are. called : the table's name of each column that is read, by role or by its own name.
    unit : of numbers in the arrivals; None: not known.
    """

    form: Format
    called: dict[str, str]
    unit: Unit | None


def choose(table: FileTable, given: Mapping[str, str] | None = None) -> Columns:
    """Return which columns of a table make a trace; arrivals may be missing, where all else is known.

    Parameters
    ----------
    given : by specsim's own name of a column, what this file calls it.

    Raises
    ------
    SpecsimError
        When columns are missing, a column is there twice, or a column that is not read has almost the name of one that
        could be; for a file of another kind, with what to do.
    """
    where, names = f"{table.file}: {table.where}", table.names
    refuse_others(str(table.file), table.keys)
    if table.kind == "JSON lines" and "input_lens" in table.keys:
        raise SpecsimError(
            f"{table.file}: results of several benchmarks, a line each: `specsim import` makes a trace of each"
        )
    if len(names) > MOST_COLUMNS:
        raise SpecsimError(f"{where}{len(names):,} columns; expected at most {MOST_COLUMNS:,}")
    mine = dict(given or {})
    for role, name in mine.items():
        if name not in names:
            raise SpecsimError(f"{table.file}: trace.columns: {role}: no column {shown(name)}{nearest(name, names)}")
    called = {form: _called(form, names) | mine for form in FORMATS}
    form = max(FORMATS, key=lambda each: _fit(each, called[each]))
    time = _there((ARRIVAL, *TIMES, *STARTS), names)
    found = called[form] if time is None else {ARRIVAL: time} | called[form]
    missing = [name for name in (*ROLES, *form.also) if name not in found]
    _refuse_near_names(table, form, missing, found)
    _refuse_texts(table, missing)
    if [name for name in missing if name != ARRIVAL]:
        raise SpecsimError(f"{where}{_lacking(table, form, missing)}")
    for name in found.values():
        if names.count(name) > 1:
            raise SpecsimError(f"{where}column {name!r} is there twice")
    own = _called(form, names)
    if own.get(ARRIVAL) == found.get(ARRIVAL) and ARRIVAL not in mine and own.keys() & {PROMPT, OUTPUT}:
        return Columns(form, found, form.unit)
    # Beside lengths of other names the end of a name of arrivals tells their unit.
    return Columns(form, found, _stem_and_unit(found.get(ARRIVAL, ""))[1])


def _stem_and_unit(name: str) -> tuple[str, Unit | None]:
    """Return a name with underscores between its words and without the unit at its end, and that unit."""
    low = re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()
    end = next((end for end in ENDS if low.endswith(end)), "")
    return low.removesuffix(end).rstrip("_"), ENDS.get(end)


def _called(form: Format, names: Names) -> dict[str, str]:
    """Return the columns of a format that a table has."""
    known = {**form.roles, **{name: (name,) for name in (*form.also, *form.optional)}}
    found = {own: _there(each, names) for own, each in known.items()}
    return {own: name for own, name in found.items() if name is not None}


def _there(known: Names, names: Names) -> str | None:
    """Return the first of the `known` names that a table has, or its only one that differs from them in case alone."""
    low = {name.lower() for name in known}
    alike = [name for name in names if name.lower() in low]
    return next((name for name in known if name in alike), alike[0] if len(alike) == 1 else None)


def _fit(form: Format, called: Mapping[str, str]) -> tuple[int, int]:
    """Return how many of a format's columns a table has, and how many of arrivals and lengths in the same case."""
    same = [role for role, names in form.roles.items() if called.get(role) in names]
    return len(called.keys() & {*ROLES, *form.also}), len(same)


def refuse_others(source: str, keys: Names) -> None:
    """Refuse a file of another kind by its outermost keys."""
    for other in OTHERS:
        if other.keys <= set(keys) and other.unless not in keys:
            raise SpecsimError(f"{source}: {other.name}: {other.instead}")


def _refuse_texts(table: FileTable, missing: list[str]) -> None:
    """Refuse a table whose prompts are texts or lists of tokens, where no column has their lengths."""
    for name in TEXTS if PROMPT in missing else ():
        cells = table.read([name])[name] if table.names.count(name) == 1 else ()
        if any(isinstance(cell, Sized) and len(cell) and number(cell) is None for cell in cells):
            raise SpecsimError(
                f"{table.file}: a dataset of texts, not of lengths ({name}): expected prompt_tokens and "
                "output_tokens of each, counted by the target's tokenizer"
            )


def _refuse_near_names(table: FileTable, form: Format, missing: list[str], found: Mapping[str, str]) -> None:
    """Refuse a column that is not read and has almost the name of one that could be, or that of arrivals in a unit."""
    alone = {names[0]: role for role, names in form.roles.items() if role in missing and len(names) == 1}
    optional = {name: name for name in (*form.also, *form.optional) if name not in found}
    for name in [each for each in table.names if each not in found.values()]:
        where, low = f"{table.file}: {table.where}unknown column {shown(name)}", name.lower()
        stem, unit = _stem_and_unit(name)
        if ARRIVAL in missing and unit and (stem.startswith("arriv") or stem in TIMES):
            told = f'time_unit="{unit}"' if table.in_memory else f"in {unit}"
            raise SpecsimError(f"{where}; if it holds arrivals: {_naming(table, ARRIVAL, name)}, {told}")
        # A prompt is not meant where an output is named, nor the other way round.
        other = {role for role, words in NOT_MEANT.items() if any(word in low for word in words)}
        able = [each for each, role in (alone | optional).items() if role not in other]
        # Another word makes it another count, such as a limit or a total.
        able = [each for each in able if len(WORDS.findall(name)) <= len(WORDS.findall(each))]
        close = get_close_matches(name, able, n=1, cutoff=0.8)
        close = close or get_close_matches(name, [each for each in able if alone.get(each) == ARRIVAL], n=1)
        for each in close:
            said = _naming(table, (alone | optional)[each], name)
            said = ", in seconds" if each.endswith("_s") and unit not in (None, "s") else said and f" ({said})"
            raise SpecsimError(f"{where}; did you mean {each!r}{said}?")


def _naming(table: FileTable, role: str, name: str) -> str:
    """Return how a column of a file or of a frame is named as one of specsim's own; nothing, if it is none of them."""
    if table.in_memory:
        return f"df.rename(columns={{{shown(name)}: {role!r}}})"
    mine = name if re.fullmatch(r"[\w.-]+", name) else "YOURS"
    return f"'trace.columns={{{role}: {mine}}}'" if role in (*ROLES, *OPTIONAL) else ""


def _lacking(table: FileTable, form: Format, missing: list[str]) -> str:
    """Return the line about columns that no name tells."""
    lacks = ", ".join((form.roles.get(name) or (name,))[0] for name in missing)
    roles = ", ".join(f"{name}: YOURS" for name in missing if name in ROLES)
    classes = "" if "slo_class" in table.names else "; slo_class, too, if a column has classes or endpoints"
    if not roles:
        return f"no column {lacks}"
    if table.in_memory:
        renamed = ", ".join(f"'YOURS': {name!r}" for name in missing if name in ROLES)
        return f"no column {lacks}; if yours has another name: df.rename(columns={{{renamed}}}){classes}"
    return f"no column {lacks}; if yours has another name: 'trace.columns={{{roles}}}'{classes} (docs/trace-formats.md)"
