"""Clients that wait for their answer before they send their next request."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specsim import simulate
from specsim.errors import SpecsimError
from specsim.metrics.recorder import Record
from specsim.simulation import run
from tests.laws.subjects import NAMES, factory_of
from tests.made import hardware, requests, simulation

PASS_S = 0.1


def closed(concurrency: int, n: int = 12, tokens: int = 3, **more: object) -> Record:
    """Return n requests of one prompt token and some output tokens each; every pass takes `PASS_S`."""
    told = requests(np.linspace(0, 50, n).tolist(), [1] * n, [tokens] * n, [0] * n)
    simulated = simulation(told, [tokens] * n, factory_of("continuous"), truth=hardware(0.0, 0.0, PASS_S))
    return run(replace(simulated, concurrency=concurrency, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("clients", [1, 3, 12])
def test_so_many_requests_are_under_way_at_any_time(clients: int) -> None:
    record = closed(clients)
    arrival_s, finish_s = record.requests.arrival_s, record.progress.finish_s
    for at_s in np.linspace(0.05, finish_s.max() - 0.05, 40):
        under_way = int(((arrival_s <= at_s) & (finish_s > at_s)).sum())
        left = int((arrival_s > at_s).sum())
        assert under_way == clients or (left == 0 and under_way < clients)


def test_the_next_request_is_there_at_the_next_decision() -> None:
    record = closed(1)
    assert record.requests.arrival_s == pytest.approx(3 * PASS_S * np.arange(12))
    assert record.progress.finish_s - record.requests.arrival_s == pytest.approx(3 * PASS_S)


def test_the_frontend_is_paid_by_every_request() -> None:
    record = closed(1, frontend_s=0.04)
    assert record.requests.arrival_s == pytest.approx((3 * PASS_S + 0.04) * np.arange(12))
    assert record.progress.first_token_s - record.requests.arrival_s == pytest.approx(PASS_S + 0.04)


def test_the_times_of_the_trace_change_nothing() -> None:
    told = [requests(at, [5] * 6, [9] * 6, [0] * 6) for at in ([0.0] * 6, [0.0, 1.0, 2.0, 30.0, 31.0, 99.0])]
    one, other = (
        run(replace(simulation(each, [9] * 6, factory_of("vllm_spec")), concurrency=2)).progress for each in told
    )
    assert np.array_equal(one.finish_s, other.finish_s)


def test_a_rejected_request_is_an_answer() -> None:
    told = requests([0.0] * 4, [4, 4_000, 4_000, 4], [4] * 4, [0] * 4)
    simulated = simulation(told, [4] * 4, factory_of("continuous"))
    small = replace(simulated, memory=replace(simulated.memory, capacity_bytes=200), concurrency=1)
    record = run(small)
    assert sorted(record.rejected) == [1, 2]
    assert np.isfinite(record.progress.finish_s[3])


@pytest.mark.parametrize("clients", [1, 2, 3])
@pytest.mark.parametrize("frontend_s", [0.0, 0.04])
@pytest.mark.parametrize("pipeline_steps", [0, 1])
def test_thousands_of_rejections_in_a_row_are_answers(clients: int, frontend_s: float, pipeline_steps: int) -> None:
    """The first request is rejected while others are still being sent, and the rest outnumber Python's stack."""
    prompts = [4_000, 4, 4, *[4_000] * 2_000, 4]
    n = len(prompts)
    told = requests([0.0] * n, prompts, [4] * n, [0] * n)
    simulated = simulation(told, [4] * n, factory_of("continuous"))
    small = replace(simulated, memory=replace(simulated.memory, capacity_bytes=200), concurrency=clients)
    record = run(replace(small, frontend_s=frontend_s, pipeline_steps=pipeline_steps))
    assert sorted(record.rejected) == [0, *range(3, n - 1)]
    assert np.isfinite(record.progress.finish_s[[1, 2, n - 1]]).all()
    assert (np.diff(record.requests.arrival_s) >= 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_every_scheduler_serves_a_closed_loop(name: str) -> None:
    told = requests([0.0] * 7, [9, 30, 4, 7, 12, 3, 8], [12, 9, 20, 8, 5, 30, 2], [0, 1, 2, 0, 1, 2, 0])
    simulated = simulation(told, [12, 9, 15, 8, 5, 22, 1], factory_of(name), truth=hardware())
    record = run(replace(simulated, concurrency=3, replicas=2, pipeline_steps=1, frontend_s=0.01))
    assert record.progress.emitted_tokens.tolist() == [12, 9, 15, 8, 5, 22, 1]
    assert (np.diff(record.requests.arrival_s) >= 0).all()


def test_a_run_says_that_it_is_a_closed_loop() -> None:
    done = simulate("continuous", "poisson", requests=25, concurrency=8)
    load = done.metrics["specsim"]["load"]
    assert (load["clients"], load["overloaded"], load["makespan_ratio"]) == (8, None, None)
    assert any("the trace's arrivals are not used" in note for note in done.notes)
    assert any(note.startswith("too short: slo_attainment is known to") for note in done.notes)
    assert simulate("continuous", "poisson", requests=9).metrics["specsim"]["load"]["clients"] is None


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"concurrency": 0}, "concurrency: 0"),
        ({"concurrency": 41}, "between 1 and 40"),
        ({"concurrency": 1.5}, "concurrency: 1.5"),
        ({"concurrency": 4, "rps": 2.0}, r"rps: 2(\.0)? and concurrency=4"),
        ({"concurrency": 4, "warmup": "10%"}, "warmup: 10% and concurrency=4"),
        ({"concurrency": 4, "metrics__window": [0, 5]}, "metrics.window"),
    ],
)
def test_what_cannot_be_is_refused(more: dict[str, object], said: str) -> None:
    with pytest.raises(SpecsimError, match=said):
        simulate("continuous", "poisson", requests=40, **more)  # type: ignore[arg-type]
