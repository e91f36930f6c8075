"""The event clock of one replica: ask the scheduler, run the pass, let its time go by, book it, repeat."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, cast

import numpy as np
import simpy

from specsim.core.passes import NOBODY, Decodes, DraftPass, Emitted, Pass, Rounds, TargetPass
from specsim.core.protocols import Backend, MultiStepBackend, Oracle, PassEvent, Scheduler, is_stationary
from specsim.core.request import Ids, Ints, Requests
from specsim.core.trees import Forest
from specsim.errors import ModelFault, ObserverFault, RouterFault, SpecsimError
from specsim.pass_shape import PassShape
from specsim.server.admission import TIMEOUT, AdmissionControl, ArrivalQueue, RequestTimeouts
from specsim.server.events import EventLog, Verification
from specsim.server.ledger import Ledger
from specsim.server.multi_step import Horizon, MultiStep
from specsim.server.planning import Conversation, Livelock, LivelockDetector, delays, possible
from specsim.server.view import LedgerView


class Replica:
    """One server: a ledger, a scheduler and a backend under one event clock.

    Parameters
    ----------
    env : simpy environment; the only thing that advances time.
    name : index of the replica.
    ledger, view, scheduler, backend : its state, the scheduler's face of it, the policy and the hardware.
    event_log : told of every pass.
    selection_s, selection_token_s : seconds of the scheduler's own work before it verifies a forest that is not the one
        last drafted, and further seconds per candidate token.
    pipeline_steps : how many steps are decided ahead; see `specsim.server.admission.ArrivalQueue`.
    trailing_steps : verifications that a request is in behind its last token; see `Trailing`.
    multi_step : whether passes between which no arrival or end falls run as one event, if the backend can tell them.
    timeout_s : seconds from its arrival after which a request that has not ended is cancelled, between two steps.
    admission_control : which requests are refused at their arrival.
    observed : called with each pass, behind `event_log`; each pass is then run by itself.

    `moving_s` are the seconds so far in which caches moved.
    `answered` is called with the requests (n,) that have just ended, where clients wait for them.
    `onward` is called with requests (n,) that have just ended here, and the tokens of each in the drafter's cache; it
    returns those that go on to another replica.
    `next_arrival_s` is when the next request arrives at any replica; None where unknown.
    `alone` says that no router looks at the ledger when a request arrives.
    """

    def __init__(
        self,
        env: simpy.Environment,
        name: int,
        ledger: Ledger,
        view: LedgerView,
        scheduler: Scheduler,
        backend: Backend,
        event_log: EventLog,
        selection_s: float = 0.0,
        selection_token_s: float = 0.0,
        pipeline_steps: int = 0,
        trailing_steps: int = 0,
        multi_step: bool = True,
        timeout_s: float | None = None,
        admission_control: AdmissionControl | None = None,
        observed: Callable[[PassEvent], None] | None = None,
    ) -> None:
        self.env, self.name = env, name
        self.ledger, self.view = ledger, view
        self.scheduler, self.backend = scheduler, backend
        self._event_log = event_log
        self._selection_s, self._selection_token_s = selection_s, selection_token_s
        self.livelock = LivelockDetector(ledger.progress, ledger.queues)
        self._arrival_queue = ArrivalQueue(pipeline_steps) if pipeline_steps else None
        self._trailing = Trailing(trailing_steps) if trailing_steps else None
        self._timeouts = None if timeout_s is None else RequestTimeouts(timeout_s, ledger)
        self._admission_control, self._observed = admission_control, observed
        self._multi_step: MultiStep | None = None
        if multi_step and observed is None and isinstance(backend, MultiStepBackend) and is_stationary(scheduler):
            told = event_log, self.livelock, self._arrival_queue
            self._multi_step = MultiStep(env, name, ledger, view, backend, *told)
        self.moving_s = 0.0
        self.answered: Callable[[Ids], None] | None = None
        self.onward: Callable[[Ids, Ints], Ids] | None = None
        self.next_arrival_s: float | None = None
        self.alone = False
        self._bell, self._closed = env.event(), False

    def arrive(self, request: int, told: Requests) -> None:
        """Enter a request that arrives now, unless it is shed, and wake the replica if it sleeps."""
        if self._admission_control is not None:
            unseen = self._arrival_queue.requests if self._arrival_queue is not None else ()
            met = self.ledger, unseen, self.view.cost_model, self.env.now
            reason = self._admission_control.reason(request, told, *met)
            if reason is not None:
                self.refuse(request, told, reason)
                return
        if self._timeouts is not None:
            self._timeouts.begin(request, float(told.arrival_s[request]))
        if self._arrival_queue is None:
            self._enter(self.env.now, request, told)
        else:
            self._arrival_queue.enter(request, told, self.env.now)
        self._ring()

    def _enter(self, entered_s: float, request: int, told: Requests) -> None:
        self.ledger.arrive(request, told, entered_s)
        if self.answered is not None and request in self.ledger.rejected:
            self.answered(np.array([request]))

    def refuse(self, request: int, told: Requests, reason: str) -> None:
        """Note that a request arrives now and is not let in."""
        self.ledger.refuse(request, told, reason)
        if self.answered is not None:
            self.answered(np.array([request]))

    def _cancel(self, timeouts: RequestTimeouts) -> None:
        """Cancel who has waited too long."""
        for request in timeouts.over(self.env.now):
            self.livelock.shrunk()
            if self.ledger.cancel(request, TIMEOUT, self.env.now) and self.answered is not None:
                self.answered(np.array([request]))

    def queued(self, at_s: float) -> int:
        """Return how many of the requests that wait were in the queue by `at_s`."""
        unseen = self._arrival_queue.queued(at_s) if self._arrival_queue is not None else 0
        return self.ledger.queues.queued(at_s) + unseen

    def _horizon(self) -> Horizon:
        """Return the next event from outside this replica; an arrival may concern the arrival queue alone."""
        event_s = self.env.peek() if self.next_arrival_s is None else self.next_arrival_s
        if self._timeouts is not None:
            return Horizon(min(event_s, self._timeouts.next_s()), 0)
        if (
            self._arrival_queue is None
            or self._admission_control is not None
            or self.next_arrival_s is None
            or not self.alone
        ):
            return Horizon(event_s, 0)
        return Horizon(event_s, self._arrival_queue.unseen_steps)

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
        Livelock
            When it runs nothing although requests wait and none will arrive, or runs passes that bring nothing.
        """
        while self.ledger.queues.live or self._arrival_queue or not self._closed:
            if self._arrival_queue is not None:
                if not self.ledger.queues.live:
                    self._arrival_queue.idle()
                for entered in self._arrival_queue.start(self.env.now):
                    self._enter(*entered)
            if self._timeouts is not None:
                self._cancel(self._timeouts)
            ran = False
            if self.ledger.queues.live:
                ran = yield from self._turn()
            if not ran:
                yield from self._rest()
        if self._timeouts is not None:
            self._cancel(self._timeouts)

    def _rest(self) -> Generator[simpy.Event, Any, None]:
        """Wait until a request arrives, its client gives up, or the news is that none will come."""
        live = self.ledger.queues.live
        if self._trailing is not None:
            self._trailing.idle()
        if self._arrival_queue:
            self._arrival_queue.idle()
        elif live and self._timeouts is not None:
            self._bell = self.env.event()
            yield self._bell | self.env.timeout(self._timeouts.next_s() - self.env.now)
        elif live and self._closed:
            raise self._livelock(f"runs nothing although {live} requests wait and none will arrive")
        elif not self._closed:
            self._bell = self.env.event()
            yield self._bell

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
            if self.livelock.lost():
                raise self._livelock(f"has run {self.livelock.idle_passes:,} passes without a token or a longer cache")
            if answer is None:
                conversation.end()
                break
        self.ledger.end_step()
        return ran

    def _draft(self, work: DraftPass) -> Generator[simpy.Event, Any, Forest]:
        """Run the passes of a draft, let their time go by and book them."""
        env, view, ledger, start_s = self.env, self.view, self.ledger, self.env.now
        shape = ledger.reserve(work)
        moving_s = self._moving_s(work, shape) if shape.moved_bytes else 0.0
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
        self._event_log.draft(self.name, start_s, seconds, work, drafted)
        if self._observed is not None:
            self._observed(PassEvent(self.name, start_s, view, work, drafted.forest, cast(Oracle, self.backend)))
        self.livelock.passes += len(seconds)
        return drafted.forest

    def _verify(self, work: TargetPass, basis: Forest | Emitted | None) -> Generator[simpy.Event, Any, Emitted]:
        """Run a verification that was decided on `basis`, let its time go by and book it."""
        env, view, ledger = self.env, self.view, self.ledger
        shape = ledger.reserve(work)
        start_s, moving_s = env.now, self._moving_s(work, shape) if shape.moved_bytes else 0.0
        timed = shape if self._trailing is None else self._trailing.joined(shape)
        answer, forward_s = self.backend.verify(work, timed)
        thinking_s, seconds = 0.0, forward_s + moving_s
        if isinstance(basis, Forest) and work.forest is not basis:
            thinking_s = self._selection_s + self._selection_token_s * basis.draft_nodes
        yield env.timeout(possible(thinking_s + seconds))
        drafted = ledger.progress.draft_cached[work.requests] if self.onward is not None else NOBODY
        gaps = ledger.commit_verify(work, answer, start_s, env.now)
        view.now_s = env.now
        view.forward_s += forward_s
        self._event_log.verify(self.name, Verification(start_s, thinking_s, seconds, work, shape, answer, gaps))
        if self._observed is not None:
            self._observed(PassEvent(self.name, start_s, view, work, answer, cast(Oracle, self.backend)))
        if self._trailing is not None:
            self._trail(self._trailing, work, answer, work.forest.tree_tokens())
        self.livelock.passes += 1
        if (self.answered is not None or len(drafted)) and np.count_nonzero(answer.finished):
            self._ended(work.requests[answer.finished], drafted[answer.finished] if len(drafted) else drafted)
        return answer

    def _trail(self, trailing: Trailing, work: Pass, ran: Emitted | Decodes | Rounds, nodes: Ints) -> None:
        """Keep the rows that have ended in the verifications behind their last token; `nodes` (n,) drafts of each."""
        ids = work.requests[ran.finished]
        trailing.leave(self.view.prompt_tokens[ids] + self.view.emitted_tokens[ids] - 1, nodes[ran.finished])

    def _ended(self, ids: Ids, drafted: Ints) -> None:
        """Send requests on that have just ended here, `drafted` (n,) tokens in the drafter's cache; or answer them."""
        going = self.onward(ids, drafted) if self.onward is not None else NOBODY
        self.ledger.finished -= len(going)
        if self._timeouts is not None:
            self._timeouts.leave(going.tolist())
        if self.answered is not None and len(ids) > len(going):
            self.answered(ids[~np.isin(ids, going)])

    def _at_once(self, work: Pass) -> Generator[simpy.Event, Any, Decodes | Rounds | None]:
        """Run at once what can be run so of the steps that begin with this pass; return what ran, None if nothing."""
        moves = self.ledger.pool.drafter_away != (isinstance(work, TargetPass) and work.drafter_away)
        if self._multi_step is None or self._arrival_queue or self._trailing or self.onward is not None or moves:
            return None
        if isinstance(work, DraftPass):
            ran: Decodes | Rounds | None = yield from self._multi_step.rounds(work, self._horizon())
        else:
            # An end changes no decision where all that run are in the pass, none waits, and no client does.
            queues, unshared = self.ledger.queues, self.ledger.caches.prefix is None
            everybody = len(work.requests) == len(queues.running) and self._trailing is None
            alone = everybody and not queues.waiting and self.answered is None and unshared
            ran = yield from self._multi_step.passes(work, alone, self._horizon())
        if ran is not None and self._trailing is not None:
            drafts = work.depth if isinstance(work, DraftPass) else 0
            self._trail(self._trailing, work, ran, np.full(len(work.requests), drafts))
        if ran is not None and self.answered is not None and np.count_nonzero(ran.finished):
            self.answered(work.requests[ran.finished])
        return ran

    def _moving_s(self, work: Pass, shape: PassShape) -> float:
        """Return the seconds in which caches leave for the host or come back before a pass."""
        seconds = self.backend.move(work, shape)
        self.moving_s += seconds
        return seconds

    def _livelock(self, what: str) -> Livelock:
        """Return the error: the scheduler, the simulated time, and the requests on the replica."""
        queues, pool = self.ledger.queues, self.ledger.pool
        live, preemptions = queues.ids, self.ledger.progress.preemptions
        most = int(live[preemptions[live].argmax()])
        often = f"; request {most} was preempted {preemptions[most]:,} times" if preemptions[most] else ""
        return Livelock(
            f"scheduler {type(self.scheduler).__name__} at {self.env.now:g} s: {what}: "
            f"{len(queues.waiting)} without cache, {len(queues.running)} with; {pool.room()}{often}"
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
