"""What a run writes: column names, types and order, and the arrays it is handed (docs/metrics.md)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.results.distribution import Sketched
from specsim.results.window import Window

SCHEMA_VERSION = 2

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

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
}

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

DRAFT_PASS = 0
VERIFY_PASS = 1


@dataclass(frozen=True, slots=True, eq=False)
class RequestColumns:
    """What the recorder knows of every arrived request: arrays of one shape ``(requests,)``, in id order.

    Times are seconds on the simulated clock and NaN where the event never came (rejected; nothing decoded).
    ``slo_class`` and ``rejected_reason`` are codes into the tuples of names beside them; reason 0 is ``""``,
    not rejected. SLOs are resolved seconds, NaN for none. ``draft_tokens`` counts the nodes submitted to the
    target, ``verifications`` the decoding target passes, ``speculations`` those with a draft token.
    ``longest_pause_s`` is the longest time between two emissions, NaN where there was one at most.

    Raises
    ------
    ValueError
        When an array has another length than ``request_id``.
    """

    request_id: IntArray
    slo_class: IntArray
    slo_class_names: tuple[str, ...]
    arrival_s: FloatArray
    first_token_s: FloatArray
    finish_s: FloatArray
    first_decode_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray
    draft_tokens: IntArray
    accepted_tokens: IntArray
    verifications: IntArray
    speculations: IntArray
    preemptions: IntArray
    decoded_tokens: IntArray
    longest_pause_s: FloatArray
    tpot_slo_s: FloatArray
    ttft_slo_s: FloatArray
    rejected_reason: IntArray
    rejected_reason_names: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        rows = len(self.request_id)
        for field in fields(self):
            value: Any = getattr(self, field.name)
            if isinstance(value, np.ndarray) and value.shape != (rows,):
                raise ValueError(f"{field.name} has shape {value.shape}, expected ({rows},)")


@dataclass(frozen=True, slots=True, eq=False)
class RunTotals:
    """What belongs to a run and to no single request; seconds are summed over replicas.

    ``itl_s`` holds one inter-token latency per emitted chunk after a request's first (as vLLM counts), in any order,
    or what is known of too many to keep; ``itl_window`` is the window of the requests whose they are, None for all.
    ``clients`` is how many clients waited for their answers, None where requests came by themselves.
    """

    iterations: int
    draft_passes: int
    prefill_s: float
    draft_s: float
    selection_s: float
    verify_s: float
    idle_s: float
    itl_s: FloatArray | Sketched
    out_of_range_passes: int = 0
    itl_window: Window | None = None
    clients: int | None = None
