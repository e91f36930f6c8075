"""Laws of a closed loop and of sessions, for every scheduler: who sends when, and what the trace's own times change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsim.cluster.clients import Turns
from specsim.cluster.routers import Affinity, LeastTokens
from specsim.simulation import Simulation, run
from tests.laws.every import assert_same_record, drawn
from tests.laws.subjects import KINDS, NAMES

law = settings(max_examples=4, suppress_health_check=[HealthCheck.too_slow])


def roomy(simulated: Simulation, data: st.DataObject, **clients: Any) -> Simulation:
    """Return the simulation with these clients, and with room for every request alone."""
    ways = {"frontend_s": (0.0, 0.013), "pipeline_steps": (0, 1), "replicas": (1, 2)}
    chosen = {key: data.draw(st.sampled_from(values), label=key) for key, values in ways.items()}
    memory = replace(simulated.memory, capacity_bytes=1000 * simulated.memory.capacity_bytes)
    return replace(simulated, memory=memory, **chosen, **clients)


def closed(name: str, data: st.DataObject) -> Simulation:
    simulated = drawn(name, data)
    clients = data.draw(st.integers(1, len(simulated.requests)), label="concurrency")
    return roomy(simulated, data, concurrency=clients, router=LeastTokens)


def played(name: str, data: st.DataObject) -> Simulation:
    """Return sessions of up to four turns."""
    simulated, turns = drawn(name, data), data.draw(st.integers(1, 4), label="turns")
    n = len(simulated.requests)
    first = np.arange(n) % turns == 0
    delay_s = np.where(first, np.nan, data.draw(st.sampled_from((0.0, 0.02, 0.7)), label="delay_s"))
    then = np.where(np.append(first[1:], True), -1, np.arange(n) + 1)
    ways = {
        "concurrency": st.none() | st.integers(1, int(first.sum())),
        "router": st.sampled_from((Affinity, LeastTokens)),
    }
    clients = {key: data.draw(values, label=key) for key, values in ways.items()}
    return roomy(simulated, data, turns=Turns(then, delay_s), sessions=np.arange(n) // turns, **clients)


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


@pytest.mark.parametrize("name", KINDS)
@law
@given(data=st.data())
def test_the_times_of_the_trace_change_nothing(name: str, data: st.DataObject) -> None:
    simulated = closed(name, data)
    at_once = replace(simulated.requests, arrival_s=np.zeros(len(simulated.requests)))
    assert_same_record(run(simulated), run(replace(simulated, requests=at_once)))


@pytest.mark.parametrize("name", NAMES)
@settings(law, max_examples=2)
@given(data=st.data())
def test_each_turn_follows_the_answer_before_it(name: str, data: st.DataObject) -> None:
    """A session begins at its time, or when a client is free; its turns follow one another."""
    simulated = played(name, data)
    record, turns = run(simulated), simulated.turns
    arrival_s, finish_s = record.requests.arrival_s, record.progress.finish_s
    waits = np.flatnonzero(~np.isnan(turns.delay_s))
    assert np.array_equal(arrival_s[waits], finish_s[waits - 1] + turns.delay_s[waits])
    first = np.isnan(turns.delay_s)
    if simulated.concurrency is None:
        assert np.array_equal(arrival_s[first], simulated.requests.arrival_s[first])
    else:
        ends_s = np.sort(finish_s[turns.then < 0])
        later = np.sort(arrival_s[first])[simulated.concurrency :]
        assert np.array_equal(later, ends_s[: len(later)])
    assert not record.rejected
    assert np.array_equal(record.progress.emitted_tokens, simulated.ground_truth.output_tokens)
    if simulated.router is Affinity:
        assert all(len(set(record.replica_of[simulated.sessions == each])) == 1 for each in set(simulated.sessions))
    assert_same_record(record, run(replace(simulated, multi_step=False)))
