"""Systems on the same text: one figure per seed, and what their differences say."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from specsim.api import Run, simulate
from specsim.core.request import Floats
from tests.claims.settings import SEEDS, STUDENT_T

MEASURES = ("slo_attainment", "tpot_attainment")
"""The share that met every objective, and the paper's: TPOT alone."""


def over_seeds(figure: Callable[[Run], float], scheduler: str, **settings: Any) -> Floats:
    """Return one figure of the scheduler's run per seed, (seeds,)."""
    return np.array([figure(simulate(scheduler, **settings, seed=seed)) for seed in SEEDS])


@cache
def _mean_e2el_s(scheduler: str, settings: tuple[tuple[str, Any], ...]) -> tuple[float, ...]:
    return tuple(over_seeds(lambda run: run.metrics["mean_e2el_ms"] / 1e3, scheduler, **dict(settings)))


@cache
def _attainments(scheduler: str, settings: tuple[tuple[str, Any], ...]) -> tuple[dict[str, float], ...]:
    runs = (simulate(scheduler, **dict(settings), seed=seed) for seed in SEEDS)
    return tuple({name: run.metrics["specsim"][name] for name in MEASURES} for run in runs)


def mean_e2el_s(scheduler: str, **settings: Any) -> Floats:
    """Return the mean end-to-end latency per seed, (seeds,)."""
    return np.array(_mean_e2el_s(scheduler, tuple(settings.items())))


def attainment(measure: str, scheduler: str, **settings: Any) -> Floats:
    """Return one of `MEASURES` per seed, (seeds,)."""
    return np.array([found[measure] for found in _attainments(scheduler, tuple(settings.items()))])


def surely_positive(difference: Floats) -> bool:
    """Return whether the 95% interval of the mean of a paired difference (seeds,) lies above 0."""
    half_width = STUDENT_T * difference.std(ddof=1) / np.sqrt(len(difference))
    return bool(difference.mean() > half_width)
