"""The ceilings of LAPS-SD: rounds foreseen are the rounds that run, rates told are the text's, and both gain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simpy

from specsim.schedulers.laps_sd import ToldAcceptance
from specsim.server.state import SharedRows
from specsim.simulation import Simulation, _replica, run
from tests.golden.scene import scene
from tests.laws.subjects import factory_of


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
