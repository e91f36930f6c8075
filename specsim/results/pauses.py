"""Pauses between the emissions of a request: inter-token latencies of a run, and the longest of each request."""

from __future__ import annotations

from array import array

import numpy as np

from specsim.replica.request import Bools, Floats, Ids
from specsim.results.distribution import BLOCK, Distribution, Sketched


class Pauses:
    """Collect the pauses of every pass, in blocks.

    Parameters
    ----------
    requests : number of request ids, N.
    counted : (N,) whether a request's pauses count as inter-token latencies; None: all count.
    """

    def __init__(self, requests: int, counted: Bools | None) -> None:
        self._counted = counted
        self._seconds, self._owners = array("d"), array("q")
        self._longest_s = np.full(requests, -np.inf)
        self._latencies_s = Distribution()

    def add(self, requests: Ids, seconds: Floats) -> None:
        """Add the pauses of one pass, (m,) each: requests that emitted, and seconds since their previous emission."""
        self._owners.frombytes(requests.tobytes())
        self._seconds.frombytes(seconds.tobytes())
        if len(self._seconds) >= BLOCK:
            self._settle()

    @property
    def latencies_s(self) -> Floats | Sketched:
        """The inter-token latencies in the order of passes; see `Distribution.result`."""
        self._settle()
        return self._latencies_s.result

    @property
    def longest_s(self) -> Floats:
        """The longest pause of each request, (N,) seconds; NaN with fewer than two emissions."""
        self._settle()
        return np.where(self._longest_s >= 0, self._longest_s, np.nan)

    def _settle(self) -> None:
        seconds, owners = np.array(self._seconds, dtype=np.float64), np.array(self._owners, dtype=np.int64)
        self._seconds, self._owners = array("d"), array("q")
        np.maximum.at(self._longest_s, owners, seconds)
        self._latencies_s.add(seconds if self._counted is None else seconds[self._counted[owners]])
