"""Laws of a closed loop, for every scheduler: who sends when, and what the trace's own times change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsim.cluster.routers import LeastTokens
from specsim.simulation import Simulation, run
from tests.laws.every import assert_same_record, drawn
from tests.laws.subjects import KINDS, NAMES

law = settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def closed(name: str, data: st.DataObject) -> Simulation:
    """Return a closed loop with room for every request alone."""
    simulated = drawn(name, data)
    capacity_bytes = 1000 * simulated.memory.capacity_bytes
    return replace(
        simulated,
        memory=replace(simulated.memory, capacity_bytes=capacity_bytes),
        concurrency=data.draw(st.integers(1, len(simulated.requests)), label="concurrency"),
        frontend_s=data.draw(st.sampled_from((0.0, 0.013)), label="frontend_s"),
        pipeline_steps=data.draw(st.sampled_from((0, 1)), label="pipeline_steps"),
        replicas=data.draw(st.sampled_from((1, 2)), label="replicas"),
        router=LeastTokens,
    )


@pytest.mark.parametrize("name", NAMES)
@law
@given(data=st.data())
def test_each_answer_sends_the_next_request(name: str, data: st.DataObject) -> None:
    """So as many requests as clients are under way until the trace ends."""
    simulated = closed(name, data)
    record, clients = run(simulated), simulated.concurrency
    arrival_s, finish_s = record.requests.arrival_s, record.progress.finish_s
    assert not record.rejected
    assert not arrival_s[:clients].any()
    assert np.array_equal(arrival_s[clients:], np.sort(finish_s)[: len(arrival_s) - clients])
    assert_same_record(record, run(replace(simulated, multi_step=False)))


@pytest.mark.parametrize("name", KINDS)
@law
@given(data=st.data())
def test_the_times_of_the_trace_change_nothing(name: str, data: st.DataObject) -> None:
    simulated = closed(name, data)
    at_once = replace(simulated.requests, arrival_s=np.zeros(len(simulated.requests)))
    assert_same_record(run(simulated), run(replace(simulated, requests=at_once)))
