"""Many numbers in bounded memory: exact mean and deviation; percentiles exact up to a bound, beyond it sketched."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from math import inf, sqrt
from typing import TYPE_CHECKING

import numpy as np

from specsim.core.request import Floats

if TYPE_CHECKING:
    from ddsketch import DDSketch


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
