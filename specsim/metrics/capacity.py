"""The highest rate at which a share of requests is attained: which rates to test, and what the tests say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, sqrt
from typing import NamedTuple

import numpy as np

from specsim.core.request import Floats

LEVEL = 0.95
LEAST_SEEDS = 5
"""Seeds from which on an interval over them is believed: fewer may agree by chance."""
LONGEST = 10_000
"""The most requests to which a run is made longer."""
STEP = 2.0
"""From one rate of the coarse scan to the next."""
DIGITS = 4
"""Of a tested rate."""
ROUNDING = 1e-9
FAILURES = 2
"""Rates in a row that miss the target and end the coarse scan: behind one alone it may be met again."""


class Asked(NamedTuple):
    """The question of a search.

    Attributes
    ----------
    target : share of requests to attain, in [0, 1].
    first, last : the least and the highest rate to test, requests/s.
    within : the rates that keep and miss the target lie no further apart than this share of the lower.
    longest : the most requests of a run that is made longer because it says too little.
    """

    target: float
    first: float
    last: float
    within: float
    longest: int = LONGEST


Tested = Mapping[float, Sequence[float]]
"""By rate in requests/s, the attained share of each seed, in the same order."""


class Capacity(NamedTuple):
    """The answer of the tested rates.

    Attributes
    ----------
    keeps : the highest tested rate up to which every tested rate keeps the target in the mean; None: not the first.
    misses : the lowest tested rate that misses it; None: not even the last.
    by_seed : (seeds,) where each seed's attainment falls below the target, between the tested rates around it on a
        line; NaN where it never does, or always has.
    mean, half_width : of these and of their 95% interval (Student's t); NaN where a seed has none or there is one seed.
    again : higher rates at which the target is met again.
    """

    keeps: float | None
    misses: float | None
    by_seed: Floats
    mean: float
    half_width: float
    again: tuple[float, ...]

    @property
    def known_to(self) -> float:
        """The half width, no less than half the step; NaN where that is."""
        return max(self.half_width, self.half_step)

    @property
    def half_step(self) -> float:
        """Half of what is between `keeps` and `misses`, requests/s."""
        return ((self.misses or 0.0) - (self.keeps or 0.0)) / 2


def next_rate(asked: Asked, tested: Tested) -> float | None:
    """Return the rate to test next; None when the answer is as narrow as was asked for.

    First the rates double, until `FAILURES` in a row miss the target. Then the rates that keep and miss it close in on
    each other by halves of their ratio. The rate follows from what was tested alone, so a search can be taken up again.
    """
    missed, rate = 0, asked.first
    while missed < FAILURES:
        if rate not in tested:
            return rate
        missed = 0 if kept(asked, tested[rate]) else missed + 1
        if rate >= asked.last:
            break
        rate = min(rate * STEP, asked.last)
    keeps, misses = _edge(asked, tested)
    if keeps is None or misses is None or misses <= keeps * (1 + asked.within):
        return None
    middle = float(f"{sqrt(keeps * misses):.{DIGITS}g}")
    return middle if keeps < middle < misses else None


def capacity(asked: Asked, tested: Tested) -> Capacity:
    """Return what the tested rates say."""
    keeps, misses = _edge(asked, tested)
    again = (
        () if misses is None else tuple(rate for rate in sorted(tested) if rate > misses and kept(asked, tested[rate]))
    )
    by_seed = np.array([_falls(asked, tested, seed) for seed in range(len(next(iter(tested.values()))))])
    return Capacity(keeps, misses, by_seed, *mean_interval(by_seed), again)


def kept(asked: Asked, attained: Sequence[float]) -> bool:
    """Return whether the mean over seeds keeps the target, or equals it but for its rounding."""
    return float(np.mean(attained)) >= asked.target * (1 - ROUNDING)


def _edge(asked: Asked, tested: Tested) -> tuple[float | None, float | None]:
    """Return the highest rate up to which all keep the target, and the lowest that misses it."""
    keeps = None
    for rate in sorted(tested):
        if not kept(asked, tested[rate]):
            return keeps, rate
        keeps = rate
    return keeps, None


def _falls(asked: Asked, tested: Tested, seed: int) -> float:
    """Return the rate at which one seed's attainment first falls below the target; NaN where it does not fall there."""
    before: tuple[float, float] | None = None
    for rate in sorted(tested):
        attained = tested[rate][seed]
        if not kept(asked, [attained]):
            if before is None:
                return float("nan")
            low, share = before
            return low + (rate - low) * (share - asked.target) / (share - attained)
        before = rate, attained
    return float("nan")


def mean_interval(by_seed: Floats) -> tuple[float, float]:
    """Return the mean over seeds and the half width of its 95% interval (Student's t); NaN for one seed."""
    from scipy.special import stdtrit

    mean = float(by_seed.mean())
    if len(by_seed) < 2 or not isfinite(mean):
        return mean, float("nan")
    return mean, float(stdtrit(len(by_seed) - 1, (1 + LEVEL) / 2) * by_seed.std(ddof=1) / sqrt(len(by_seed)))
