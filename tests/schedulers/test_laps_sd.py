"""LAPS-SD: Figure 1 exactly, queues, the stability window, Eq. 6, what it is told; LP-SJF."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simpy

from specsim.cluster.clients import arrivals
from specsim.cluster.dispatch import Dispatch
from specsim.cluster.routers import RoundRobin
from specsim.core.passes import DraftPass, Emitted, TargetPass
from specsim.core.request import Floats, Ids, Ints
from specsim.core.trees import Forest
from specsim.core.user_code import begun
from specsim.pass_shape import PassShape
from specsim.schedulers.composed import WithOracle
from specsim.schedulers.laps_sd import LapsQueues, ShortestPredicted
from specsim.schedulers.parts.queues import BatchSlots
from specsim.schedulers.perception import AcceptanceMonitor, LengthPredictor
from specsim.schedulers.vllm_spec import FixedChains
from specsim.server.engine import Replica
from specsim.server.ledger import Ledger
from specsim.server.state import SharedRows
from specsim.server.view import LedgerView
from specsim.simulation import Simulation, _replica, run
from tests.golden.scene import scene
from tests.laws.subjects import factory_of
from tests.made import grown, hardware, ledger_and_view, memory, one, requests

ONE = BatchSlots(1, 512, "mixed", 0.0, "keep")
OUTPUTS = np.array([10, 5, 12])
RATES = np.array([0.5, 0.1, 0.8])


class Figure1:
    """A backend at which a token of request i takes 10 ms / acceptance rate of i, and which foresees the outputs."""

    def __init__(self, view: LedgerView) -> None:
        self._view = view

    def draft(self, work: DraftPass, shape: PassShape) -> Any:
        raise AssertionError("nothing is drafted in Figure 1")

    def verify(self, work: TargetPass, shape: PassShape) -> tuple[Emitted, float]:
        (request,) = work.requests
        one, none = np.ones(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        last = self._view.emitted_tokens[work.requests] + 1 == OUTPUTS[request]
        return Emitted(one, none, none, last), 0.01 / float(RATES[request])

    def output_tokens(self, ids: Ids) -> Ints:
        return OUTPUTS[ids]

    def right(self, forest: Any) -> Any:
        raise AssertionError("nothing is drafted in Figure 1")


class Told(AcceptanceMonitor):
    """A monitor to which every rate is known from the start, for chains of 4."""

    def begin(self, requests: int) -> None:
        AcceptanceMonitor.begin(self, requests)
        self.totals[:] = np.array([1, 4, 4, 0])[:, None]
        self.rate[:] = RATES


class Unbooked:
    """Keeps no row of what has run."""

    def draft(self, *told: Any) -> None:
        return

    def verify(self, *told: Any) -> None:
        return


def latencies_ms(scheduler: WithOracle) -> Floats:
    told = requests([0.0] * 3, [1] * 3, [20] * 3)
    env = simpy.Environment()
    ledger = Ledger(3, memory(told))
    view = LedgerView(ledger, hardware())
    backend = Figure1(view)
    begun(scheduler, backend, 3)
    replica = Replica(env, 0, ledger, view, scheduler, backend, Unbooked())
    env.process(replica.serve())
    env.process(arrivals(env, Dispatch([replica], RoundRobin(), told, np.arange(3))))
    env.run()
    return 1e3 * ledger.progress.finish_s


def laps(acceptance: AcceptanceMonitor) -> WithOracle:
    part = LapsQueues(ONE, acceptance, LengthPredictor(0.0, 0), 1, 0.025, 2.0, "remaining")
    return WithOracle(part, FixedChains(0))


def test_figure_1_first_come_first_served() -> None:
    """One queue in which nobody is perceptible is FCFS: 200, 700, 850 ms."""
    finish_ms = latencies_ms(laps(AcceptanceMonitor(5, 0.05)))
    assert finish_ms == pytest.approx([200, 700, 850])
    assert finish_ms.mean() == pytest.approx(583.333, abs=1e-3)


def test_figure_1_shortest_output_first() -> None:
    finish_ms = latencies_ms(WithOracle(ShortestPredicted(ONE, LengthPredictor(0.0, 0)), FixedChains(0)))
    assert finish_ms == pytest.approx([700, 500, 850])
    assert finish_ms.mean() == pytest.approx(683.333, abs=1e-3)


def test_figure_1_shortest_time_first() -> None:
    """Where the rates are known, Eq. 6 orders as the true times do: R3, R1, R2."""
    finish_ms = latencies_ms(laps(Told(5, 0.05)))
    assert finish_ms == pytest.approx([350, 850, 150])
    assert finish_ms.mean() == pytest.approx(450)


# --- queues -----------------------------------------------------------------------------------------------------------


def queues_of(estimate: Any = "remaining") -> LapsQueues:
    return LapsQueues(ONE, AcceptanceMonitor(2, 0.1), LengthPredictor(0.0, 0), 4, 0.4, 2.0, estimate)


def test_the_order_of_algorithm_1() -> None:
    """By queue; the perceptible, shortest first; the others, first come; of those the one with a slot in front.

    A token is believed to take 20 ms: up to 4 lie in the first queue, of 0.1 s, and 30 in the last.
    """
    _, view = ledger_and_view(requests([0.0] * 7, [4] * 7, [30] * 7))
    part = queues_of()
    part.acceptance.begin(7)
    part.attained_s = np.array([0.0, 0.0, 9.0, 9.0, 0.0, 0.15, 9.0])
    part.acceptance.totals[:] = np.array([1, 0, 0, 0])[:, None]
    part.acceptance.rate[[2, 3, 6]] = 0.5
    part.lengths.use_oracle(Known(np.array([9, 9, 4, 3, 9, 9, 30])))
    part._in_slot = part._settled = np.zeros(7, dtype=np.bool_)
    assert part.order(view, np.arange(7)).tolist() == [3, 2, 0, 1, 4, 5, 6]
    part._in_slot, part._settled = np.isin(np.arange(7), [2, 4, 5]), np.zeros(7, dtype=np.bool_)
    assert part.order(view, np.arange(7)).tolist() == [3, 2, 4, 0, 1, 5, 6], "a slot counts among the others only"
    part._settled[6] = True
    assert part.order(view, np.arange(7)).tolist() == [6, 3, 2, 4, 0, 1, 5], "whoever is not preempted stays in front"


class Known:
    """Foresees these lengths."""

    def __init__(self, lengths: Any) -> None:
        self.lengths = np.asarray(lengths)

    def output_tokens(self, ids: Ids) -> Ints:
        found: Ints = self.lengths[ids]
        return found

    def right(self, forest: Any) -> Any:
        raise NotImplementedError


def hear(monitor: AcceptanceMonitor, accepted: list[int], drafted: int = 4) -> list[float]:
    """Let request 0 live through rounds of `drafted` tokens; return A_0 after each."""
    rates = []
    for right in accepted:
        forest = chain(drafted)
        monitor.hear(np.array([0]), forest, np.array([right]))
        rates.append(float(monitor.rate[0]))
    return rates


def chain(tokens: int) -> Any:
    forest = Forest.roots(1)
    for _ in range(tokens):
        forest = grown(forest, [len(forest) - 1], [0.9])
    return forest


def test_the_stability_window_by_hand() -> None:
    """Cumulative rates 1, 1/2, 1/2, 1/2: the last three lie together, and their mean is A."""
    monitor = AcceptanceMonitor(3, 0.1)
    monitor.begin(1)
    rates = hear(monitor, [4, 0, 2, 2])
    assert np.isnan(rates[:3]).all()
    assert rates[3] == 0.5


@pytest.mark.parametrize(("estimate", "tokens"), [("total", 100), ("remaining", 60)])
def test_the_estimate_is_eq_6_of_what_is_believed(estimate: Any, tokens: int) -> None:
    ledger, view = ledger_and_view(requests([0.0], [10], [200]))
    ledger.progress.emitted_tokens[0] = 40
    part = queues_of(estimate)
    part.acceptance.begin(1)
    hear(part.acceptance, [2, 2])

    part.lengths.use_oracle(Known([100]))
    cost_model = hardware()
    round_s = 4 * cost_model.draft.seconds(one(50, 1, 51)) + cost_model.target.seconds(one(50, 5, 255))
    assert part.service_s(view, np.array([0])) == pytest.approx(tokens / 3 * round_s)


def test_predicted_lengths() -> None:
    ids = np.arange(20_000)
    exact, noisy, other = LengthPredictor(0.0, 0), LengthPredictor(0.3, 0), LengthPredictor(0.3, 1)
    for each in (exact, noisy, other):
        each.use_oracle(Known(np.full(len(ids), 100)))
    assert (exact.tokens(ids) == 100).all()
    logs = np.log(noisy.tokens(ids) / 100)
    assert abs(logs.mean()) < 4 * 0.3 / np.sqrt(len(ids))
    assert logs.std() == pytest.approx(0.3, rel=0.03)
    assert np.array_equal(noisy.tokens(ids)[[7, 3]], noisy.tokens(np.array([7, 3]))), "luck belongs to the request"
    assert np.corrcoef(np.log(noisy.tokens(ids)), np.log(other.tokens(ids)))[0, 1] < 0.05


def backend_of(simulated: Simulation) -> Any:
    """Return the backend of a replica of which no request has begun."""
    none: Any = None
    rows = SharedRows.of(len(simulated.requests))
    return _replica(simpy.Environment(), 0, simulated, none, none, rows, simulated.ground_truth).backend


def test_the_rounds_foreseen_are_the_verifications_that_run() -> None:
    simulated = replace(scene(room=100), scheduler=factory_of("vllm_spec", num_speculative_tokens=3))
    there = np.arange(len(simulated.requests))
    done = run(simulated).progress
    served = there[done.emitted_tokens > 0]
    assert np.array_equal(backend_of(simulated).rounds_left(served, 3), done.verifications[served])
    assert done.verifications[served].max() > 2
