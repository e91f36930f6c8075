"""Traces drawn at random: Poisson, gamma and on-off arrivals with drawn lengths.

Every process is drawn at a rate of 1 and divided by ``rps`` at the end, so that a rate only rescales time. Every
column has a generator of its own, read in order of rows, so that a longer trace begins with the shorter one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from specsim.workload.trace import Floats, Ints

Distribution = Literal["fixed", "uniform", "lognormal"]


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of token counts; ``low`` and ``high`` bound it, both included.

    Attributes
    ----------
    distribution : ``fixed`` (mean), ``uniform`` (low, high) or ``lognormal`` (mean and cv before the bounds)
    mean : tokens
    cv : standard deviation / mean
    low, high : tokens
    """

    distribution: Distribution
    mean: float | None = None
    cv: float | None = None
    low: int | None = None
    high: int | None = None


def poisson(rps: float, n: int, rng: np.random.Generator) -> Floats:
    """Return ``n`` Poisson arrivals (n,) in seconds at a mean rate ``rps``, the first at 0."""
    return _from_gaps(rng.standard_exponential(n), rps)


def gamma(rps: float, n: int, rng: np.random.Generator, *, cv: float) -> Floats:
    """Return ``n`` arrivals (n,) whose gaps are gamma with coefficient of variation ``cv``; 1 is Poisson."""
    shape = 1 / cv**2
    return _from_gaps(rng.standard_gamma(shape, n) / shape, rps)


def on_off(
    rps: float,
    n: int,
    rng: np.random.Generator,
    *,
    burst_requests: float,
    on_share: float,
    off_rate_ratio: float,
) -> Floats:
    """Return ``n`` arrivals (n,) of a two-state Markov-modulated Poisson process, the first at 0.

    ``burst_requests`` is the mean number of requests of an on-period, ``on_share`` the share of time in on-periods, and
    ``off_rate_ratio`` the off-rate over the on-rate (0: silence between bursts). Periods are exponential, and the
    process starts in its steady state. Bursts are given in requests, since a burst in seconds would change with the
    rate.
    """
    work_rng, state_rng = rng.spawn(2)
    on_rate = 1 / (on_share + (1 - on_share) * off_rate_ratio)
    rates = np.array([on_rate, on_rate * off_rate_ratio])
    periods = burst_requests / on_rate * np.array([1.0, (1 - on_share) / on_share])
    work = np.cumsum(work_rng.standard_exponential(n))
    start = 0 if state_rng.random() < on_share else 1
    clock, done = [np.zeros(1)], [np.zeros(1)]
    while done[-1][-1] < work[-1]:
        # Chunks are even, so that each begins in the state of the trace's beginning.
        state = (start + np.arange(256)) % 2
        period = state_rng.standard_exponential(256) * periods[state]
        clock.append(clock[-1][-1] + np.cumsum(period))
        done.append(done[-1][-1] + np.cumsum(period * rates[state]))
    arrival = np.interp(work, np.concatenate(done), np.concatenate(clock))
    return np.asarray((arrival - arrival[0]) / rps, np.float64)


def lengths(spec: Lengths, n: int, rng: np.random.Generator) -> Ints:
    """Return ``n`` token counts (n,) of the distribution, each at least 1."""
    low, high = spec.low or 1, spec.high or np.iinfo(np.int64).max
    if spec.distribution == "fixed":
        return np.full(n, round(spec.mean or 0), np.int64)
    if spec.distribution == "uniform":
        return np.asarray(rng.integers(low, high, n, endpoint=True), np.int64)
    assert spec.mean is not None
    assert spec.cv is not None
    variance = np.log1p(spec.cv**2)
    drawn = np.exp(np.log(spec.mean) - variance / 2 + np.sqrt(variance) * rng.standard_normal(n))
    return np.asarray(np.clip(np.rint(drawn), low, high), np.int64)


def _from_gaps(gaps: Floats, rps: float) -> Floats:
    gaps[0] = 0.0
    return np.asarray(np.cumsum(gaps) / rps, np.float64)
