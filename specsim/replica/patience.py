"""How long clients wait for a whole answer: when those of one replica give up."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from math import inf

from specsim.replica.ledger import Ledger

TIMEOUT = "timeout"
"""The reason of a request whose client gave up."""


class Patience:
    """The times by which requests of one replica must have ended, in order.

    Parameters
    ----------
    timeout_s : seconds from a request's arrival until its client gives up.
    ledger : of the replica.
    """

    def __init__(self, timeout_s: float, ledger: Ledger) -> None:
        self._timeout_s, self._ledger = timeout_s, ledger
        self._ends: deque[tuple[float, int]] = deque()

    def begin(self, request: int, arrival_s: float) -> None:
        """Note a request that is sent to the replica; none sent before it arrived later."""
        self._ends.append((arrival_s + self._timeout_s, request))

    def next_s(self) -> float:
        """Return when the next client gives up; infinite if none waits."""
        while self._ends and self._answered(*self._ends[0]):
            self._ends.popleft()
        return self._ends[0][0] if self._ends else inf

    def over(self, now_s: float) -> Iterator[int]:
        """Yield the requests that have not ended in time, of those that the scheduler knows; they are forgotten."""
        while self._ends and self._ends[0][0] <= now_s:
            end_s, request = self._ends[0]
            if not self._ledger.facts.prompt_tokens[request]:
                return  # The engine has not let it in yet, nor anybody behind it.
            self._ends.popleft()
            if not self._answered(end_s, request):
                yield request

    def _answered(self, end_s: float, request: int) -> bool:
        """Return whether a request was rejected, or ended by then: what ends later has been given up before."""
        return request in self._ledger.rejected or bool(self._ledger.progress.finish_s[request] <= end_s)
