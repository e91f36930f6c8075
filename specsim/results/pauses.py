"""Pauses between the emissions of a request: inter-token latencies of a run, and the longest of each request."""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from specsim.replica.request import Bools, Floats, Ids
from specsim.results.distribution import BLOCK, Distribution, Sketched


@dataclass(slots=True)
class _Heard:
    """Pauses of one replica: those not yet looked at, with the requests they belong to, and all others."""

    seconds: array[float] = field(default_factory=lambda: array("d"))
    owners: array[int] = field(default_factory=lambda: array("q"))
    settled: Distribution = field(default_factory=Distribution)


class Pauses:
    """Collect the pauses of every pass in blocks, each replica's by itself: replicas may report in any order.

    Parameters
    ----------
    requests : number of request ids, N.
    counted : (N,) whether a request's pauses count as inter-token latencies; None: all count.
    """

    def __init__(self, requests: int, counted: Bools | None) -> None:
        self._counted = counted
        self._heard: defaultdict[int, _Heard] = defaultdict(_Heard)
        self._longest_s = np.full(requests, -np.inf)

    def add(self, replica: int, requests: Ids, seconds: Floats) -> None:
        """Add the pauses of one pass, (m,) each: requests that emitted, and seconds since their previous emission.

        Of several passes, (passes, m) each or flat.
        """
        self._add(self._heard[replica], requests.tobytes(), seconds)

    def _add(self, heard: _Heard, owners: bytes, seconds: Floats) -> None:
        heard.owners.frombytes(owners)
        heard.seconds.frombytes(seconds.tobytes())
        if len(heard.seconds) >= BLOCK:
            self._settle(heard)

    def repeat(self, replica: int, requests: Ids, seconds: Floats) -> None:
        """Add passes in which each of these requests (m,) emitted, these seconds (passes,) behind the pass before."""
        heard, everybody, rows = self._heard[replica], requests.tobytes(), len(requests)
        while len(seconds):
            passes = -(-(BLOCK - len(heard.seconds)) // rows)
            some, seconds = seconds[:passes], seconds[passes:]
            self._add(heard, everybody * len(some), some.repeat(rows))

    @property
    def latencies_s(self) -> Floats | Sketched:
        """The inter-token latencies, replica by replica in the order of passes; see `Distribution.result`."""
        every = Distribution()
        for replica in sorted(self._heard):
            self._settle(self._heard[replica])
            every.merge(self._heard[replica].settled)
        return every.result

    @property
    def longest_s(self) -> Floats:
        """The longest pause of each request, (N,) seconds; NaN with fewer than two emissions."""
        for heard in self._heard.values():
            self._settle(heard)
        return np.where(self._longest_s >= 0, self._longest_s, np.nan)

    def _settle(self, heard: _Heard) -> None:
        seconds, owners = np.array(heard.seconds, dtype=np.float64), np.array(heard.owners, dtype=np.int64)
        heard.seconds, heard.owners = array("d"), array("q")
        np.maximum.at(self._longest_s, owners, seconds)
        heard.settled.add(seconds if self._counted is None else seconds[self._counted[owners]])
