"""The order of a sweep: kinds, roles and sizes take turns, so that a cut at any time leaves something to fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from profiler.latency.points import Point

T = TypeVar("T")


def spread(ordered: Sequence[T]) -> list[T]:
    """Return a sequence from its ends inwards: the first, the last, then the middles of the gaps (van der Corput)."""
    most = len(ordered) - 1
    bits = max(most, 0).bit_length()
    reversed_bits = sorted(range(len(ordered)), key=lambda place: f"{place:0{bits}b}"[::-1])
    places = dict.fromkeys([*reversed_bits[:1], most, *reversed_bits]) if ordered else {}
    return [ordered[place] for place in places]


def interleaved(by_role: Mapping[str, Sequence[Point]]) -> list[tuple[str, Point]]:
    """Return every point with its role; of any first part each kind of each role has its share, small and large."""
    turns = []
    for role, points in by_role.items():
        kinds = dict.fromkeys(point.kind for point in points)
        for kind in kinds:
            of_kind = spread([point for point in points if point.kind == kind])
            turns += [((place + 0.5) / len(of_kind), role, point) for place, point in enumerate(of_kind)]
    turns.sort(key=lambda turn: turn[0])
    return [(role, point) for _, role, point in turns]
