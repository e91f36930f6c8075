"""What a client says when a request arrives: the only facts about it that a scheduler may ever know."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
"""Request ids: rows of the trace in order of arrival."""
Ints = npt.NDArray[np.int64]
"""Whole numbers: tokens, nodes, bytes."""
Floats = npt.NDArray[np.float64]
"""Seconds, probabilities."""
Bools = npt.NDArray[np.bool_]
"""True or False of each row or node."""
LONGEST_S = 2.0**33
"""Seconds up to which neighbouring float64 lie within a microsecond: 272 years. No clock may pass it."""


@dataclass(frozen=True, slots=True)
class Requests:
    """All requests of a run as one struct of arrays, sorted by arrival; index = request id.

    Attributes
    ----------
    arrival_s : (N,) seconds since the first arrival.
    prompt_tokens : (N,) tokens, at least 1.
    max_tokens : (N,) the most tokens that may be emitted; a bound, not the length.
    slo_class : (N,) index into `class_names`.
    tpot_slo_s, ttft_slo_s : (N,) seconds, NaN where the class has no such objective.
    """

    arrival_s: Floats
    prompt_tokens: Ints
    max_tokens: Ints
    slo_class: Ints
    tpot_slo_s: Floats
    ttft_slo_s: Floats
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.arrival_s)
