"""The event clock of one replica: ask the scheduler, run the pass, let its time go by, book it, repeat."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, cast

import numpy as np
import simpy

from specsim.core.passes import NOBODY, Decodes, DraftPass, Emitted, Pass, Rounds, TargetPass
from specsim.core.protocols import Backend, Foresight, PassEvent, Repeating, Scheduler, promises
from specsim.core.request import Ids, Ints, Requests
from specsim.core.trees import Forest
from specsim.errors import ModelFault, ObserverFault, RouterFault, SpecsimError
from specsim.pass_shape import PassShape
from specsim.server.admission import TIMEOUT, Lobby, Patience, Shedding
from specsim.server.events import Booking, Verification
from specsim.server.faults import Headway, Stalled
from specsim.server.ledger import Ledger
from specsim.server.multi_step import FastForward, Horizon
from specsim.server.planning import Conversation, delays, possible
from specsim.server.view import LedgerView

Thinking = Callable[[TargetPass, Any], float]
"""Returns the seconds of the scheduler's own work before a verification, from it and the last answer of the step."""


class Replica:
    """One server: a ledger, a scheduler and a backend under one event clock.

    Parameters
    ----------
    env : simpy environment; the only thing that advances time.
    name : index of the replica.
    ledger, view, scheduler, backend : its state, the scheduler's face of it, the policy and the hardware.
    thinking : what the scheduler's own work costs. booking : told of every pass.
    pipeline_steps : how many steps are decided ahead; see `specsim.server.admission.Lobby`.
    trailing_steps : verifications that a request is in behind its last token; see `Trailing`.
    fast_forward : whether passes and rounds that nothing comes between run at once, where the backend can tell them.
    timeout_s : seconds from its arrival after which a request that has not ended is cancelled, between two steps.
    shedding : which requests are refused at their arrival.
    observed : called with each pass, behind `booking`; no pass is fast-forwarded then.

    `moving_s` are the seconds so far in which caches moved.
    `answered` is called with the requests (n,) that have just ended, where clients wait for them.
    `onward` is called with requests (n,) that have just ended here, and the tokens of each in the drafter's cache; it
    returns those that go on to another replica.
    `next_arrival_s` is when the next request arrives at any replica; None where nobody knows.
    `alone` says that nobody looks at the ledger when a request arrives: no router has to choose.
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
        pipeline_steps: int = 0,
        trailing_steps: int = 0,
        fast_forward: bool = True,
        timeout_s: float | None = None,
        shedding: Shedding | None = None,
        observed: Callable[[PassEvent], None] | None = None,
    ) -> None:
        self.env, self.name = env, name
        self.ledger, self.view = ledger, view
        self.scheduler, self.backend = scheduler, backend
        self._thinking, self._booking = thinking, booking
        self.headway = Headway(ledger.progress, ledger.roster)
        self._lobby = Lobby(pipeline_steps) if pipeline_steps else None
        self._trailing = Trailing(trailing_steps) if trailing_steps else None
        self._patience = None if timeout_s is None else Patience(timeout_s, ledger)
        self._shedding, self._observed = shedding, observed
        self._fast: FastForward | None = None
        if fast_forward and observed is None and isinstance(backend, Repeating) and promises(scheduler):
            told = booking, self.headway, self._lobby
            self._fast = FastForward(env, name, ledger, view, backend, *told, self._horizon)
        self.moving_s = 0.0
        self.answered: Callable[[Ids], None] | None = None
        self.onward: Callable[[Ids, Ints], Ids] | None = None
        self.next_arrival_s: float | None = None
        self.alone = False
        self._bell, self._closed = env.event(), False

    def arrive(self, request: int, told: Requests) -> None:
        """Enter a request that arrives now, unless it is shed, and wake the replica if it sleeps."""
        if self._shedding is not None and self._sheds(self._shedding, request, told):
            return
        if self._patience is not None:
            self._patience.begin(request, float(told.arrival_s[request]))
        if self._lobby is None:
            self._enter(request, told)
        else:
            self._lobby.enter(request, told, self.env.now)
        self._ring()

    def _enter(self, request: int, told: Requests) -> None:
        self.ledger.arrive(request, told, self.env.now)
        if self.answered is not None and request in self.ledger.rejected:
            self.answered(np.array([request]))

    def _sheds(self, shedding: Shedding, request: int, told: Requests) -> bool:
        unseen = self._lobby.requests if self._lobby is not None else ()
        reason = shedding.reason(request, told, self.ledger, unseen, self.view.belief, self.env.now)
        if reason is not None:
            self.refuse(request, told, reason)
        return reason is not None

    def refuse(self, request: int, told: Requests, reason: str) -> None:
        """Note that a request arrives now and is not let in."""
        self.ledger.refuse(request, told, reason)
        if self.answered is not None:
            self.answered(np.array([request]))

    def _cancel(self) -> None:
        """Cancel who has waited too long."""
        for request in self._patience.over(self.env.now) if self._patience is not None else ():
            self.headway.shrunk()
            if self.ledger.cancel(request, TIMEOUT, self.env.now) and self.answered is not None:
                self.answered(np.array([request]))

    def queued(self, at_s: float) -> int:
        """Return how many of the requests that wait were in the queue by `at_s`."""
        return self.ledger.queued(at_s) + (self._lobby.queued(at_s) if self._lobby is not None else 0)

    def _horizon(self) -> Horizon:
        """Return what may happen that is not this replica's own doing; an arrival may be the lobby's business alone."""
        event_s = self.env.peek() if self.next_arrival_s is None else self.next_arrival_s
        if self._patience is not None:
            return Horizon(min(event_s, self._patience.next_s()), 0)
        if self._lobby is None or self._shedding is not None or self.next_arrival_s is None or not self.alone:
            return Horizon(event_s, 0)
        return Horizon(event_s, self._lobby.unseen_steps)

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
        while self.ledger.roster.live or self._lobby or not self._closed:
            if self._lobby is not None:
                self._let_in(self._lobby)
            self._cancel()
            ran = False
            if self.ledger.roster.live:
                ran = yield from self._turn()
            if not ran:
                yield from self._rest()
        self._cancel()

    def _rest(self) -> Generator[simpy.Event, Any, None]:
        """Wait until a request arrives, its client gives up, or the news is that none will come."""
        live = self.ledger.roster.live
        if self._trailing is not None:
            self._trailing.idle()
        if self._lobby:
            self._lobby.idle()
        elif live and self._patience is not None:
            self._bell = self.env.event()
            yield self._bell | self.env.timeout(self._patience.next_s() - self.env.now)
        elif live and self._closed:
            raise self._stalled(f"runs nothing although {live} requests wait and none will arrive")
        elif not self._closed:
            self._bell = self.env.event()
            yield self._bell

    def _let_in(self, lobby: Lobby) -> None:
        """Enter the requests that the next decision sees."""
        if not self.ledger.roster.live:
            lobby.idle()
        for request, told in lobby.start(self.env.now):
            self._enter(request, told)

    def _turn(self) -> Generator[simpy.Event, Any, bool]:
        """Hold one conversation with the scheduler; return whether it ran anything."""
        now_s = self.view.now_s = self.env.now
        conversation = Conversation(self.scheduler, self.view)
        answer: Forest | Emitted | None = None
        ran = False
        while (work := conversation.ask(answer)) is not None:
            try:
                at_once = (yield from self._at_once(work)) if work.stationary_until_s > now_s and not ran else None
                if isinstance(at_once, Decodes):
                    answer = None if at_once.shrinks else at_once.last()
                elif isinstance(work, DraftPass):
                    answer = (yield from self._draft(work)) if at_once is None else None
                else:
                    answer = yield from self._verify(work, answer)
            except (ModelFault, ObserverFault, RouterFault):
                raise  # Not the scheduler's doing: a request went on, or its client's next one followed.
            except SpecsimError as error:
                conversation.refuse(str(error))
            ran = True
            if self.headway.lost():
                raise self._stalled(f"has run {self.headway.idle_passes:,} passes without a token or a longer cache")
            if answer is None:
                conversation.end()
                break
        self.ledger.end_step()
        return ran

    def _draft(self, work: DraftPass) -> Generator[simpy.Event, Any, Forest]:
        """Run the passes of a draft, let their time go by and book them."""
        env, view, ledger, start_s = self.env, self.view, self.ledger, self.env.now
        shape = ledger.reserve(work)
        moving_s = self._moving_s(work, shape)
        drafted = self.backend.draft(work, shape)
        if len(drafted.extended):
            ledger.deepen(work, drafted)
        seconds = [level.seconds for level in drafted.levels]
        seconds[0] += moving_s
        for delay_s in delays(start_s, seconds):
            yield env.timeout(delay_s)
        ledger.commit_draft(work, drafted.forest, start_s)
        view.now_s = env.now
        for level in drafted.levels:
            view.forward_s += level.seconds
        self._booking.draft(self.name, start_s, seconds, work, drafted)
        self._show(start_s, work, drafted.forest)
        self.headway.passes += len(seconds)
        return drafted.forest

    def _verify(self, work: TargetPass, basis: Forest | Emitted | None) -> Generator[simpy.Event, Any, Emitted]:
        """Run a verification that was decided on `basis`, let its time go by and book it."""
        env, view, ledger = self.env, self.view, self.ledger
        shape = ledger.reserve(work)
        start_s, moving_s = env.now, self._moving_s(work, shape)
        timed = shape if self._trailing is None else self._trailing.joined(shape)
        answer, forward_s = self.backend.verify(work, timed)
        thinking_s, seconds = self._thinking(work, basis), forward_s + moving_s
        yield env.timeout(possible(thinking_s + seconds))
        drafted = ledger.progress.draft_cached[work.requests] if self.onward is not None else NOBODY
        gaps = ledger.commit_verify(work, answer, start_s, env.now)
        view.now_s = env.now
        view.forward_s += forward_s
        self._booking.verify(self.name, Verification(start_s, thinking_s, seconds, work, shape, answer, gaps))
        self._show(start_s, work, answer)
        if self._trailing is not None:
            self._trail(self._trailing, work, answer, work.forest.tree_tokens())
        self.headway.passes += 1
        if (self.answered is not None or len(drafted)) and np.count_nonzero(answer.finished):
            self._ended(work.requests[answer.finished], drafted[answer.finished] if len(drafted) else drafted)
        return answer

    def _trail(self, trailing: Trailing, work: Pass, ran: Emitted | Decodes | Rounds, nodes: Ints) -> None:
        """Keep the rows that have ended in the verifications behind their last token; `nodes` (n,) drafts of each."""
        ids = work.requests[ran.finished]
        trailing.leave(self.view.prompt_tokens[ids] + self.view.emitted_tokens[ids] - 1, nodes[ran.finished])

    def _show(self, start_s: float, work: Pass, answer: Forest | Emitted) -> None:
        if self._observed is not None:
            self._observed(PassEvent(self.name, start_s, self.view, work, answer, cast(Foresight, self.backend)))

    def _ended(self, ids: Ids, drafted: Ints) -> None:
        """Send requests on that have just ended here, `drafted` (n,) tokens in the drafter's cache; or answer them."""
        going = self.onward(ids, drafted) if self.onward is not None else NOBODY
        self.ledger.finished -= len(going)
        if self._patience is not None:
            self._patience.leave(going.tolist())
        if self.answered is not None and len(ids) > len(going):
            self.answered(ids[~np.isin(ids, going)])

    def _at_once(self, work: Pass) -> Generator[simpy.Event, Any, Decodes | Rounds | None]:
        """Run at once what can be run so of the steps that begin with this pass; return what ran, None if nothing."""
        moves = self.ledger.pool.drafter_away != (isinstance(work, TargetPass) and work.drafter_away)
        if self._fast is None or self._lobby or self._trailing or self.onward is not None or moves:
            return None
        ran = yield from self._fast.run(work, self._ends_alone(work))
        if ran is not None and self._trailing is not None:
            drafts = work.depth if isinstance(work, DraftPass) else 0
            self._trail(self._trailing, work, ran, np.full(len(work.requests), drafts))
        if ran is not None and self.answered is not None and np.count_nonzero(ran.finished):
            self.answered(work.requests[ran.finished])
        return ran

    def _ends_alone(self, work: Pass) -> bool:
        """Return whether an end changes no decision: all that run are in the pass, none waits, and no client does."""
        roster, unshared = self.ledger.roster, self.ledger.caches.prefix is None
        everybody = len(work.requests) == len(roster.running) and self._trailing is None
        return everybody and not roster.waiting and self.answered is None and unshared

    def _moving_s(self, work: Pass, shape: PassShape) -> float:
        """Return the seconds in which caches leave for the host or come back before a pass."""
        if not shape.moved_bytes:
            return 0.0
        seconds = self.backend.move(work, shape)
        self.moving_s += seconds
        return seconds

    def _stalled(self, what: str) -> Stalled:
        """Return the error that says who stalls, when, and what stands on the replica."""
        roster, pool = self.ledger.roster, self.ledger.pool
        live, preemptions = roster.ids, self.ledger.progress.preemptions
        most = int(live[preemptions[live].argmax()])
        often = f"; request {most} was preempted {preemptions[most]:,} times" if preemptions[most] else ""
        return Stalled(
            f"scheduler {type(self.scheduler).__name__} at {self.env.now:g} s: {what}: "
            f"{len(roster.waiting)} without cache, {len(roster.running)} with; {pool.room()}{often}"
        )


class Trailing:
    """Rows of requests that have ended, in so many further verifications beside the rows that go on.

    An engine that decides steps ahead finds an end when the next step is under way. The row's tokens and drafts take
    their time in it, and nothing of it is kept. An idle engine runs no such step here.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._rows: list[tuple[int, PassShape]] = []

    def __bool__(self) -> bool:
        return bool(self._rows)

    def leave(self, cached: Ints, nodes: Ints) -> None:
        """Keep rows that have ended with so many tokens in the cache, (n,), and as many drafts a step as `nodes`."""
        if len(cached):
            self._rows.append((self._steps, PassShape.of(cached, np.ones_like(cached), nodes)))

    def idle(self) -> None:
        """Drop the rows: the engine runs nothing."""
        self._rows = []

    def joined(self, shape: PassShape) -> PassShape:
        """Return the shape of a verification with the rows that are still in it, each once more."""
        for _, row in self._rows:
            shape = shape.plus(row)
        self._rows = [(steps - 1, row) for steps, row in self._rows if steps > 1]
        return shape
