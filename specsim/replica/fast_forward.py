"""Passes that nothing comes between, run at once: a batch that only decodes, or drafts chains of one length."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import simpy

from specsim.pass_shape import PassShape
from specsim.replica.audit import Audit
from specsim.replica.booking import Booking, Repeated, Speculated, in_turn
from specsim.replica.delays import single
from specsim.replica.ledger import Ledger
from specsim.replica.lobby import Lobby
from specsim.replica.passes import DraftPass, TargetPass
from specsim.replica.protocols import Repeating
from specsim.replica.request import Floats, Ids
from specsim.replica.stall import Headway
from specsim.replica.view import LedgerView

LEAST = 2
"""Fewer passes at once take longer than one by one."""
MOST = 128
"""More at once would save little more, and are mostly asked for in vain."""
Waiting = Generator[simpy.Event, Any, None]


class FastForward:
    """Run what a scheduler would `repeat` and what ends before the next event in one step of the clock.

    All that is booked is equal, to the last bit, to what the passes book one by one. `next_event_s` tells when at the
    earliest something may happen that a scheduler or a router sees. `lobby`, if any, is empty.
    """

    def __init__(
        self,
        env: simpy.Environment,
        name: int,
        ledger: Ledger,
        view: LedgerView,
        backend: Repeating,
        booking: Booking,
        audit: Audit,
        headway: Headway,
        lobby: Lobby | None,
        next_event_s: Callable[[], float],
    ) -> None:
        self._next_event_s = next_event_s
        self._env, self._name, self._ledger, self._view = env, name, ledger, view
        self._backend, self._booking, self._audit = backend, booking, audit
        self._headway, self._lobby = headway, lobby
        self._another_s = 0.0  # About when one more round would have ended: it is not worth asking for.

    def passes(self, work: TargetPass, shape: PassShape) -> Generator[simpy.Event, Any, PassShape]:
        """Run passes like this one, which is reserved, and reserve the next; return its shape.

        Each is followed by another of the same rows: none ends a request, wants memory that may not be there, or ends
        at the next event or behind it. Where that leaves too few, none runs.
        """
        ahead, next_s = self._ledger.ahead, self._next_event_s()
        most = min(ahead.passes(work, shape), MOST)
        if most < LEAST or self._ledger.drafted:
            return shape
        seconds = self._backend.repeated(work, shape, most)
        starts_s = self._starts_s(seconds)
        count = _before(next_s, starts_s)
        if count < LEAST:
            return shape
        seconds, starts_s = seconds[:count], starts_s[: count + 1]
        yield from self._wait(seconds, starts_s)
        self._audit.see_again(work, count)
        gaps = ahead.commit_passes(work, count, starts_s)
        self._move_on(seconds, starts_s[1:])
        self._booking.repeated(self._name, Repeated(starts_s, seconds, shape, gaps))
        return PassShape.decode(shape.context_tokens + count * shape.requests, shape.requests)

    def rounds(self, work: DraftPass) -> Generator[simpy.Event, Any, Ids | None]:
        """Run rounds, the first of which begins with this pass, which is not reserved; return who ended with the last.

        No other ends a request, and none wants memory that may not be there, or ends at the next event or behind it.
        Where that leaves too few, none runs, and the answer is None.
        """
        ahead, passes, next_s = self._ledger.ahead, work.depth + 1, self._next_event_s()
        if next_s <= self._another_s:
            return None
        most = min(ahead.rounds(work), MOST)
        rounds = self._backend.rounds(work, LEAST, most, next_s - self._env.now) if most >= LEAST else None
        if rounds is None:
            return None
        starts_s = self._starts_s(rounds.seconds.ravel())
        count = _before(next_s, starts_s) // passes
        if count < LEAST:
            return None
        rounds, starts_s = rounds.first(count), starts_s[: count * passes + 1]
        seconds, ends_s = rounds.seconds.ravel(), starts_s[::passes]
        self._another_s = 2 * ends_s[-1] - ends_s[-2]
        yield from self._wait(seconds, starts_s)
        self._audit.see_rounds(work, rounds, self._env.now)
        gaps = ahead.commit_rounds(work, rounds, ends_s)
        self._move_on(seconds, ends_s[1:-1])
        self._booking.speculated(self._name, Speculated(starts_s, rounds, gaps))
        return work.requests[rounds.finished]

    def _starts_s(self, seconds: Floats) -> Floats:
        """Return when passes of so many seconds (n,) start, and when the last ends, (n + 1,)."""
        starts_s = np.empty(len(seconds) + 1)
        starts_s[0], starts_s[1:] = self._env.now, seconds
        return np.add.accumulate(starts_s, out=starts_s)

    def _wait(self, seconds: Floats, starts_s: Floats) -> Waiting:
        """Let the clock move over passes as it would pass by pass."""
        delay_s = single(float(starts_s[0]), float(starts_s[-1]))
        for each in seconds.tolist() if delay_s is None else (delay_s,):
            yield self._env.timeout(each)

    def _move_on(self, seconds: Floats, steps_s: Floats) -> None:
        """Note the seconds (n,) of passes that have ended, and when steps started behind the first."""
        self._view.now_s = self._env.now
        self._view.forward_s = in_turn(self._view.forward_s, seconds)
        self._headway.passes += len(seconds)
        if self._lobby is not None:
            self._lobby.started(steps_s.tolist())


def _before(end_s: float, starts_s: Floats) -> int:
    """Return how many passes end before `end_s`, of those that start so, the end of the last behind them."""
    count = len(starts_s) - 1
    return count if starts_s[-1] < end_s else int(starts_s.searchsorted(end_s)) - 1
