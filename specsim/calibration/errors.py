"""How far simulated points are from measured ones, by the size of the load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from specsim.calibration.points import Held

CLIENTS = (4, 16, 64, 256)
CONTEXTS = (2048, 8192, 32768)


class Errors(NamedTuple):
    """Relative errors of some points: the median and the 90th percentile of their size, and their mean, signed."""

    median: float
    p90: float
    mean: float

    @classmethod
    def of(cls, errors: Sequence[float]) -> Errors:
        """Return those of (simulated - measured) / measured."""
        sizes = np.abs(errors)
        return cls(float(np.median(sizes)), float(np.quantile(sizes, 0.9)), float(np.mean(errors)))


class Group(NamedTuple):
    """Some points, and how far their TPOT, E2E latency and TTFT are off."""

    name: str
    points: int
    tpot: Errors
    e2e: Errors
    ttft: Errors

    @classmethod
    def of(cls, name: str, held: Sequence[Held]) -> Group:
        """Return the group of these points."""
        columns = ([each.tpot_error for each in held], [each.e2e_error for each in held])
        ttft = [each.ttft_error for each in held]
        return cls(name, len(held), *(Errors.of(each) for each in (*columns, ttft)))


def by_concurrency(held: Sequence[Held]) -> Iterator[tuple[str, list[Held]]]:
    """Yield the points with so many requests in flight, fewest first, under a name."""
    return _grouped(held, "concurrency", CLIENTS, lambda each: each.measured.in_flight)


def by_context(held: Sequence[Held]) -> Iterator[tuple[str, list[Held]]]:
    """Yield the points whose requests end at some context (prompt and output), shortest first, under a name."""
    return _grouped(held, "context", CONTEXTS, lambda each: sum(each.measured.load[:2]))


def groups(held: Sequence[Held]) -> list[Group]:
    """Return all points, then those of some clients, then those of some contexts."""
    parts = [*by_concurrency(held), *by_context(held)]
    return [Group.of("all", held), *(Group.of(*each) for each in parts)]


def _grouped(
    held: Sequence[Held], name: str, bounds: Sequence[int], size: Callable[[Held], float]
) -> Iterator[tuple[str, list[Held]]]:
    """Yield what lies up to each bound, and what lies beyond the last."""

    def bracket(each: Held) -> int:
        return int(np.searchsorted(bounds, size(each)))

    for place, some in groupby(sorted(held, key=bracket), key=bracket):
        above = f"{bounds[place - 1] + 1:,}" if place else "1"
        yield f"{name} {above}-{bounds[place]:,}" if place < len(bounds) else f"{name} from {above}", list(some)
