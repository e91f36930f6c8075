"""Intervals and warm-up of correlated series, from the means of `BATCHES` batches.

Neighbouring requests miss their objectives together, so an interval that takes them as independent is too narrow.
Means of long batches are nearly independent, and Student's t applies to them (Schmeiser 1982: 10 to 30 batches).
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from specsim.core.request import Floats

if TYPE_CHECKING:
    from numpy.typing import NDArray


BATCHES = 20
T_975 = 2.093024054408263
"""Student's t at 97.5% with `BATCHES` - 1 degrees of freedom."""
Z_975 = 1.959963984540054


class Trend(NamedTuple):
    """Mean change of the backlog in requests per second, and its 95% interval."""

    per_s: float
    interval_per_s: tuple[float, float]

    @property
    def grows(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.interval_per_s[0] > 0


def backlog(arrival_s: Floats, finish_s: Floats, at_s: Floats) -> Floats:
    """Return the number of requests (N,) that have arrived and not ended at each time in `at_s`, in its shape."""
    arrived = np.searchsorted(np.sort(arrival_s), at_s, side="right")
    return (arrived - np.searchsorted(np.sort(finish_s), at_s, side="right")).astype(np.float64)


def trend(arrival_s: Floats, finish_s: Floats, start_s: float, end_s: float) -> Trend:
    """Return the trend of the backlog between two times, from its changes over `BATCHES` equal spans.

    The backlog of an overloaded queue is a random walk with drift. Its changes are nearly independent, and the interval
    is the t-interval of their mean. The changes of a stable queue cancel, so its interval is too wide. A burst at the
    end is one change of many.
    """
    edges_s = np.linspace(start_s, end_s, BATCHES + 1)
    change = np.diff(backlog(arrival_s, finish_s, edges_s)) / (end_s - start_s) * BATCHES
    mean, half = float(change.mean()), T_975 * float(change.std(ddof=1)) / sqrt(BATCHES)
    return Trend(mean, (mean - half, mean + half))


def half_width(met: NDArray[np.bool_]) -> float:
    """Return half the 95% interval of the share of `met`, (N,) in order of arrival.

    It is never narrower than Agresti and Coull's (1998) interval for independent requests, since batches that all
    attain do not prove that none will miss.
    """
    n = len(met)
    independent = independent_half_width(float(met.mean()), n)
    if n < BATCHES:
        return independent
    return max(independent, mean_half_width(met))


def mean_half_width(values: NDArray[Any]) -> float:
    """Return half the 95% interval of the mean of values, (N,) in their order, `BATCHES` or more."""
    means = np.array([batch.mean() for batch in np.array_split(values, BATCHES)])
    return T_975 * float(means.std(ddof=1)) / sqrt(BATCHES)


def independent_half_width(share: float, n: int) -> float:
    """Return half of Agresti and Coull's (1998) 95% interval of a share of `n` independent requests."""
    centre = (share * n + 2) / (n + 4)
    return Z_975 * sqrt(centre * (1 - centre) / (n + 4))


def warm_up(values: Floats) -> int | None:
    """Return how many of the first values to leave out, by MSER-5; None if it finds no steady level.

    MSER-5 (White 1997; White, Cobb & Spratt 2000) averages five values at a time. It drops the first d of k means such
    that the sum of squared deviations of the others / (k - d)^2 is least. A d beyond half means that the series is too
    short or has no steady level.
    """
    k = len(values) // 5
    if k < 2:
        return None
    means = values[: 5 * k].reshape(k, 5).mean(axis=1)
    kept = np.arange(1, k + 1)
    # Entry j sums the last j + 1 means. They are centred first, since a difference of squares would lose digits.
    tail = means[::-1] - means.mean()
    spread = np.cumsum(tail**2) - np.cumsum(tail) ** 2 / kept
    dropped = int(np.argmin((spread / kept**2)[::-1][: max(1, k - 5)]))
    return None if dropped > k / 2 else 5 * dropped
