"""How long clients wait for a whole answer: when those of one replica give up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import inf

from specsim.replica.ledger import Ledger

TIMEOUT = "timeout"
"""The reason of a request whose client gave up."""


class Patience:
    """The times by which requests of one replica must have ended.

    Parameters
    ----------
    timeout_s : seconds from a request's arrival until its client gives up.
    ledger : of the replica.
    """

    def __init__(self, timeout_s: float, ledger: Ledger) -> None:
        self._timeout_s, self._ledger = timeout_s, ledger
        self._ends: list[tuple[float, int]] = []
        self._left: set[int] = set()

    def begin(self, request: int, arrival_s: float) -> None:
        """Note a request that is sent to the replica; its client has waited since it arrived at any."""
        heappush(self._ends, (arrival_s + self._timeout_s, request))

    def leave(self, requests: Iterable[int]) -> None:
        """Note that requests have gone on to other replicas, whose business they are by now."""
        self._left.update(requests)

    def next_s(self) -> float:
        """Return when the next client gives up; infinite if none waits."""
        while self._ends and self._answered(*self._ends[0]):
            self._left.discard(heappop(self._ends)[1])
        return self._ends[0][0] if self._ends else inf

    def over(self, now_s: float) -> Iterator[int]:
        """Yield the requests that have not ended in time, of those that the scheduler knows; they are forgotten."""
        while self._ends and self._ends[0][0] <= now_s:
            end_s, request = self._ends[0]
            if not self._ledger.facts.prompt_tokens[request]:
                return  # The engine has not let it in yet, nor anybody behind it.
            heappop(self._ends)
            answered = self._answered(end_s, request)
            self._left.discard(request)
            if not answered:
                yield request

    def _answered(self, end_s: float, request: int) -> bool:
        """Return whether a request was rejected, went on or ended by then: what ends later has been given up before."""
        if request in self._ledger.rejected or request in self._left:
            return True
        return bool(self._ledger.progress.finish_s[request] <= end_s)
