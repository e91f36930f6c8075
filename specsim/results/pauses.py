"""The pauses between a request's emissions: the inter-token latencies of a run, and each request's longest."""

from __future__ import annotations

from array import array

import numpy as np

from specsim.replica.request import Bools, Floats, Ids
from specsim.results.distribution import BLOCK, Distribution, Sketched


class Pauses:
    """Takes the gaps of every pass, some of them at a time.

    Parameters
    ----------
    requests : number of request ids, N.
    counted : (N,) whose pauses are inter-token latencies of the run; None: everybody's.
    """

    def __init__(self, requests: int, counted: Bools | None) -> None:
        self._counted = counted
        self._seconds, self._owners = array("d"), array("q")
        self._longest_s = np.full(requests, -np.inf)
        self._latencies_s = Distribution()

    def add(self, requests: Ids, seconds: Floats) -> None:
        """Add the gaps of one pass, (m,) each: who emitted, and how long after its previous emission."""
        self._owners.frombytes(requests.tobytes())
        self._seconds.frombytes(seconds.tobytes())
        if len(self._seconds) >= BLOCK:
            self._settle()

    @property
    def latencies_s(self) -> Floats | Sketched:
        """Inter-token latencies, in the order of passes; see `Distribution.result`."""
        self._settle()
        return self._latencies_s.result

    @property
    def longest_s(self) -> Floats:
        """Each request's longest gap between two emissions, (N,) seconds, NaN where there is none."""
        self._settle()
        return np.where(self._longest_s >= 0, self._longest_s, np.nan)

    def _settle(self) -> None:
        seconds, owners = np.array(self._seconds, dtype=np.float64), np.array(self._owners, dtype=np.int64)
        self._seconds, self._owners = array("d"), array("q")
        np.maximum.at(self._longest_s, owners, seconds)
        self._latencies_s.add(seconds if self._counted is None else seconds[self._counted[owners]])
