"""LAPS-SD: Figure 1 exactly, queues, the stability window, Eq. 6, the order within a queue; LP-SJF."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import simpy

from specsim.cluster.clients import arrivals
from specsim.cluster.dispatch import Dispatch
from specsim.cluster.routers import RoundRobin
from specsim.core.passes import DraftPass, Emitted, TargetPass
from specsim.core.request import Floats, Ids, Ints
from specsim.core.user_code import begun
from specsim.pass_shape import PassShape
from specsim.schedulers.composed import Foreseeing
from specsim.schedulers.laps_sd import LapsQueues, ShortestPredicted
from specsim.schedulers.parts.queues import Seats
from specsim.schedulers.perception import AcceptanceMonitor, LengthPredictor
from specsim.schedulers.vllm_spec import FixedChains
from specsim.server.engine import Replica
from specsim.server.ledger import Ledger
from specsim.server.view import LedgerView
from tests.made import hardware, ledger_and_view, memory, requests
from tests.schedulers.test_perception import Known

ONE = Seats(1, 512, "mixed", 0.0, "keep")
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


def latencies_ms(scheduler: Foreseeing) -> Floats:
    told = requests([0.0] * 3, [1] * 3, [20] * 3)
    env = simpy.Environment()
    ledger = Ledger(3, memory(told))
    view = LedgerView(ledger, hardware())
    backend = Figure1(view)
    begun(scheduler, backend, 3)
    replica = Replica(env, 0, ledger, view, scheduler, backend, lambda work, basis: 0.0, Unbooked())
    env.process(replica.serve())
    env.process(arrivals(env, Dispatch([replica], RoundRobin(), told, np.arange(3))))
    env.run()
    return 1e3 * ledger.progress.finish_s


def laps(acceptance: AcceptanceMonitor | None = None, seats: Seats = ONE, queues: int = 1) -> Foreseeing:
    watch = acceptance or AcceptanceMonitor(5, 0.05)
    part = LapsQueues(seats, watch, LengthPredictor(0.0, 0), queues, 0.025, 2.0, "remaining")
    return Foreseeing(part, FixedChains(0))


def test_figure_1_first_come_first_served() -> None:
    """One queue in which nobody is perceptible is FCFS: 200, 700, 850 ms."""
    finish_ms = latencies_ms(laps())
    assert finish_ms == pytest.approx([200, 700, 850])
    assert finish_ms.mean() == pytest.approx(583.333, abs=1e-3)


def test_figure_1_shortest_output_first() -> None:
    finish_ms = latencies_ms(Foreseeing(ShortestPredicted(ONE, LengthPredictor(0.0, 0)), FixedChains(0)))
    assert finish_ms == pytest.approx([700, 500, 850])
    assert finish_ms.mean() == pytest.approx(683.333, abs=1e-3)


def test_figure_1_shortest_time_first() -> None:
    """Where the rates are known, Eq. 6 orders as the true times do: R3, R1, R2."""
    finish_ms = latencies_ms(laps(Told(5, 0.05)))
    assert finish_ms == pytest.approx([350, 850, 150])
    assert finish_ms.mean() == pytest.approx(450)


# --- queues -----------------------------------------------------------------------------------------------------------


def queues_of(
    monitor: AcceptanceMonitor | None = None, *, seats: Seats = ONE, estimate: Any = "remaining"
) -> LapsQueues:
    return LapsQueues(seats, monitor or AcceptanceMonitor(2, 0.1), LengthPredictor(0.0, 0), 4, 0.4, 2.0, estimate)


def test_the_order_of_algorithm_1() -> None:
    """By queue; the perceptible, shortest first; the others, first come; of those the one with a seat in front.

    A token is believed to take 20 ms: up to 4 lie in the first queue, of 0.1 s, and 30 in the last.
    """
    _, view = ledger_and_view(requests([0.0] * 7, [4] * 7, [30] * 7))
    part = queues_of()
    part.acceptance.begin(7)
    part.attained_s = np.array([0.0, 0.0, 9.0, 9.0, 0.0, 0.15, 9.0])
    part.acceptance.totals[:] = np.array([1, 0, 0, 0])[:, None]
    part.acceptance.rate[[2, 3, 6]] = 0.5
    part.lengths.foresee(Known(np.array([9, 9, 4, 3, 9, 9, 30])))
    part._seated = part._settled = np.zeros(7, dtype=np.bool_)
    assert part.order(view, np.arange(7)).tolist() == [3, 2, 0, 1, 4, 5, 6]
    part._seated, part._settled = np.isin(np.arange(7), [2, 4, 5]), np.zeros(7, dtype=np.bool_)
    assert part.order(view, np.arange(7)).tolist() == [3, 2, 4, 0, 1, 5, 6], "a seat counts among the others only"
    part._settled[6] = True
    assert part.order(view, np.arange(7)).tolist() == [6, 3, 2, 4, 0, 1, 5], "whoever is not preempted stays in front"
