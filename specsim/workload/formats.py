"""Known formats of traces: the names of their columns, and the unit of their arrivals."""

from __future__ import annotations

from difflib import get_close_matches
from typing import NamedTuple

from specsim.errors import SpecsimError
from specsim.workload import vllm_result
from specsim.workload.arrivals import CHAT, Unit
from specsim.workload.damage import shown
from specsim.workload.table import Table

MOST_COLUMNS = 1000
OBJECTIVES = ("tpot_slo_s", "tpot_slo_ratio", "ttft_slo_s")
SESSIONS = ("session_id", "Session ID")
"""Columns that name the session of a request: specsim's, and BurstGPT's."""
PARENT = "parent_chat_id"
"""A column of Bailian's traces, which tells with `CHAT` whose answer a request replies to."""
OPTIONAL = ("slo_class", *OBJECTIVES, "cached_tokens", SESSIONS[0])


class Format(NamedTuple):
    """A format by the three columns that make a trace.

    Attributes
    ----------
    name : for the user. arrival, prompt, output : names of columns
    unit : of numbers in `arrival`; None if it has none of its own
    failures : whether a request of 0 tokens is a failed one, which is left out; otherwise it is a mistake
    also : further required columns. optional : columns read if present
    """

    name: str
    arrival: str
    prompt: str
    output: str
    unit: Unit | None
    failures: bool = True
    also: tuple[str, ...] = ()
    optional: tuple[str, ...] = OPTIONAL

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the required columns."""
        return self.arrival, self.prompt, self.output, *self.also


OWN = Format("specsim", "arrival_s", "prompt_tokens", "output_tokens", "s", failures=False)
# AzurePublicDataset, AzureLLMInferenceDataset2023.md and 2024.md; the multimodal one of 2025 adds NumImages.
AZURE = Format("Azure", "TIMESTAMP", "ContextTokens", "GeneratedTokens", None)
# HPMLL/BurstGPT, README: releases 1 and 2 have six columns, release 3 adds Session ID and Elapsed time.
BURSTGPT = Format(
    *("BurstGPT", "Timestamp", "Request tokens", "Response tokens", "s"),
    optional=(*OPTIONAL, SESSIONS[1]),
)
# Mooncake's FAST25 release (milliseconds), Alibaba's Bailian traces (seconds), and vLLM's dataset timed_trace, which
# reads both with --timed-trace-sec-multiplier, 1 by default.
HASHES = "hash_ids"
TIMED = Format(
    *("Mooncake / vLLM timed trace", "timestamp", "input_length", "output_length", None),
    optional=(*OPTIONAL, HASHES, CHAT, PARENT),
)
# The artifact of AdaServe (EuroSys '26), exps/fig*/emission_*.json.
ADASERVE = Format(
    *("AdaServe", "emission_time_ms", "input_length", "output_length", "ms"),
    failures=False,
    also=("slo_ratio",),
    optional=("prompt",),
)
VLLM = Format("vLLM benchmark result", *vllm_result.LISTS, "s")
FORMATS = (OWN, AZURE, BURSTGPT, TIMED, ADASERVE, VLLM)
REQUIRED = frozenset(name for each in FORMATS for name in (each.arrival, each.prompt, each.output))
"""Columns in which no cell may be empty."""
KNOWN = frozenset((*OPTIONAL, *(name for each in FORMATS for name in each.columns)))


def choose(table: Table) -> Format:
    """Return the format whose three columns a table has.

    Raises
    ------
    SpecsimError
        When there is none, a column is there twice, or a column that is not read has almost the name of one that could
        be.
    """
    if len(table.names) > MOST_COLUMNS:
        said = f"{len(table.names):,} columns; expected at most {MOST_COLUMNS:,}"
        raise SpecsimError(f"{table.file}: {table.where}{said}")
    form = max(FORMATS, key=lambda each: len(set(each.columns) & set(table.names)))
    where, missing = f"{table.file}: {table.where}", [name for name in form.columns if name not in table.names]
    wanted = (*missing, *(name for name in form.optional if name not in table.names))
    for name in unread(table, form):
        close = get_close_matches(name, wanted, n=1, cutoff=0.6 if missing else 0.8)
        if close:
            raise SpecsimError(f"{where}unknown column {shown(name)}; did you mean {close[0]!r}?")
    if missing:
        others = ", ".join(each.name for each in FORMATS[1:])
        needed = ", ".join(form.columns)
        raise SpecsimError(f"{where}no column {', '.join(missing)}; needs {needed}, or those of {others}")
    for name in (*form.columns, *form.optional):
        if table.names.count(name) > 1:
            raise SpecsimError(f"{where}column {name!r} stands twice")
    return form


def unread(table: Table, form: Format) -> list[str]:
    """Return the columns of a table that a format does not read."""
    return [name for name in table.names if name not in (*form.columns, *form.optional)]
