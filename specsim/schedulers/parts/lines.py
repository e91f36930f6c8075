"""The waiting requests in lines, one for each number that requests share: their tenant, or their objective.

Paper: none. In a line requests stand in order of arrival: its head is found without sorting or counting all who wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from specsim.replica.passes import NOBODY
from specsim.replica.protocols import View
from specsim.replica.request import Bools, Floats, Ids, Ints

HEAD = 16
"""Places of a line that are looked at for each request that is wanted, and the factor if they hold too few."""
SPARSE = 64
"""Ids for each request that waits, from which on those that wait are looked at one by one."""
FEW = 2000
"""So many requests are looked at sooner than they are kept in lines."""

Number = float | None
"""What requests of a line share; None stands for NaN."""
Heard = Callable[[Sequence[Any], set[Any]], None]
"""Hears the numbers of requests that have arrived, in order, and those of which others waited before."""


class Waiting(NamedTuple):
    """The waiting requests in their lines.

    Attributes
    ----------
    there : ids from the earliest to the latest that waits, or those that wait. lines : by number, whether each of these
        ids stands in its line.
    """

    there: slice | Ids
    lines: dict[Any, Bools]

    def first(self, most: int) -> dict[Any, Ids]:
        """Return the first requests of each line that is not empty, at most so many."""
        found = {number: _at(self.there, _first(marks, most)) for number, marks in self.lines.items()}
        return {number: ids for number, ids in found.items() if len(ids)}


def _at(there: slice | Ids, places: Ints) -> Ids:
    ids: Ids = there.start + places if isinstance(there, slice) else there[places]
    return ids


def _first(marks: Bools, most: int) -> Ints:
    """Return the first places that are marked, at most so many; of a long line mostly the head is looked at."""
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
    most_lines : the most lines that `heads` keeps; behind more numbers few requests would stand.
    """

    most_lines: float = float("inf")
    _do: bool = field(init=False, default=True)
    _known: Bools = field(init=False, repr=False)
    _members: dict[Any, Bools] = field(init=False, default_factory=dict)

    def begin(self, requests: int) -> None:
        """Make room for so many requests."""
        self._known = np.zeros(requests, dtype=np.bool_)

    def waiting(self, view: View, numbers: Ints | Floats, heard: Heard | None = None) -> Waiting:
        """Return who waits; `numbers` (N,) say in which line. `heard` is told of arrivals before they stand in one."""
        if not len(view.waiting):
            return Waiting(NOBODY, {})
        there: slice | Ids = slice(view.waiting[0], view.waiting[-1] + 1)
        if view.waiting[-1] - view.waiting[0] > SPARSE * len(view.waiting):
            there = np.asarray(view.waiting, dtype=np.int64)
        waits = view.waits(there)
        arrived = _at(there, np.flatnonzero(waits & ~self._known[there]))
        if len(arrived):
            told = [number if number == number else None for number in numbers[arrived].tolist()]
            if heard is not None:
                heard(told, {number for number, those in self._members.items() if (those[there] & waits).any()})
            self._enter(arrived, told)
        return Waiting(there, {number: those[there] & waits for number, those in self._members.items()})

    def heads(self, view: View, numbers: Floats, most: int) -> Ids:
        """Return the first `most` of each line, (n,); all who wait if they are few, or `most_lines` do not do."""
        if len(view.waiting) > FEW and self._do:
            found = self.waiting(view, numbers).first(most)
            if self._do:
                return np.concatenate((NOBODY, *found.values()))
        return np.asarray(view.waiting, dtype=np.int64)

    def _enter(self, arrived: Ids, numbers: Sequence[Number]) -> None:
        self._known[arrived] = True
        for request, number in zip(arrived.tolist(), numbers, strict=True):
            self._members.setdefault(number, np.zeros_like(self._known))[request] = True
            self._do = self._do and len(self._members) <= self.most_lines
            if not self._do:
                self._members.clear()
                return
