"""Systems on the same text: one figure per seed, and what their differences say."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from specsim.api import simulate
from specsim.core.request import Floats
from tests.claims.settings import SEEDS, STUDENT_T

MEASURES = ("slo_attainment", "tpot_attainment")
"""The share that met every objective, and the paper's: TPOT alone."""


@cache
def _metrics(scheduler: str, settings: tuple[tuple[str, Any], ...]) -> list[dict[str, Any]]:
    return [simulate(scheduler, **dict(settings), seed=seed).metrics for seed in SEEDS]


def mean_e2el_s(scheduler: str, **settings: Any) -> Floats:
    """Return the mean end-to-end latency per seed, (seeds,)."""
    return np.array([found["mean_e2el_ms"] / 1e3 for found in _metrics(scheduler, tuple(settings.items()))])


def attainment(measure: str, scheduler: str, **settings: Any) -> Floats:
    """Return one of `MEASURES` per seed, (seeds,)."""
    return np.array([found["specsim"][measure] for found in _metrics(scheduler, tuple(settings.items()))])


def surely_positive(difference: Floats) -> bool:
    """Return whether the 95% interval of the mean of a paired difference (seeds,) lies above 0."""
    half_width = STUDENT_T * difference.std(ddof=1) / np.sqrt(len(difference))
    return bool(difference.mean() > half_width)
