"""Systems on the same text: one figure per seed, and what their differences say."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from specsim.api import Run, simulate
from specsim.request import Floats
from tests.claims.settings import SEEDS, STUDENT_T


def over_seeds(figure: Callable[[Run], float], scheduler: str, **settings: Any) -> Floats:
    """Return one figure of the scheduler's run per seed, (seeds,)."""
    return np.array([figure(simulate(scheduler, **settings, seed=seed)) for seed in SEEDS])


@cache
def _mean_e2el_s(scheduler: str, settings: tuple[tuple[str, Any], ...]) -> tuple[float, ...]:
    return tuple(over_seeds(lambda run: run.metrics["mean_e2el_ms"] / 1e3, scheduler, **dict(settings)))


@cache
def _attainment(scheduler: str, settings: tuple[tuple[str, Any], ...]) -> tuple[float, ...]:
    return tuple(over_seeds(lambda run: run.slo_attainment, scheduler, **dict(settings)))


def mean_e2el_s(scheduler: str, **settings: Any) -> Floats:
    """Return the mean end-to-end latency per seed, (seeds,)."""
    return np.array(_mean_e2el_s(scheduler, tuple(settings.items())))


def attainment(scheduler: str, **settings: Any) -> Floats:
    """Return the share of requests that met their objectives per seed, (seeds,)."""
    return np.array(_attainment(scheduler, tuple(settings.items())))


def surely_positive(difference: Floats) -> bool:
    """Return whether the 95% interval of the mean of a paired difference (seeds,) lies above 0."""
    half_width = STUDENT_T * difference.std(ddof=1) / np.sqrt(len(difference))
    return bool(difference.mean() > half_width)
