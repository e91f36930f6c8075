"""The event clock of one replica: ask the scheduler, run the pass, let its time go by, book it, repeat."""

from __future__ import annotations

from collections.abc import Callable, Generator
from math import nextafter
from typing import Any

import simpy
from simpy.events import URGENT

from specsim.errors import SpecsimError
from specsim.replica.audit import Audit
from specsim.replica.conversation import Conversation
from specsim.replica.ledger import Ledger
from specsim.replica.passes import DraftPass, Emitted, Pass, TargetPass
from specsim.replica.protocols import Backend, PassShape, Scheduler
from specsim.replica.request import Requests
from specsim.replica.stall import Headway, Stalled
from specsim.replica.trees import Forest
from specsim.replica.view import LedgerView

Thinking = Callable[[Pass, Any], float]
"""Seconds of the scheduler's own work before a pass, from the pass and the answer it was decided on."""
Booking = Callable[[int, float, float, float, Pass, PassShape, Any, Any], None]
"""Called per pass: replica, start, seconds, thinking seconds, pass, shape, answer, gaps (of a target pass)."""


class Replica:
    """One server: a ledger, a scheduler and a backend under one event clock.

    Parameters
    ----------
    env : simpy environment; the only thing that advances time.
    name : index of the replica.
    ledger, view, scheduler, backend : its state, the scheduler's face of it, the policy and the hardware.
    thinking : what the scheduler's own work costs. booking : told of every pass. audit : of all replicas.
    """

    def __init__(
        self,
        env: simpy.Environment,
        name: int,
        ledger: Ledger,
        view: LedgerView,
        scheduler: Scheduler,
        backend: Backend,
        thinking: Thinking,
        booking: Booking,
        audit: Audit,
    ) -> None:
        self.env, self.name = env, name
        self.ledger, self.view = ledger, view
        self.scheduler, self.backend = scheduler, backend
        self._thinking, self._booking = thinking, booking
        self._audit, self.headway = audit, Headway(ledger.progress)
        self._bell = env.event()
        self._closed = False

    def arrive(self, request: int, told: Requests) -> None:
        """Enter a request that arrives now and wake the replica if it sleeps."""
        self.ledger.arrive(request, told)
        self._ring()

    def close(self) -> None:
        """Say that no request will arrive any more."""
        self._closed = True
        self._ring()

    def _ring(self) -> None:
        if not self._bell.triggered:
            self._bell.succeed()

    def serve(self) -> Generator[simpy.Event, Any, None]:
        """Run until every request has ended and none can come (a simpy process).

        Raises
        ------
        IllegalPass
            When the scheduler asks for what no server could run.
        Stalled
            When it runs nothing although requests wait and none will arrive, or runs passes that bring nothing.
        """
        while self.ledger.roster.live or not self._closed:
            ran = False
            if self.ledger.roster.live:
                ran = yield from self._turn()
            if not ran:
                if self.ledger.roster.live and self._closed:
                    raise self._stalled(
                        f"runs nothing although {self.ledger.roster.live} requests wait and none will arrive"
                    )
                if not self._closed:
                    self._bell = self.env.event()
                    yield self._bell

    def _turn(self) -> Generator[simpy.Event, Any, bool]:
        """Hold one conversation with the scheduler; return whether it ran anything."""
        env, view, ledger = self.env, self.view, self.ledger
        view.now_s = env.now
        conversation = Conversation(self.scheduler, view)
        answer: Forest | Emitted | None = None
        ran = False
        while (work := conversation.ask(answer)) is not None:
            ran = True
            start_s, basis, gaps = env.now, answer, None
            try:
                shape, answer, seconds = self._answer(work)
            except SpecsimError as error:
                conversation.refuse(str(error))
            thinking_s = self._thinking(work, basis)
            moving_s = self.backend.move(work, shape) if shape.moved_bytes else 0.0
            yield env.timeout(thinking_s + (seconds + moving_s))
            if isinstance(work, DraftPass) and isinstance(answer, Forest):
                ledger.commit_draft(work, answer, start_s)
            elif isinstance(work, TargetPass) and isinstance(answer, Emitted):
                self._audit.see(work, shape, answer, env.now)
                gaps = ledger.commit_verify(work, answer, start_s, env.now)
            view.now_s = env.now
            view.forward_s += seconds
            self._booking(self.name, start_s, seconds + moving_s, thinking_s, work, shape, answer, gaps)
            if self.headway.passed():
                raise self._stalled(f"has run {self.headway.idle_passes:,} passes without a token or a longer cache")
        ledger.end_step()
        return ran

    def _stalled(self, what: str) -> Stalled:
        """Return the error that says who stalls, when, and what stands on the replica."""
        roster, pool = self.ledger.roster, self.ledger.pool
        preemptions = self.ledger.progress.preemptions
        most = int(preemptions.argmax())
        often = f"; request {most} was preempted {preemptions[most]:,} times" if preemptions[most] else ""
        return Stalled(
            f"scheduler {type(self.scheduler).__name__} at {self.env.now:g} s: {what}: "
            f"{len(roster.waiting)} without cache, {len(roster.resident)} with; {pool.room()}{often}"
        )

    def _answer(self, work: Pass) -> tuple[PassShape, Forest | Emitted, float]:
        """Take the slots of a pass; return its shape, what it will answer, and after how many seconds."""
        shape = self.ledger.reserve(work)
        if isinstance(work, DraftPass):
            return shape, *self.backend.draft(work, shape)
        return shape, *self.backend.verify(work, shape)


class Arrival(simpy.Event):
    """The moment at which requests arrive, or one rounding before it: first of all that happens then."""

    def __init__(self, env: simpy.Environment, arrival_s: float) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        delay_s = arrival_s - env.now
        if env.now + delay_s > arrival_s:
            delay_s = nextafter(delay_s, 0.0)
        env.schedule(self, URGENT, delay_s)


def arrivals(
    env: simpy.Environment, requests: Requests, replicas: list[Replica], route: Callable[[int], int]
) -> Generator[simpy.Event, Any, None]:
    """Deliver each request at its time to the replica that `route` names (a simpy process)."""
    for request, arrival_s in enumerate(requests.arrival_s.tolist()):
        while arrival_s > env.now:
            yield Arrival(env, arrival_s)
        replicas[route(request)].arrive(request, requests)
    for replica in replicas:
        replica.close()
