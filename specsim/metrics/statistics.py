"""Statistics of a run: intervals and warm-up of correlated series, distributions in bounded memory.

Neighbouring requests miss their objectives together, so an interval that takes them as independent is too narrow.
Means of long batches are nearly independent, and Student's t applies to them (Schmeiser 1982: 10 to 30 batches).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from math import inf, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from specsim.core.request import Floats

if TYPE_CHECKING:
    from ddsketch import DDSketch
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


MOST_EXACT = 1 << 22
"""The most numbers kept: more than the 4.07 million inter-token latencies of the Azure conversation trace."""
RELATIVE_ERROR = 1e-3
BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class Sketched:
    """Statistics of numbers that were not kept, in their unit.

    `mean`, `std` (of the population) and `least` are of all `count` numbers. `median` and `p99` are within
    `relative_error` of the number at that rank, the lower one if the rank is between two.
    """

    count: int
    mean: float
    std: float
    least: float
    median: float
    p99: float
    relative_error: float = RELATIVE_ERROR


class Distribution:
    """Numbers of at least 0, added in blocks; more than `most_exact` of them go into a sketch.

    The sketch is DDSketch (Masson et al., VLDB 2019): deterministic, mergeable, with an error relative to the value.
    Mean and deviation are merged block by block (Chan et al. 1979), as stable as numpy's over all numbers.
    """

    def __init__(self, most_exact: int | None = None) -> None:
        self._most_exact = MOST_EXACT if most_exact is None else most_exact
        self._kept = array("d")
        self._sketch: DDSketch | None = None
        self._count = 0
        self._mean = self._squares = 0.0
        self._least = inf

    def add(self, numbers: Floats) -> None:
        """Add numbers (n,)."""
        if self._sketch is not None:
            if len(numbers):
                self._fold(numbers)
            return
        self._kept.frombytes(numbers.tobytes())
        if len(self._kept) > self._most_exact:
            self._begin_sketch()

    def merge(self, other: Distribution) -> None:
        """Add the numbers of another one, which may no longer be used."""
        if not self._kept and self._sketch is None:
            self._kept, self._sketch = other._kept, other._sketch
            self._count, self._mean, self._squares = other._count, other._mean, other._squares
        elif other._sketch is None:
            self.add(np.array(other._kept, dtype=np.float64))
        else:
            if self._sketch is None:
                self._begin_sketch()
            assert self._sketch is not None
            self._sketch.merge(other._sketch)
            self._weigh(other._count, other._mean, other._squares)
        self._least = min(self._least, other._least)

    @property
    def result(self) -> Floats | Sketched:
        """The numbers in the order in which they were added; of more than `most_exact` their statistics."""
        if self._sketch is None:
            return np.array(self._kept, dtype=np.float64)
        median, p99 = (self._sketch.get_quantile_value(rank) for rank in (0.5, 0.99))
        assert median is not None
        assert p99 is not None
        return Sketched(self._count, self._mean, sqrt(self._squares / self._count), self._least, median, p99)

    def _begin_sketch(self) -> None:
        from ddsketch import DDSketch

        self._sketch = DDSketch(RELATIVE_ERROR)
        kept = np.frombuffer(self._kept)
        for first in range(0, len(kept), BLOCK):
            self._fold(kept[first : first + BLOCK])
        self._kept = array("d")

    def _fold(self, numbers: Floats) -> None:
        """Add numbers (n,) to the sketch and to the moments; equal numbers, as the pauses of a batch, at once."""
        assert self._sketch is not None
        self._least = min(self._least, float(numbers.min()))
        for number, times in zip(*(each.tolist() for each in np.unique(numbers, return_counts=True)), strict=True):
            self._sketch.add(number, times)
        self._weigh(len(numbers), float(np.mean(numbers)), float(np.var(numbers)) * len(numbers))

    def _weigh(self, added: int, mean: float, squares: float) -> None:
        """Add so many numbers of this mean, and this sum of squared deviations from it, to the moments."""
        count, apart = self._count + added, mean - self._mean
        self._squares += squares + apart * apart * self._count * added / count
        self._mean += apart * added / count
        self._count = count
