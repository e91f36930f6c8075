"""One run from typed parts: requests and world in, rows out. Knows nothing of files or configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import simpy

from specsim.engine import Replica, arrivals
from specsim.errors import SpecsimError
from specsim.forest import Forest
from specsim.ledger import Ledger
from specsim.memory import Memory
from specsim.metrics.pauses import Pauses
from specsim.metrics.recorder import Recorder
from specsim.metrics.schema import RequestColumns, RunTotals
from specsim.metrics.window import Window, counts
from specsim.protocols import Belief, Scheduler
from specsim.request import LONGEST_S, Requests
from specsim.view import LedgerView
from specsim.work import Pass, Verify
from specsim.world.backend import SimulatedBackend, World

Progress = Callable[[int], None]
"""Called now and then with the number of requests that have ended so far."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """Everything a run needs.

    Attributes
    ----------
    requests : what is told at arrival. world : what only the future knows.
    truth, belief : the latency that passes take, and the latency that schedulers believe in.
    memory : key-value pool of each replica.
    scheduler : makes a fresh scheduler for a replica.
    selection_s, selection_token_s : seconds that a scheduler thinks, and seconds more per candidate token, before it
        verifies another forest than the one it was last drafted.
    host_bytes_per_s : how fast a replica's cache moves to the host and back, where a scheduler preempts by transfer.
    replicas : servers; requests are dealt to them round robin.
    keep_passes : keep one row per pass.
    window : seconds of arrival of the requests whose inter-token latencies are kept; None keeps all.
    """

    requests: Requests
    world: World
    truth: Belief
    belief: Belief
    memory: Memory
    scheduler: Callable[[], Scheduler]
    selection_s: float = 0.0
    selection_token_s: float = 0.0
    host_bytes_per_s: float = float("inf")
    replicas: int = 1
    keep_passes: bool = False
    window: Window | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """What a run leaves: a row per request, totals, on request a row per pass."""

    columns: RequestColumns
    totals: RunTotals
    passes: dict[str, npt.NDArray[Any]] | None


def run(simulation: Simulation, progress: Progress | None = None) -> Record:
    """Simulate until every request has ended; `progress` hears how many have.

    Raises
    ------
    specsim.errors.IllegalPass, specsim.engine.Stalled
        When the scheduler is at fault.
    SpecsimError
        When the run lasts longer than its clock can tell.
    """
    env = simpy.Environment()
    replicas: list[Replica] = []
    requests, window = simulation.requests, simulation.window
    pauses = Pauses(len(requests), None if window is None else counts(window, requests.arrival_s))
    recorder = Recorder(
        simulation.keep_passes, simulation.truth, lambda name: len(replicas[name].ledger.roster.waiting), pauses
    )
    replicas += [_replica(env, name, simulation, recorder) for name in range(simulation.replicas)]
    for replica in replicas:
        env.process(replica.serve())
    env.process(arrivals(env, requests, replicas, lambda request: request % len(replicas)))
    if progress is not None:
        recorder.watch = lambda: progress(sum(each.ledger.finished + len(each.ledger.rejected) for each in replicas))
    env.run()
    if progress is not None:
        progress(len(requests))
    return _record(simulation, [replica.ledger for replica in replicas], recorder, pauses)


def _replica(env: simpy.Environment, name: int, simulation: Simulation, recorder: Recorder) -> Replica:
    ledger = Ledger(len(simulation.requests), simulation.memory, simulation.truth.draft.cached)
    view = LedgerView(ledger, simulation.belief)
    backend = SimulatedBackend(simulation.world, simulation.truth, view, simulation.host_bytes_per_s)

    def thinking(work: Pass, basis: Any) -> float:
        if not isinstance(work, Verify) or not isinstance(basis, Forest) or work.forest is basis:
            return 0.0
        return simulation.selection_s + simulation.selection_token_s * basis.draft_nodes

    scheduler = simulation.scheduler()
    if hasattr(scheduler, "foresee"):
        scheduler.foresee(backend)
    return Replica(env, name, ledger, view, scheduler, backend, thinking, recorder.book)


def _record(simulation: Simulation, ledgers: list[Ledger], recorder: Recorder, pauses: Pauses) -> Record:
    told, n = simulation.requests, len(simulation.requests)

    def over_replicas(name: str) -> Any:
        merged = getattr(ledgers[0].progress, name).copy()
        for index, ledger in enumerate(ledgers):
            merged[index :: len(ledgers)] = getattr(ledger.progress, name)[index :: len(ledgers)]
        return merged

    reasons = {request: why for ledger in ledgers for request, why in ledger.rejected.items()}
    names = ("", *sorted(set(reasons.values())))
    codes = np.zeros(n, dtype=np.int64)
    for request, why in reasons.items():
        codes[request] = names.index(why)
    emitted, finish_s = over_replicas("emitted_tokens"), over_replicas("finish_s")
    columns = RequestColumns(
        request_id=np.arange(n),
        slo_class=told.slo_class,
        slo_class_names=told.class_names,
        arrival_s=told.arrival_s,
        first_token_s=over_replicas("first_token_s"),
        finish_s=finish_s,
        first_decode_s=over_replicas("first_decode_s"),
        prompt_tokens=told.prompt_tokens,
        output_tokens=emitted,
        draft_tokens=over_replicas("draft_tokens"),
        accepted_tokens=over_replicas("accepted_tokens"),
        verifications=over_replicas("verifications"),
        speculations=over_replicas("speculations"),
        preemptions=over_replicas("preemptions"),
        decoded_tokens=over_replicas("decoded_tokens"),
        longest_pause_s=pauses.longest_s,
        tpot_slo_s=told.tpot_slo_s,
        ttft_slo_s=told.ttft_slo_s,
        rejected_reason=codes,
        rejected_reason_names=names,
    )
    ended_s = finish_s[~np.isnan(finish_s)]
    duration_s = float(ended_s.max() - told.arrival_s[0]) if len(ended_s) else 0.0
    if duration_s > LONGEST_S:
        raise SpecsimError(
            f"the last request finishes after {duration_s:.3g} s; expected at most {LONGEST_S:.3g} s, up to which a "
            f"clock of float64 holds a microsecond: fewer requests, or a profile with shorter passes"
        )
    return Record(
        columns,
        recorder.totals(duration_s, len(ledgers), simulation.window),
        recorder.passes(),
    )
