"""Passes of one kind that nothing comes between, run at once: a batch that only decodes."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import simpy

from specsim.pass_shape import PassShape
from specsim.replica.audit import Audit
from specsim.replica.booking import Booking, Repeated, in_turn
from specsim.replica.delays import single
from specsim.replica.ledger import Ledger
from specsim.replica.passes import TargetPass
from specsim.replica.protocols import Repeating
from specsim.replica.request import Floats
from specsim.replica.view import LedgerView

NEVER: Floats = np.zeros(0)
LEAST = 2
"""Fewer passes at once take longer than one by one."""
MOST = 128
"""More at once would save little more, and are mostly asked for in vain."""


class FastForward:
    """Run the passes of a `TargetPass.repeat` that end before the next event, all but one, in one step of the clock.

    All that is booked is equal, to the last bit, to what the passes book one by one. `next_event_s` tells when at the
    earliest something may happen that a scheduler or a router sees.
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
        next_event_s: Callable[[], float],
    ) -> None:
        self._next_event_s = next_event_s
        self._env, self._name, self._ledger, self._view = env, name, ledger, view
        self._backend, self._booking, self._audit = backend, booking, audit

    def run(self, work: TargetPass, shape: PassShape) -> Generator[simpy.Event, Any, Floats]:
        """Run passes like this one, which is reserved, and reserve the next; return their starts and that of the next.

        Each is followed by another of the same rows: none ends a request, wants memory that may not be there, or ends
        at the next event or behind it. Where that leaves too few, none runs, and nothing is returned.
        """
        env, ledger, view, start_s = self._env, self._ledger, self._view, self._env.now
        most, next_s = min(ledger.repeats(work, shape), MOST), self._next_event_s()
        if most < LEAST:
            return NEVER
        seconds = self._backend.repeated(work, shape, most)
        starts_s = np.empty(len(seconds) + 1)
        starts_s[0], starts_s[1:] = start_s, seconds
        np.add.accumulate(starts_s, out=starts_s)
        count = len(seconds)
        if starts_s[-1] >= next_s:
            count = int(starts_s.searchsorted(next_s)) - 1
        if count < LEAST:
            return NEVER
        seconds, starts_s = seconds[:count], starts_s[: count + 1]
        delay_s = single(start_s, float(starts_s[-1]))
        for each in seconds.tolist() if delay_s is None else (delay_s,):
            yield env.timeout(each)
        self._audit.see_again(work, count)
        gaps = ledger.commit_repeated(work, count, starts_s)
        view.now_s = env.now
        view.forward_s = in_turn(view.forward_s, seconds)
        self._booking.repeated(self._name, Repeated(starts_s, seconds, shape, gaps))
        return starts_s
