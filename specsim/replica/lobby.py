"""Requests that have arrived and are not seen yet: an engine that decides steps ahead lets them in later."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from specsim.replica.request import Requests


class Lobby:
    """Requests between their arrival and the first decision that sees them, in order of arrival.

    Parameters
    ----------
    steps : how many steps the engine decides ahead, at least 1. With 1, as in vLLM's asynchronous scheduling, a step is
        decided when the one before it starts, so that it sees who had arrived by then. An idle engine sees everybody.
    """

    def __init__(self, steps: int) -> None:
        self._waiting: deque[tuple[float, int, Requests]] = deque()
        self._starts: deque[float] = deque(maxlen=steps)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def requests(self) -> list[int]:
        """Who waits, in order of arrival."""
        return [request for _, request, _ in self._waiting]

    def queued(self, at_s: float) -> int:
        """Return how many of them were here by `at_s`."""
        return sum(entered_s <= at_s for entered_s, _, _ in self._waiting)

    def enter(self, request: int, told: Requests, now_s: float) -> None:
        """Take a request that arrives now."""
        self._waiting.append((now_s, request, told))

    def start(self, now_s: float) -> Iterator[tuple[int, Requests]]:
        """Yield whom the decision behind a step that starts now sees, as they entered; they leave."""
        decided_s = self._starts[0] if len(self._starts) == self._starts.maxlen else now_s
        self._starts.append(now_s)
        while self._waiting and self._waiting[0][0] <= decided_s:
            _, request, told = self._waiting.popleft()
            yield request, told

    def started(self, starts_s: Sequence[float]) -> None:
        """Hear when steps started that nobody waited for."""
        self._starts.extend(starts_s)

    @property
    def unseen_steps(self) -> int:
        """How many steps surely start before a decision sees who arrives in this one, this one included."""
        full = len(self._starts) == self._starts.maxlen
        return 1 + (len(self._starts) if full else 0)

    def idle(self) -> None:
        """Hear that the engine runs nothing: its next decision sees everybody."""
        self._starts.clear()
