"""Who is on one replica: who waits without cache slots, who is resident with them, whom a pass may name."""

from __future__ import annotations

import numpy as np
from sortedcontainers import SortedList

from specsim.errors import IllegalPass
from specsim.request import Ids


class Roster:
    """Request ids of one replica that have arrived and not ended.

    Parameters
    ----------
    size : number of request ids, N.
    """

    def __init__(self, size: int) -> None:
        self.waiting: SortedList[int] = SortedList()
        self._resident: dict[int, None] = {}
        self._resident_ids: Ids | None = None
        self._here = np.zeros(size, dtype=np.bool_)
        self._admitted = np.zeros(size, dtype=np.bool_)
        self._seat = np.zeros(size, dtype=np.int64)

    @property
    def resident(self) -> Ids:
        """Requests that hold cache, in order of admission; the array must not be written to."""
        if self._resident_ids is None:
            self._resident_ids = np.fromiter(self._resident, dtype=np.int64, count=len(self._resident))
            self._resident_ids.flags.writeable = False
        return self._resident_ids

    @property
    def live(self) -> int:
        """Number of requests that wait or are resident."""
        return len(self.waiting) + len(self._resident)

    def enter(self, request: int) -> None:
        """Let an arrived request wait."""
        self._here[request] = True
        self.waiting.add(request)

    def admit(self, ids: Ids) -> None:
        """Make residents of those among `ids` (n,) that wait."""
        new = ids[~self._admitted[ids]]
        if len(new):
            self._admitted[new] = True
            self._resident_ids = None
            for request in new.tolist():
                self.waiting.remove(request)
                self._resident[request] = None

    def end(self, ids: Ids) -> None:
        """Strike residents off for good."""
        self._leave(ids)
        self._here[ids] = False

    def evict(self, ids: Ids, running: Ids) -> None:
        """Send residents that are not `running` back to the waiting.

        Raises
        ------
        IllegalPass
            When an id is unknown, doubled, running or not resident.
        """
        known = ids.min() >= 0 and ids.max() < len(self._here) and len(np.unique(ids)) == len(ids)
        if not known or not self._admitted[ids].all() or np.isin(ids, running).any():
            raise IllegalPass("only a request that holds cache and does not run in the pass can be evicted")
        self._leave(ids)
        self.waiting.update(ids.tolist())

    def check(self, ids: Ids) -> None:
        """Refuse rows of a pass that are doubled or not here.

        Raises
        ------
        IllegalPass
            One line that says which of the two.
        """
        if ids.min() < 0 or ids.max() >= len(self._here):
            raise IllegalPass("a pass names a request that does not exist")
        seats = np.arange(len(ids))
        self._seat[ids] = seats
        if np.count_nonzero(self._seat[ids] != seats) or not np.count_nonzero(self._here[ids]) == len(ids):
            raise IllegalPass("a pass names a request twice, or one that has not arrived, has finished or was rejected")

    def _leave(self, ids: Ids) -> None:
        for request in ids.tolist():
            del self._resident[request]
        self._resident_ids = None
        self._admitted[ids] = False
