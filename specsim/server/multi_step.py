"""Multi-step scheduling: passes between which no arrival, end or decision falls run as one event of the clock."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

import simpy

from specsim.core.passes import MOST_AT_ONCE, Decodes, DraftPass, Rounds, TargetPass
from specsim.core.protocols import MultiStepBackend
from specsim.core.request import Floats
from specsim.server.admission import ArrivalQueue
from specsim.server.events import DecodeSteps, EventLog, SpeculativeSteps, in_turn
from specsim.server.ledger import Ledger
from specsim.server.planning import LivelockDetector, check_rounds, single
from specsim.server.view import LedgerView

LEAST = 2
"""Fewer passes at once take longer than one by one."""
SimProcess = Generator[simpy.Event, Any, None]


class Horizon(NamedTuple):
    """Events that may come between the steps of a replica.

    Attributes
    ----------
    event_s : when at the earliest anything may happen that is not its own doing.
    unseen_steps : how many steps may end at that time or later before anybody sees what happened; see `ArrivalQueue`.
    """

    event_s: float
    unseen_steps: int

    def steps(self, starts_s: Floats, until_s: float) -> int:
        """Return how many steps that start so may run: those that end before the event, and the unseen ones.

        No step starts at `until_s` or later. `starts_s` (steps + 1,) has the end of the last behind it.
        """
        count = int(starts_s[:-1].searchsorted(until_s))
        if starts_s[-1] < self.event_s:
            return count
        return min(int(starts_s.searchsorted(self.event_s)) - 1 + self.unseen_steps, count)


class MultiStep:
    """Run the steps that a scheduler calls stationary and that end before the next event in one step of the clock.

    All that is booked is equal, to the last bit, to the passes booked one by one. `arrival_queue`, if any, is empty at
    first; requests that arrive meanwhile are in it at last.
    """

    def __init__(
        self,
        env: simpy.Environment,
        name: int,
        ledger: Ledger,
        view: LedgerView,
        backend: MultiStepBackend,
        event_log: EventLog,
        livelock: LivelockDetector,
        arrival_queue: ArrivalQueue | None,
    ) -> None:
        self._env, self._name, self._ledger, self._view = env, name, ledger, view
        self._backend, self._event_log = backend, event_log
        self._livelock, self._arrival_queue = livelock, arrival_queue
        self._another_s = 0.0  # About when one more round would have ended: it is not worth asking for.

    def passes(
        self, work: TargetPass, past_finishes: bool, horizon: Horizon
    ) -> Generator[simpy.Event, Any, Decodes | None]:
        """Run passes like this one, which is not reserved; return them.

        Only the last may end requests, unless they go on `past_finishes`. No pass wants memory that may not be there,
        and all are decided before anybody sees the next event and before the scheduler's own deadline. Where that
        leaves too few, none runs, and the answer is None.
        """
        ledger = self._ledger
        most = min(ledger.surely_passes(work), MOST_AT_ONCE)
        if most < LEAST:
            return None
        decodes = self._backend.decodes(work, most, past_finishes)
        starts_s = in_turn(self._env.now, decodes.seconds)
        count = horizon.steps(starts_s, work.stationary_until_s)
        if count < LEAST:
            return None
        decodes, starts_s = decodes.first(count), starts_s[: count + 1]
        yield from self._wait(decodes.seconds[:, None], starts_s)
        gaps = ledger.commit_passes(work.requests, decodes, starts_s)
        self._event_log.decode_steps(self._name, DecodeSteps(starts_s, decodes, gaps))
        return decodes

    def rounds(self, work: DraftPass, horizon: Horizon) -> Generator[simpy.Event, Any, Rounds | None]:
        """Run rounds, the first of which begins with this pass, which is not reserved; return them. See `passes`."""
        ledger, passes = self._ledger, work.depth + 1
        further, within_s = horizon.unseen_steps, horizon.event_s - self._env.now
        if further < LEAST and horizon.event_s <= self._another_s:
            return None
        most = min(ledger.surely_rounds(work), MOST_AT_ONCE)
        rounds = self._backend.rounds(work, LEAST, most, within_s, further) if most >= LEAST else None
        if rounds is None:
            return None
        starts_s = in_turn(self._env.now, rounds.seconds.ravel())
        count = horizon.steps(starts_s[::passes], work.stationary_until_s)
        if count < LEAST:
            return None
        rounds, starts_s = rounds.first(count), starts_s[: count * passes + 1]
        ends_s = starts_s[::passes]
        self._another_s = 2 * ends_s[-1] - ends_s[-2]
        yield from self._wait(rounds.seconds, starts_s)
        gaps = ledger.commit_rounds(work.requests, rounds, ends_s)
        self._event_log.speculative_steps(self._name, SpeculativeSteps(starts_s, rounds, gaps))
        return rounds

    def _wait(self, seconds: Floats, starts_s: Floats) -> SimProcess:
        """Let the clock move over rounds (n, passes) as it would pass by pass, and note that they have ended."""
        check_rounds(seconds, float(starts_s[-1]))
        delay_s, each_s = single(float(starts_s[0]), float(starts_s[-1])), seconds.ravel()
        for each in each_s.tolist() if delay_s is None else (delay_s,):
            yield self._env.timeout(each)
        self._view.now_s = self._env.now
        self._view.forward_s = float(in_turn(self._view.forward_s, each_s)[-1])
        self._livelock.passes += len(each_s)
        if self._arrival_queue is not None:
            self._arrival_queue.started(starts_s[:: seconds.shape[1]][1:-1].tolist())
