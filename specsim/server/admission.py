"""Arrival queue, request timeouts and admission control."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

import numpy as np

from specsim.core.protocols import CostModel
from specsim.core.request import Requests
from specsim.pass_shape import PassShape
from specsim.server.ledger import Ledger


class ArrivalQueue:
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
        """The waiting requests, in order of arrival."""
        return [request for _, request, _ in self._waiting]

    def queued(self, at_s: float) -> int:
        """Return how many of them were here by `at_s`."""
        return sum(entered_s <= at_s for entered_s, _, _ in self._waiting)

    def enter(self, request: int, told: Requests, now_s: float) -> None:
        """Take a request that arrives now."""
        self._waiting.append((now_s, request, told))

    def start(self, now_s: float) -> Iterator[tuple[float, int, Requests]]:
        """Yield whom the decision behind a step that starts now sees, as they entered, with the times; they leave."""
        decided_s = self._starts[0] if len(self._starts) == self._starts.maxlen else now_s
        self._starts.append(now_s)
        while self._waiting and self._waiting[0][0] <= decided_s:
            yield self._waiting.popleft()

    def started(self, starts_s: Sequence[float]) -> None:
        """Hear when steps started for which no client waited."""
        self._starts.extend(starts_s)

    @property
    def unseen_steps(self) -> int:
        """How many steps surely start before a decision sees who arrives in this one, this one included."""
        full = len(self._starts) == self._starts.maxlen
        return 1 + (len(self._starts) if full else 0)

    def idle(self) -> None:
        """Hear that the engine runs nothing: its next decision sees everybody."""
        self._starts.clear()


TIMEOUT = "timeout"
"""The reason of a request whose client gave up."""


RELATIVE_TOLERANCE = 1e-9
"""Of a timeout, as of an objective: what ends exactly in time has ended, whatever the rounding of a sum of passes."""


class RequestTimeouts:
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
        heappush(self._ends, (arrival_s + self._timeout_s * (1 + RELATIVE_TOLERANCE), request))

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
        """Return whether a request was rejected, went on or ended by then; else its client has given up."""
        if request in self._ledger.rejected or request in self._left:
            return True
        return bool(self._ledger.progress.finish_s[request] <= end_s)


WAITING, TTFT = "shed_waiting", "shed_ttft"
"""The reasons of requests that are refused since a replica has too much to do."""
CONTEXT_LENGTH = "context_length"
"""The reason of a request that is longer than the target's context."""


class AdmissionControl(NamedTuple):
    """When a replica refuses a request.

    Attributes
    ----------
    waiting : a request that meets so many that hold no cache is refused; None: however many.
    ttft : whether a request is refused that would miss its TTFT objective even if the target read, in one pass, all
        that is unread of the texts before it and its own prompt. Seconds are those of the cost model.
    """

    waiting: int | None = None
    ttft: bool = False

    def reason(
        self, request: int, told: Requests, ledger: Ledger, unseen: Sequence[int], cost_model: CostModel, now_s: float
    ) -> str | None:
        """Return why a request is refused that arrives now, None if it is not; `unseen` wait for the engine's door."""
        if self.waiting is not None and len(ledger.queues.waiting) + len(unseen) >= self.waiting:
            return WAITING
        left_s = float(told.ttft_slo_s[request] + told.arrival_s[request]) - now_s
        if not self.ttft:
            return None
        # One pass reads what is unread; a decoding request has read its text.
        here = np.concatenate((np.array(ledger.queues.waiting, dtype=np.int64), ledger.queues.running))
        new = np.array([*unseen, request], dtype=np.int64)
        cached = np.concatenate((ledger.progress.target_cached[here], told.cached_tokens[new]))
        lacks = np.concatenate((ledger.known(here), told.prompt_tokens[new])) - cached
        reading = (lacks > 1) | (np.arange(len(lacks)) == len(lacks) - 1)
        scheduled = lacks[reading]
        read = PassShape.of(cached[reading], scheduled, prefill_tokens=int(np.add.reduce(scheduled)))
        return TTFT if cost_model.target.seconds(read) > left_s else None
