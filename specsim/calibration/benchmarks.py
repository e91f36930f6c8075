"""Results of benchmarks under the names of `vllm bench serve`, whichever tool wrote them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from specsim.workload.columns import number
from specsim.workload.readers import lines, utf8

Result = Mapping[str, Any]
BENCH, RATE = "max_concurrency", "request_rate"
TOTALS = {"isl": "total_input_tokens", "osl": "total_output_tokens"}
LENGTHS = ("input_lens", "output_lens")
STARTS = "start_times"
REQUESTS = "requests"
"""The key of the rows of a GuideLLM benchmark's requests."""
SPECULATED = ("spec_decode_acceptance_rate", "accept_length")
"""Keys of a server that speculates, of vLLM's and SGLang's results."""
OF_VLLM = ("spec_decode_per_position_acceptance_rates", "spec_decode_acceptance_length")
"""Keys by which vLLM's client tells the draft tokens of a step, by how many rates it lists, and what a step brings."""
ALIKE = 0.95
"""Of the tokens of full drafts, the share below which drafts differ in length: a table by batch size, an n-gram."""
PATTERNS = ("arrival_pattern", "request_rate_mode")
"""Of aiperf's arrivals, a Poisson process where it does not say; `arrival_smoothness` is vLLM's burstiness."""
NAMES = frozenset({"completed", *TOTALS.values()})


def results(raw: bytes) -> list[Result]:
    """Return the results in a file, none where it holds something else.

    They are those of `vllm bench serve` and sglang.bench_serving, one, a list or one a line, GuideLLM's benchmarks, or
    the summary of aiperf or genai-perf.
    """
    found = [each for value in _objects(lines(utf8(raw)[0]).read()) for each in _translated(value)]
    return found if all(NAMES & each.keys() for each in found) else []


def speculation_of(result: Result) -> str | None:
    """Return the key by which a result is of a server that speculates; None: of one that does not."""
    return next((key for key in SPECULATED if result.get(key) is not None), None)


def drafted(result: Result) -> tuple[int | None, Any, str | None]:
    """Return the draft tokens of a step, the tokens that a step brings, and what does not tell them.

    SGLang counts the root of a draft among its draft tokens.
    """
    key = speculation_of(result)
    if key == SPECULATED[1]:
        names = ("num_draft_tokens", "num_steps", "eagle_topk")
        tokens, steps, width = (_at(result, "server_info", f"speculative_{name}") for name in names)
        k = tokens - 1 if isinstance(tokens, int) else steps
        if _at(result, "server_info", "speculative_adaptive"):
            return None, None, f"{key} of steps that adapt (speculative_adaptive); expected that of a fixed number"
        if width not in (None, 1):
            return None, None, f"{key} of trees (speculative_eagle_topk {width}); expected that of chains"
        if not isinstance(k, int) or k < 1:
            told = f"{key} {number(result[key]) or 0.0:.4g}"
            return None, None, f"{told}, but no server_info.speculative_num_steps: what a step drafts is not known"
        return k, number(result[key]) or 0.0, None
    lacking = [each for each in OF_VLLM if key and each not in result]
    said = f"{key}, but no {lacking[0]}: what a step drafts and brings is not known" if lacking else None
    positions, length = (result.get(each) for each in OF_VLLM)
    k = len(positions) if isinstance(positions, list) else None
    tokens, drafts = (number(result.get(f"spec_decode_{each}")) for each in ("draft_tokens", "num_drafts"))
    if k and tokens and drafts and tokens < ALIKE * k * drafts:
        said = f"drafts of {tokens / drafts:.3g} tokens on average and up to {k}; expected those of one length"
    return k, length, said


def _objects(text: str) -> list[Any]:
    """Return the JSON values of a text: one, those of a list, or one a line."""
    if text.lstrip()[:1] not in ("{", "["):
        return []
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        try:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            return []
    return value if isinstance(value, list) else [value]


def _translated(value: Any) -> Iterator[Result]:
    if not isinstance(value, Mapping):
        yield {}
    elif isinstance(value.get("benchmarks"), list):
        yield from map(_of_guidellm, value["benchmarks"])
    elif "input_config" in value:
        yield _of_aiperf(value)
    else:
        yield value


def _of_guidellm(benchmark: Any) -> Result:
    """Return a benchmark of GuideLLM, whose inter-token latency is (last - first token) / (tokens - 1)."""
    strategy = _at(benchmark, "config", "strategy") or _at(benchmark, "args", "strategy") or {}
    kind = _at(strategy, "type_")
    names = {"isl": "prompt_token_count", "osl": "output_token_count"}
    names |= {"ttft": "time_to_first_token_ms", "tpot": "inter_token_latency_ms"}
    means = {key: _at(benchmark, "metrics", name, "successful", "mean") for key, name in names.items()}
    return {
        **_result(_at(benchmark, "metrics", "request_totals", "successful"), means),
        BENCH: 1 if kind == "synchronous" else _at(strategy, "streams"),
        RATE: _at(strategy, "rate") if kind in ("poisson", "constant") else inf,
        "burstiness": inf if kind == "constant" else 1.0,
        REQUESTS: _at(benchmark, "requests", "successful"),
    }


def _of_aiperf(summary: Result) -> Result:
    """Return a summary of aiperf or genai-perf, whose inter-token latency is (latency - TTFT) / (tokens - 1).

    The latter sends requests of a rate at even gaps, the former by its arrival pattern.
    """
    names = {"isl": "input_sequence_length", "osl": "output_sequence_length"}
    names |= {"ttft": "time_to_first_token", "tpot": "inter_token_latency"}
    means = {key: _at(summary, name, "avg") for key, name in names.items()}
    given = summary["input_config"]
    load = _at(given, "loadgen")
    genai = _at(given, "perf_analyzer", "stimulus") or given
    clients, rate = (_at(genai if load is None else load, key) for key in ("concurrency", "request_rate"))
    sent = {BENCH: clients, RATE: inf if rate is None and clients is not None else rate}
    pattern = "constant" if load is None else next((each for name in PATTERNS if (each := _at(load, name))), None)
    sent |= {"burstiness": _at(load, "arrival_smoothness") or 1.0 if pattern == "gamma" else 1.0}
    sent |= {"burstiness": inf} if pattern == "constant" and rate is not None else {}
    return {**_result(_at(summary, "request_count", "avg"), means), **sent}


def _result(completed: Any, means: Mapping[str, Any]) -> dict[str, Any]:
    done = number(completed)
    totals = {
        name: None if done is None or (mean := number(means[key])) is None else mean * done
        for key, name in TOTALS.items()
    }
    completed = int(done) if done is not None and done.is_integer() else completed
    return {"completed": completed, **totals, "mean_ttft_ms": means["ttft"], "mean_tpot_ms": means["tpot"]}


def _at(value: Any, *keys: str) -> Any:
    """Return what stands below keys; None: nothing."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
