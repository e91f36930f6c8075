"""Columns of a run's files by name, type and order, and the totals of a run (docs/metrics.md)."""

from __future__ import annotations

from dataclasses import dataclass

from specsim.replica.request import Floats
from specsim.results.distribution import Sketched
from specsim.results.window import Window

SCHEMA_VERSION = 2

REQUEST_COLUMNS: dict[str, str] = {
    "request_id": "int64",
    "slo_class": "string",
    "arrival_s": "float64",
    "first_token_s": "float64",
    "finish_s": "float64",
    "ttft_s": "float64",
    "tpot_s": "float64",
    "decode_tpot_s": "float64",
    "e2el_s": "float64",
    "prompt_tokens": "int64",
    "output_tokens": "int64",
    "slo_tpot_s": "float64",
    "slo_ok": "bool",
    "draft_tokens": "int64",
    "accepted_tokens": "int64",
    "verifications": "int64",
    "preemptions": "int64",
    "rejected_reason": "string",
    "slo_ttft_s": "float64",
    "first_decode_s": "float64",
    "decoded_tokens": "int64",
    "speculations": "int64",
    "longest_pause_s": "float64",
    "ttft_ok": "bool",
    "tpot_ok": "bool",
    "decode_tpot_ok": "bool",
    "moving_s": "float64",
    "replica": "int64",
}
"""Columns of ``requests.parquet``, which has a row for each arrived request in the order of ids.

Times are seconds on the simulated clock; NaN if the event did not happen (rejected; nothing decoded). Objectives are in
seconds, NaN for none. ``draft_tokens`` counts the nodes that the target verified, ``verifications`` the decoding target
passes, ``speculations`` those with a draft token. ``longest_pause_s`` is the longest time between two emissions, NaN
with fewer than two. ``rejected_reason`` is ``""`` for a request that was not rejected. ``moving_s`` is the time
in which the cache moved to the host and back. ``replica`` is the index of the replica that the request was sent to, in
a split run last.
"""

SPLIT_COLUMNS: dict[str, str] = {
    "split.prefill_replica": "int64",
    "split.moved_bytes": "int64",
    "split.moving_s": "float64",
}
"""Further columns of ``requests.parquet`` where prefill and decode are split (`specsim.replica.state.Moves`)."""

TIMEOUT_COLUMNS: dict[str, str] = {"cancelled_s": "float64"}
"""A further column of ``requests.parquet`` where clients give up: when each was cancelled, NaN if it was not."""

FURTHER_COLUMNS = SPLIT_COLUMNS | TIMEOUT_COLUMNS
"""What ``requests.parquet`` has only of some runs."""

NOTED = "noted."
"""Begins the names of further columns of ``requests.parquet``, float64: what a scheduler notes of each request."""

PASS_COLUMNS: dict[str, str] = {
    "start_s": "float64",
    "seconds": "float64",
    "kind": "int8",
    "replica": "int32",
    "requests": "int32",
    "batched_tokens": "int64",
    "context_tokens": "int64",
    "prefill_tokens": "int64",
    "draft_tokens": "int64",
    "depth": "int32",
    "emitted_tokens": "int64",
    "queued": "int32",
}

SHED_REASONS = ("shed_waiting", "shed_ttft")
"""Reasons of requests that a replica refused since it had too much to do."""

DRAFT_PASS = 0
VERIFY_PASS = 1


@dataclass(frozen=True, slots=True, eq=False)
class RunTotals:
    """Totals of a run that are of no single request; seconds are summed over replicas.

    ``itl_s`` holds one inter-token latency per emission after a request's first, as vLLM counts, in any order; of too
    many to keep it holds statistics. ``itl_window`` is the window of the requests that they are of; None: all.
    ``clients`` is the number of clients that waited for their answers; None: requests came by themselves. ``moving_s``
    is part of the seconds of the passes behind which caches moved. ``prefix_queries`` are the prompt tokens that were
    looked up in the prefix cache, ``prefix_hits`` those that were found.
    """

    iterations: int
    draft_passes: int
    prefill_s: float
    draft_s: float
    selection_s: float
    verify_s: float
    idle_s: float
    itl_s: Floats | Sketched
    out_of_range_passes: int = 0
    itl_window: Window | None = None
    clients: int | None = None
    moving_s: float = 0.0
    replicas: int = 1
    prefix_queries: int = 0
    prefix_hits: int = 0
