"""One run from typed parts: requests and ground truth in, rows out. Knows nothing of files or configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import cast

import numpy as np
import simpy

from specsim.cluster.clients import Clients, Turns, arrivals
from specsim.cluster.dispatch import Dispatch
from specsim.cluster.routers import RoundRobin
from specsim.cluster.routing import Router
from specsim.cluster.split import Sending, SplitDispatch, Splitting
from specsim.core.protocols import Backend, CostModel, Observer, Oracle, Scheduler, View
from specsim.core.request import LONGEST_S, Bools, Floats, Ints, Prefixes, Requests
from specsim.core.user_code import begun, guarded
from specsim.errors import ObserverFault, SchedulerFault, SpecsimError, StepTooLong, represented
from specsim.kernels import compiled_loops
from specsim.metrics.recorder import Pauses, Record, Recorder
from specsim.metrics.requests import Window, counts
from specsim.metrics.summary import duration
from specsim.server.admission import AdmissionControl
from specsim.server.engine import Replica
from specsim.server.events import Observing, noted_by
from specsim.server.kv_cache import Memory
from specsim.server.ledger import Ledger
from specsim.server.planning import watchdog
from specsim.server.state import Hardware, Progress, SharedRows, over_pools
from specsim.server.view import LedgerView
from specsim.simulated_backend import GroundTruth, SimulatedBackend

Watcher = Callable[[int], None]
"""Called now and then with the number of requests that have ended so far."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """The inputs of a run.

    Attributes
    ----------
    requests : what is told at arrival. ground_truth : what only the future knows.
    truth, cost_model : the latency that passes take, and the latency that schedulers plan with.
    memory : key-value pool of each replica.
    scheduler : makes a fresh scheduler for a replica.
    selection_s, selection_token_s : seconds of the scheduler's own work before it verifies a forest that is not the one
        last drafted, and further seconds per candidate token.
    frontend_s : seconds from a request's arrival to its place in an engine's queue.
    pipeline_steps : steps that an engine decides before a step ends; see `specsim.server.admission.ArrivalQueue`.
    host_bytes_per_s : how fast a replica's cache moves to the host and back, where a scheduler preempts by transfer.
    concurrency : clients that each wait for their answer before they send their next request; None: each request comes
        at its `arrival_s`.
    turns : which requests follow an answer, and how long after it; None: each request is a session.
    replicas : servers. router : makes a fresh router of requests to them.
    hardware : what each replica runs on where they differ; empty: all run on `truth`, `cost_model`, `memory` and
        `host_bytes_per_s`.
    split : which replicas read prompts and how their caches move to the others; None: each replica does both.
    timeout_s : seconds from its arrival after which a request that has not ended is cancelled; None: clients wait.
    admission_control : which requests a replica refuses at their arrival; None: none that could ever fit.
    too_long : (N,) which requests are beyond the target's context and refused at their arrival; None: none is.
    sessions : (N,) what requests of one conversation share; None: each request is a session of its own.
    prefixes : of all prompts, whose blocks the servers that read them keep for others; None: no block is kept.
    keep_passes : keep one row per pass.
    window : seconds of arrival of the requests whose inter-token latencies are kept; None keeps all.
    multi_step : whether decoding passes, and rounds of chains of one length, run as one event where no arrival or end
        falls between them: the same run, sooner.
    step_limit_s : seconds of wall time within which a scheduler must come to its next pass, None for no limit.
    observers : each makes what sees every pass; decoding passes and rounds do not run at once then.
    backend : makes what answers the passes of a replica, from its view; None: it is simulated.
    """

    requests: Requests
    ground_truth: GroundTruth
    truth: CostModel
    cost_model: CostModel
    memory: Memory
    scheduler: Callable[[], Scheduler]
    selection_s: float = 0.0
    selection_token_s: float = 0.0
    frontend_s: float = 0.0
    pipeline_steps: int = 0
    trailing_steps: int = 0
    host_bytes_per_s: float = float("inf")
    concurrency: int | None = None
    turns: Turns | None = None
    replicas: int = 1
    router: Callable[[], Router] = RoundRobin
    hardware: Sequence[Hardware] = ()
    split: Splitting | None = None
    timeout_s: float | None = None
    admission_control: AdmissionControl | None = None
    too_long: Bools | None = None
    sessions: Ints | None = None
    prefixes: Prefixes | None = None
    keep_passes: bool = False
    window: Window | None = None
    step_limit_s: float | None = 60.0
    multi_step: bool = True
    observers: Sequence[Callable[[], Observer]] = ()
    backend: Callable[[View], Backend] | None = None

    def hardware_of(self, replica: int) -> Hardware:
        """Return what a replica runs on, by its index."""
        alike = Hardware(self.truth, self.cost_model, self.memory, self.host_bytes_per_s)
        return self.hardware[replica] if self.hardware else alike


def run(simulation: Simulation, watcher: Watcher | None = None) -> Record:
    """Simulate until every request has ended; `watcher` is told how many have.

    Raises
    ------
    specsim.errors.IllegalPass, specsim.server.planning.Livelock, specsim.errors.SchedulerFault
        When the scheduler is at fault.
    SpecsimError
        When the run lasts longer than its clock can tell.
    """
    env = simpy.Environment()
    replicas: list[Replica] = []

    def alive() -> tuple[int, float, int]:
        return len(replicas), env.now, sum(replica.livelock.passes for replica in replicas)

    compiled_loops()  # Before the clock of `step_limit_s` runs.
    try:
        with watchdog(alive, simulation.step_limit_s):
            return _run(simulation, env, replicas, watcher)
    except StepTooLong as error:
        names = {type(replica.scheduler).__name__ for replica in replicas} or {"that is made"}
        raise SchedulerFault(f"scheduler {', '.join(names)} at {env.now:g} s: {error}") from None


def _run(simulation: Simulation, env: simpy.Environment, replicas: list[Replica], watcher: Watcher | None) -> Record:
    requests, window = simulation.requests, simulation.window
    turns, waits = simulation.turns, np.full(len(requests), simulation.concurrency is not None)
    if turns is not None:
        waits |= ~np.isnan(turns.delay_s)
    if waits.any():
        requests = replace(requests, arrival_s=np.where(waits, np.nan, requests.arrival_s))
    pauses = Pauses(len(requests), None if window is None else counts(window, requests.arrival_s))
    hardware = [simulation.hardware_of(name) for name in range(simulation.replicas)]
    recorder = Recorder(
        simulation.keep_passes,
        [each.truth for each in hardware],
        lambda name, at_s: replicas[name].queued(at_s),
        pauses,
        lambda name: replicas[name].ledger.progress.emitted_tokens,
        len(requests),
    )
    prefill = simulation.split.prefill if simulation.split is not None else 0
    observers = [guarded(make, (), f"observers: {represented(make)}", ObserverFault) for make in simulation.observers]
    observing = Observing(observers, len(requests)) if observers else None
    rows = [SharedRows.of(len(requests), simulation.prefixes is not None) for _ in range(2 if prefill else 1)]
    reading = simulation.ground_truth.of_one_token() if prefill else simulation.ground_truth
    for name in range(simulation.replicas):
        made = (rows[0], reading) if name < prefill else (rows[-1], simulation.ground_truth)
        replicas.append(_replica(env, name, simulation, recorder, observing, *made))
    served = [env.process(replica.serve()) for replica in replicas]
    dispatch = _dispatch(env, simulation, requests, replicas, served)
    if waits.any():
        Clients(env, dispatch, simulation.frontend_s, simulation.concurrency, turns).start()
    else:
        env.process(arrivals(env, dispatch, simulation.frontend_s))
    if watcher is not None:
        recorder.watch = lambda: watcher(sum(each.ledger.finished + len(each.ledger.rejected) for each in replicas))
    env.run()
    if watcher is not None:
        watcher(len(requests))
    happened = rows[0].progress
    if prefill:
        happened = over_pools(happened, rows[1].progress, dispatch.replica_of >= prefill)
    noted = noted_by([replica.scheduler for replica in replicas], dispatch.replica_of)
    if observing is not None:
        noted = observing.noted(noted)
    return _record(simulation, dispatch, happened, recorder, pauses, noted, rows)


def _dispatch(
    env: simpy.Environment,
    simulation: Simulation,
    requests: Requests,
    replicas: list[Replica],
    served: list[simpy.Process],
) -> Sending:
    sessions = np.arange(len(requests)) if simulation.sessions is None else simulation.sessions
    split, router = simulation.split, simulation.router
    if split is None:
        return Dispatch(replicas, router(), requests, sessions, simulation.too_long)
    sent = split, router, requests, simulation.ground_truth.output_tokens, sessions, simulation.too_long
    return SplitDispatch(env, replicas, served[: split.prefill], *sent)


def _replica(
    env: simpy.Environment,
    name: int,
    simulation: Simulation,
    recorder: Recorder,
    observing: Observing | None,
    rows: SharedRows,
    ground_truth: GroundTruth,
) -> Replica:
    hardware = simulation.hardware_of(name)
    size, cached = len(simulation.requests), hardware.truth.draft.cached
    prefill = simulation.split.prefill if simulation.split is not None else 0
    prefixes = simulation.prefixes if name < prefill or not prefill else None
    ledger = Ledger(size, hardware.memory, cached, prefixes, rows, name)
    view = LedgerView(ledger, hardware.cost_model)
    simulated = SimulatedBackend(ground_truth, hardware.truth, view, hardware.host_bytes_per_s)
    backend = simulated if simulation.backend is None else simulation.backend(view)

    scheduler = simulation.scheduler()
    begun(scheduler, cast(Oracle, backend), size)
    return Replica(
        env,
        name,
        ledger,
        view,
        scheduler,
        backend,
        recorder,
        simulation.selection_s,
        simulation.selection_token_s,
        simulation.pipeline_steps,
        simulation.trailing_steps,
        simulation.multi_step,
        simulation.timeout_s,
        simulation.admission_control if name < prefill or not prefill else None,
        observing,
    )


def _moving_s(simulation: Simulation, replicas: Sequence[Replica], moved_bytes: Ints, replica_of: Ints) -> Floats:
    """Return the seconds in which each cache moved to the host and back, (N,), at its replica of a pool.

    They are at the rate of the host's link as it is given, or in the mean as measured.
    """
    rates = np.array([simulation.hardware_of(each.name).host_bytes_per_s for each in replicas])
    if simulation.backend is not None:
        moved = np.bincount(replica_of, moved_bytes, len(replicas))
        spent_s = np.array([each.moving_s for each in replicas])
        rates = np.divide(moved, spent_s, out=np.full(len(replicas), np.inf), where=spent_s > 0)
    seconds: Floats = moved_bytes / rates[replica_of]
    return seconds


def _record(
    simulation: Simulation,
    dispatch: Sending,
    happened: Progress,
    recorder: Recorder,
    pauses: Pauses,
    noted_of: Mapping[str, Floats],
    rows: Sequence[SharedRows],
) -> Record:
    told, replicas = dispatch.requests, dispatch.replicas
    moves = dispatch.moves if isinstance(dispatch, SplitDispatch) else None
    rejected = {request: why for each in replicas for request, why in each.ledger.rejected.items()}
    cancelled_s = {request: at_s for each in replicas for request, at_s in each.ledger.cancelled_s.items()}
    duration_s = duration(told.arrival_s, happened.finish_s, np.array([*cancelled_s.values()]))
    if duration_s > LONGEST_S:
        raise SpecsimError(
            f"the last request finishes after {duration_s:.3g} s; expected at most {LONGEST_S:.3g} s, up to which a "
            f"clock of float64 holds a microsecond: fewer requests, or a profile with shorter passes"
        )
    closed = simulation.concurrency is not None
    totals = recorder.totals(duration_s, len(replicas), simulation.window, simulation.concurrency)
    sent_to = [dispatch.replica_of] if moves is None else [moves.prefill_of, dispatch.replica_of]
    visits = zip(rows, sent_to, strict=True)
    moving_s = np.add.reduce([_moving_s(simulation, replicas, each.progress.moved_bytes, to) for each, to in visits])
    shared = [each.ledger.caches.prefix for each in replicas]
    totals = replace(
        totals,
        begun_by=None if closed or simulation.turns is None else simulation.turns.begun_by,
        moving_s=fsum(moving_s),
        prefix_queries=sum(each.queries for each in shared if each is not None),
        prefix_hits=sum(each.hits for each in shared if each is not None),
    )
    return Record(
        told,
        happened,
        pauses.longest_s,
        recorder.spent_s(dispatch.replica_of, happened.first_token_s, happened.finish_s),
        moving_s,
        noted_of,
        dispatch.replica_of,
        moves,
        rejected,
        cancelled_s if simulation.timeout_s is not None else None,
        totals,
        recorder.passes(),
        [each.ledger.pool.most_bytes for each in replicas],
        recorder.beyond_range,
        recorder.eager_s,
    )
