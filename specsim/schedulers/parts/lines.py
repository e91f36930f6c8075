"""The waiting requests in lines, one for each number that requests share: their tenant, or their objective.

Paper: none. In a line requests stand in order of arrival, so whoever looks for the first of each need not look at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from specsim.replica.passes import NOBODY
from specsim.replica.protocols import View
from specsim.replica.request import Bools, Floats, Ids, Ints

HEAD = 16
"""How many places of a line are looked at for one request that is wanted; if they do not do, as many times more."""
FEW = 2000
"""So many requests are looked at sooner than they are kept in lines."""

Heard = Callable[[Sequence[float], set[float]], None]
"""Hears the numbers of requests that have arrived, in order, and those of which others waited before."""


class Waiting(NamedTuple):
    """The waiting requests in their lines.

    Attributes
    ----------
    begin : the earliest waiting request. lines : by number, whether each id from there on stands in its line.
    """

    begin: int
    lines: dict[float, Bools]

    def first(self, most: int) -> dict[float, Ids]:
        """Return the first requests of each line that is not empty, at most so many."""
        found = {number: self.begin + _first(marks, most) for number, marks in self.lines.items()}
        return {number: ids for number, ids in found.items() if len(ids)}


def _first(marks: Bools, most: int) -> Ints:
    """Return the first places that are marked, at most so many; in a long line few are looked at."""
    size = HEAD * most
    found = np.flatnonzero(marks[:size])
    while len(found) < most and size < len(marks):
        size *= HEAD
        found = np.flatnonzero(marks[:size])
    return found[:most]


@dataclass(slots=True)
class Lines:
    """Lines that know who stands in them: a request is looked at when it arrives.

    Parameters
    ----------
    most_lines : for more numbers there are no lines: they are not shared, but each request's own.
    """

    most_lines: float = float("inf")
    _do: bool = field(init=False, default=True)
    _known: Bools = field(init=False, default_factory=lambda: np.zeros(0, dtype=np.bool_))
    _members: dict[float, Bools] = field(init=False, default_factory=dict)

    def waiting(self, view: View, numbers: Ints | Floats, heard: Heard | None = None) -> Waiting:
        """Return who waits; `numbers` (N,) say in which line, inf for NaN."""
        if not len(self._known):
            self._known = np.zeros(len(numbers), dtype=np.bool_)
        if not len(view.waiting):
            return Waiting(0, {})
        there = slice(view.waiting[0], view.waiting[-1] + 1)
        waits = view.waits[there]
        arrived = there.start + np.flatnonzero(waits & ~self._known[there])
        if len(arrived):
            told = [number if number == number else float("inf") for number in numbers[arrived].tolist()]
            if heard is not None:
                heard(told, {number for number, those in self._members.items() if (those[there] & waits).any()})
            self._enter(arrived, told)
        return Waiting(there.start, {number: those[there] & waits for number, those in self._members.items()})

    def heads(self, view: View, numbers: Floats, most: int) -> Ids:
        """Return the first `most` of each line, (n,); all who wait if they are few, or `most_lines` do not do."""
        if len(view.waiting) > FEW and self._do:
            found = self.waiting(view, numbers).first(most)
            if self._do:
                return np.concatenate((NOBODY, *found.values()))
        return np.asarray(view.waiting, dtype=np.int64)

    def _enter(self, arrived: Ids, numbers: Sequence[float]) -> None:
        self._known[arrived] = True
        for request, number in zip(arrived.tolist(), numbers, strict=True):
            self._members.setdefault(number, np.zeros_like(self._known))[request] = True
            self._do = self._do and len(self._members) <= self.most_lines
            if not self._do:
                self._members.clear()
                return
