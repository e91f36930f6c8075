"""The requests on one replica: waiting without cache slots, running with them, and those that a pass may name."""

from __future__ import annotations

import numpy as np
from sortedcontainers import SortedList

from specsim.errors import IllegalPass
from specsim.replica.request import Bools, Ids, Places

SPARSE = 64
"""How many places of an array are looked at in the time in which one request is taken from a sorted list."""


class Roster:
    """Request ids of one replica that have arrived and not ended.

    Parameters
    ----------
    at, admitted, seat : (N,) as in `specsim.replica.state.Rows`. place : index of this replica.

    Attributes
    ----------
    ended : number of requests that have ended here.
    waiting : in order of arrival, which is that of ids.
    """

    def __init__(self, at: Places, admitted: Bools, seat: Ids, place: int) -> None:
        self.ended = 0
        self.waiting: SortedList[int] = SortedList()
        self._running: dict[int, None] = {}
        self._running_ids: Ids | None = None
        self._at, self._place = at, place
        self._admitted, self._seat = admitted, seat
        self._checked = b""

    @property
    def running(self) -> Ids:
        """Requests that hold cache, in order of admission; the array must not be written to."""
        if self._running_ids is None:
            self._running_ids = np.fromiter(self._running, dtype=np.int64, count=len(self._running))
            self._running_ids.flags.writeable = False
        return self._running_ids

    @property
    def waiting_ids(self) -> Ids:
        """Requests without cache, in order of arrival, which is that of ids."""
        count = len(self.waiting)
        if not count:
            return np.zeros(0, dtype=np.int64)
        first, end = self.waiting[0], self.waiting[-1] + 1
        if end - first > SPARSE * count:
            return np.fromiter(self.waiting, dtype=np.int64, count=count)
        ids: Ids = first + np.flatnonzero(self.waits(slice(first, end)))
        return ids

    @property
    def ids(self) -> Ids:
        """Requests that wait or run."""
        return np.concatenate((self.waiting_ids, self.running))

    @property
    def live(self) -> int:
        """Number of requests that wait or run."""
        return len(self.waiting) + len(self._running)

    def enter(self, request: int) -> None:
        """Let an arrived request wait."""
        self._at[request] = self._place
        self.waiting.add(request)

    def admit(self, ids: Ids) -> None:
        """Make residents of those among `ids` (n,) that wait."""
        new = ids[~self._admitted[ids]]
        if len(new):
            self._admitted[new] = True
            self._running_ids = None
            for request in new.tolist():
                self.waiting.remove(request)
                self._running[request] = None

    def end(self, ids: Ids) -> None:
        """Strike residents off for good."""
        self._leave(ids)
        self._at[ids] = -1
        self.ended += len(ids)

    def strike(self, request: int) -> None:
        """Strike somebody off for good who waits or runs."""
        if self._admitted[request]:
            self._leave(np.array([request]))
        else:
            self.waiting.remove(request)
        self._at[request] = -1

    def evict(self, ids: Ids, running: Ids) -> None:
        """Send residents that are not `running` back to the waiting.

        Raises
        ------
        IllegalPass
            When an id is unknown, doubled, running or not resident.
        """
        stays = self._why_not_evicted(ids, running)
        if stays:
            raise IllegalPass(f"only a request that holds cache and does not run in the pass can be evicted: {stays}")
        self._leave(ids)
        self.waiting.update(ids.tolist())

    def check(self, ids: Ids) -> None:
        """Refuse rows of a pass that are doubled or have no request.

        Raises
        ------
        IllegalPass
            One line that names the first such request.
        """
        rows = ids.tobytes()
        if rows == self._checked:
            return  # Most passes have the rows of the one before.
        if ids.min() < 0 or ids.max() >= len(self._at):
            raise IllegalPass(f"a pass names request {_outside(ids, len(self._at))}, which does not exist")
        seats = np.arange(len(ids))
        self._seat[ids] = seats
        doubled = self._seat[ids] != seats
        if np.count_nonzero(doubled):
            raise IllegalPass(f"a pass names request {ids[doubled][0]} twice")
        self._checked = rows

    def here(self, ids: Ids) -> Bools:
        """Return which of `ids` (n,) have arrived and not ended."""
        here: Bools = self._at[ids] == self._place
        return here

    def waits(self, ids: Ids | slice) -> Bools:
        """Return which of `ids` (n,) are here and hold no cache."""
        waits: Bools = (self._at[ids] == self._place) & ~self._admitted[ids]
        return waits

    def absent(self, ids: Ids) -> Ids:
        """Return those of `ids` (n,) that have not arrived, have finished or were rejected."""
        here = self._at[ids] == self._place
        return ids[:0] if np.count_nonzero(here) == len(ids) else ids[~here]

    def _why_not_evicted(self, ids: Ids, running: Ids) -> str:
        """Return which request stands in the way, and how; empty where none does."""
        if ids.min() < 0 or ids.max() >= len(self._at):
            return f"there is no request {_outside(ids, len(self._at))}"
        names, counts = np.unique(ids, return_counts=True)
        for wrong, what in (
            (names[counts > 1], "is named twice"),
            (names[~(self.here(names) & self._admitted[names])], "holds none"),
            (names[np.isin(names, running)], "runs in it"),
        ):
            if len(wrong):
                return f"request {wrong[0]} {what}"
        return ""

    def _leave(self, ids: Ids) -> None:
        for request in ids.tolist():
            del self._running[request]
        self._running_ids = None
        self._admitted[ids] = False


def _outside(ids: Ids, size: int) -> int:
    """Return the first of `ids` that is no index below `size`."""
    return int(ids[(ids < 0) | (ids >= size)][0])
