"""LAPS-SD: Figure 1 exactly, queues, the stability window, Eq. 6, what it is told; LP-SJF."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simpy

from specsim.core.request import Floats, Ids
from specsim.schedulers.composed import WithOracle
from specsim.schedulers.laps_sd import LapsQueues, ShortestPredicted
from specsim.schedulers.parts.queues import BatchSlots
from specsim.schedulers.perception import AcceptanceMonitor, LengthPredictor
from specsim.schedulers.vllm_spec import FixedChains
from specsim.server.state import SharedRows
from specsim.simulation import _replica, run
from tests.golden.scene import scene
from tests.laws.subjects import factory_of
from tests.made import hardware, ledger_and_view, one, requests
from tests.schedulers.test_specserve import chains
from tests.unit.hand import Hand

ONE = BatchSlots(1, 512, "mixed", 0.0, "keep")
OUTPUTS = np.array([10, 5, 12])
RATES = np.array([0.5, 0.1, 0.8])


class Told(AcceptanceMonitor):
    """A monitor to which every rate is known from the start, for chains of 4."""

    def begin(self, requests: int) -> None:
        AcceptanceMonitor.begin(self, requests)
        self.totals[:] = np.array([1, 4, 4, 0])[:, None]
        self.rate[:] = RATES


class Known:
    """Foresees these lengths."""

    def __init__(self, lengths: Any) -> None:
        self.lengths = np.asarray(lengths)

    def output_tokens(self, ids: Ids) -> Any:
        return self.lengths[ids]


def latencies_ms(scheduler: WithOracle) -> Floats:
    """Return when requests end of which a token takes 10 ms / acceptance rate, and whose outputs are foreseen."""
    scheduler.use_oracle(Known(OUTPUTS))
    hand, now_ms, finish_ms = Hand(scheduler, requests([0.0] * 3, [1] * 3, [20] * 3)), 0.0, np.zeros(3)
    while hand.ledger.queues.live:
        (request,) = hand.begin().requests
        now_ms += 10 / RATES[request]
        finish_ms[request] = now_ms
        hand.emit([1], ends=[0] if hand.view.emitted_tokens[request] + 1 == OUTPUTS[request] else [])
    return finish_ms


def laps(acceptance: AcceptanceMonitor) -> WithOracle:
    part = LapsQueues(ONE, acceptance, LengthPredictor(0.0, 0), 1, 0.025, 2.0, "remaining")
    return WithOracle(part, FixedChains(0))


@pytest.mark.parametrize(
    ("scheduler", "finish_ms", "mean_ms"),
    [
        (laps(AcceptanceMonitor(5, 0.05)), [200, 700, 850], 583.333),
        (WithOracle(ShortestPredicted(ONE, LengthPredictor(0.0, 0)), FixedChains(0)), [700, 500, 850], 683.333),
        (laps(Told(5, 0.05)), [350, 850, 150], 450),
    ],
    ids=["first come first served: none perceptible", "shortest output first", "rates known: shortest time first"],
)
def test_figure_1(scheduler, finish_ms, mean_ms):
    found_ms = latencies_ms(scheduler)
    assert (found_ms, found_ms.mean()) == (pytest.approx(finish_ms), pytest.approx(mean_ms, abs=1e-3))


def queues_of(estimate: Any = "remaining") -> LapsQueues:
    return LapsQueues(ONE, AcceptanceMonitor(2, 0.1), LengthPredictor(0.0, 0), 4, 0.4, 2.0, estimate)


def test_the_order_of_algorithm_1():
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


def hear(monitor: AcceptanceMonitor, accepted: list[int], drafted: int = 4) -> list[float]:
    """Let request 0 live through rounds of `drafted` tokens; return A_0 after each."""
    rates = []
    for right in accepted:
        monitor.on_verified(np.array([0]), chains([[0.9] * drafted]), np.array([right]))
        rates.append(float(monitor.rate[0]))
    return rates


def test_the_stability_window_by_hand():
    """Cumulative rates 1, 1/2, 1/2, 1/2: the last three lie together, and their mean is A."""
    monitor = AcceptanceMonitor(3, 0.1)
    monitor.begin(1)
    assert np.array_equal(hear(monitor, [4, 0, 2, 2]), [np.nan, np.nan, np.nan, 0.5], equal_nan=True)


@pytest.mark.parametrize(("estimate", "tokens"), [("total", 100), ("remaining", 60)])
def test_the_estimate_is_eq_6_of_what_is_believed(estimate, tokens):
    ledger, view = ledger_and_view(requests([0.0], [10], [200]))
    ledger.progress.emitted_tokens[0] = 40
    part = queues_of(estimate)
    part.acceptance.begin(1)
    hear(part.acceptance, [2, 2])
    part.lengths.use_oracle(Known([100]))
    cost_model = hardware()
    round_s = 4 * cost_model.draft.seconds(one(50, 1, 51)) + cost_model.target.seconds(one(50, 5, 255))
    assert part.service_s(view, np.array([0])) == pytest.approx(tokens / 3 * round_s)


def test_predicted_lengths():
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


def test_the_rounds_foreseen_are_the_verifications_that_run():
    simulated = replace(scene(room=100), scheduler=factory_of("vllm_spec", num_speculative_tokens=3))
    none, rows, done = None, SharedRows.of(len(simulated.requests)), run(simulated).progress
    fresh = _replica(simpy.Environment(), 0, simulated, none, none, rows, simulated.ground_truth)
    served = np.flatnonzero(done.emitted_tokens)
    assert np.array_equal(fresh.backend.rounds_left(served, 3), done.verifications[served])
    assert done.verifications[served].max() > 2
