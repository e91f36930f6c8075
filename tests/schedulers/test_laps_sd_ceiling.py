"""The ceilings of LAPS-SD: rounds foreseen are the rounds that run, rates told are the text's, and both gain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simpy

from specsim.api import simulate
from specsim.schedulers.laps_sd import ShortestRemaining, ToldAcceptance
from specsim.schedulers.parts.queues import Seats
from specsim.server.state import SharedRows
from specsim.simulation import Simulation, _replica, run
from tests.golden.scene import scene
from tests.laws.subjects import factory_of

AT_ONCE: dict[str, Any] = {
    "trace": "poisson",
    "rps": 1000,
    "requests": 20,
    "profile": "vicuna7b_68m_a100",
    "acceptance__categories__default__agreement": 0.47,
    "acceptance__categories__default__spread": 1.48,
}


def backend_of(simulated: Simulation) -> Any:
    """Return the backend of a replica of which no request has begun."""
    none: Any = None
    rows = SharedRows.of(len(simulated.requests))
    return _replica(simpy.Environment(), 0, simulated, none, none, rows, simulated.world).backend


def test_the_rounds_foreseen_are_the_verifications_that_run() -> None:
    simulated = replace(scene(room=100), scheduler=factory_of("vllm_spec", num_speculative_tokens=3))
    there = np.arange(len(simulated.requests))
    done = run(simulated).progress
    served = there[done.emitted_tokens > 0]
    assert np.array_equal(backend_of(simulated).rounds_left(served, 3), done.verifications[served])
    assert done.verifications[served].max() > 2


def test_told_rates_are_those_of_the_text() -> None:
    backend = backend_of(replace(scene(), scheduler=factory_of("vllm_spec")))
    tape = scene().world.tape
    right = tape.rank[tape.text_rows(np.array([3]))] == 0
    assert backend.agreement(np.array([3, 3])).tolist() == [right.mean()] * 2
    monitor = ToldAcceptance(2)
    monitor.foresee(backend)
    monitor.begin(4)
    assert monitor.rate[3] == pytest.approx((right.mean() + right.mean() ** 2) / 2)


@pytest.mark.parametrize("start", [lambda: ToldAcceptance(2).begin(3), lambda: shortest().rest_s(None, None)])  # type: ignore[arg-type]
def test_nothing_is_told_without_foresight(start: Any) -> None:
    with pytest.raises(ValueError, match="clairvoyant"):
        start()


def shortest() -> ShortestRemaining:
    return ShortestRemaining(Seats(1, 512, "mixed", 0.0, "keep"), 2)


def test_knowing_more_never_costs() -> None:
    """With free switches: true rests before told rates before lengths alone, over seeds."""
    mean_s = {
        name: np.mean([simulate(name, **AT_ONCE, seed=seed).metrics["mean_e2el_ms"] for seed in range(3)])
        for name in ("srpt", "laps_sd_told", "lp_sjf")
    }
    assert mean_s["srpt"] < mean_s["laps_sd_told"] < mean_s["lp_sjf"]
