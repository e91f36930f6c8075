"""Overloaded, steady or too short, on queues whose load is known: how often each is said, and of what."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest

from specsim.metrics.load import Load, judged
from tests.theory.queues import Queue, queue, served

RUNS = 100
ALL_MET = np.ones(100_000, dtype=bool)
MANY = {"servers": 32, "cv": 1.0}
BURSTS = {"bursts": True}


def of(line: Queue, start_s: float = 0.0) -> Load:
    return judged(*line, ALL_MET[: len(line.arrival_s)], start_s)


def with_queue(load: float, n: int, seed: int, **kind) -> Load:
    """Return the load of a queue whose services begin at a first token."""
    line = queue(load, n, seed, **kind)
    return judged(*line, ALL_MET[:n], began_s=line.finish_s - line.service_s)


def said(load: float, n: int, **kind) -> Counter[str]:
    """Return how many of `RUNS` queues are called overloaded, steady, unsteady or neither."""
    found = [of(queue(load, n, seed, **kind)) for seed in range(RUNS)]
    names = {True: "steady", False: "not steady", None: "too short"}
    return Counter("overloaded" if each.overloaded else names[each.steady] for each in found)


@pytest.mark.parametrize(
    ("load", "n", "kind", "most"),
    [(load, n, kind, 2) for load in (0.5, 0.9) for n, kind in ((300, {}), (1_000, MANY))]
    + [(load, 3_000, BURSTS, most) for load, most in ((0.5, 2), (0.8, 3), (0.9, 15))],
)
def test_a_server_that_keeps_up_is_hardly_ever_called_overloaded(load, n, kind, most):
    assert said(load, n, **kind)["overloaded"] <= most


@pytest.mark.parametrize(("load", "n", "kind"), [(0.5, 1_000, {}), (0.9, 1_000, {}), (0.8, 4_000, MANY)])
def test_a_long_run_that_keeps_up_is_steady(load, n, kind):
    assert said(load, n, **kind)["steady"] >= 98


@pytest.mark.parametrize(
    ("load", "n", "kind"),
    [(1.1, 4_000, {}), (1.5, 300, {}), (3.0, 300, {}), (1.1, 10_000, MANY), (1.5, 4_000, MANY), (1.5, 3_000, BURSTS)],
)
def test_overload_is_found(load, n, kind):
    assert said(load, n, **kind)["overloaded"] >= 95


@pytest.mark.parametrize("load", [0.5, 1.0])
@pytest.mark.parametrize(("n", "kind"), [(40, {}), (100, MANY), (100, BURSTS)])
def test_a_short_run_is_called_too_short(load, n, kind):
    found = said(load, n, **kind)
    assert found["too short"] + found["overloaded"] == RUNS
    assert found["overloaded"] <= (16 if kind is BURSTS else 2)


@pytest.mark.parametrize("kind", [{}, MANY, BURSTS, {"servers": 256, "cv": 1.0}])
@pytest.mark.parametrize("n", [200, 1_000])
def test_the_queue_of_a_server_that_keeps_up_adds_no_overload(n, kind):
    """One of 120 does, in 200 requests of bursts: five bursts."""
    runs = [(load, n, seed) for load in (0.5, 0.8, 0.9) for seed in range(40)]
    added = [run for run in runs if with_queue(*run, **kind).overloaded and not of(queue(*run, **kind)).overloaded]
    assert len(added) <= (1 if kind is BURSTS and n == 200 else 0)


@pytest.mark.parametrize(("load", "n", "kind"), [(1.5, 500, MANY), (3.0, 300, MANY), (3.0, 1_000, {"servers": 256})])
def test_a_queue_that_chance_does_not_explain_is_overload(load, n, kind):
    """Such a run is shorter than three of its longest services: without its queue nothing could be said."""
    found = [with_queue(load, n, seed, **kind) for seed in range(RUNS)]
    assert sum(bool(each.overloaded) for each in found) >= 90


def test_a_drain_no_longer_than_the_longest_service_is_no_overload():
    """One request of 60 s among short ones, the last to arrive: makespan 1.6 times the arrivals' span."""
    arrival_s, service_s = np.arange(0, 100, 0.1), np.full(1_000, 0.05)
    service_s[-1] = 60.0
    alone = Queue(arrival_s, arrival_s + service_s, service_s)
    found = of(alone)
    assert found.makespan_ratio == pytest.approx(1.6, abs=0.01)
    assert found.overloaded is None
    assert found.too_short
    assert found.needed_requests == pytest.approx(10 * 60 * 10, rel=0.01)


def with_burst(at: int, customers: int = 300) -> Queue:
    """Return a queue at half load, in which so many arrive at once as customer `at`."""
    arrival_s = np.sort(np.concatenate([np.arange(0, 2_000, 2.0), np.full(customers, 2.0 * at)]))
    service_s = np.ones(len(arrival_s))
    return Queue(arrival_s, served(arrival_s, service_s), service_s)


def test_a_burst_at_the_end_of_a_server_that_had_caught_up_is_no_overload():
    found = of(with_burst(999))
    assert found.makespan_ratio is not None
    assert found.makespan_ratio > 1.1
    assert found.last_backlog == 301
    assert found.overloaded is None
    assert found.too_short
    assert of(with_burst(500)).steady


def test_a_makespan_without_a_way_back_is_overload():
    """The backlog jumps from 0 to 600 early and stays: a trend cannot be told from one jump, the makespan can."""
    arrival_s = np.sort(np.concatenate([np.arange(1_000.0), np.full(600, 400.0)]))
    service_s = np.ones(1_600)
    found = of(Queue(arrival_s, served(arrival_s, service_s), service_s))
    assert found.backlog_grows is False
    assert found.makespan_ratio == pytest.approx(1.6, abs=0.01)
    assert found.overloaded


def test_a_backlog_that_is_worked_off_is_not_steady_until_it_is_left_out():
    """A server at half load that begins with 1,000 in its queue."""
    arrival_s = np.concatenate([np.zeros(1_000), np.arange(1, 4_000, 2.0)])
    service_s = np.ones(len(arrival_s))
    line = Queue(arrival_s, served(arrival_s, service_s), service_s)
    whole = judged(line.arrival_s[:1_800], line.finish_s[:1_800], service_s[:1_800], ALL_MET[:1_800])
    assert whole.steady is False
    assert whole.backlog_trend_interval_per_s is not None
    assert max(whole.backlog_trend_interval_per_s) < 0
    assert of(line, 2_001.0).steady
    late = of(line, 2_001.0).backlog_trend_per_s
    assert late == pytest.approx(0, abs=1e-3)


def test_a_rejected_request_is_never_in_the_system():
    line = queue(0.8, 1_000, 3)
    arrival_s = np.sort(np.concatenate([line.arrival_s, np.linspace(1, line.arrival_s[-1] - 1, 500)]))
    finish_s, service_s = np.full(1_500, np.nan), np.full(1_500, np.nan)
    served_ones = np.searchsorted(arrival_s, line.arrival_s)
    finish_s[served_ones], service_s[served_ones] = line.finish_s, line.service_s
    found, alone = judged(arrival_s, finish_s, service_s, ALL_MET[:1_500]), of(line)
    assert found.last_backlog == alone.last_backlog
    assert found.backlog_trend_interval_per_s == alone.backlog_trend_interval_per_s
    assert found.makespan_ratio == alone.makespan_ratio


NOBODY = np.full(3, np.nan)


@pytest.mark.parametrize("line", [Queue(np.arange(3.0), NOBODY, NOBODY), Queue(np.zeros(3), NOBODY, NOBODY)])
def test_where_no_request_was_let_in_nothing_is_said(line):
    found = of(line)
    assert found == Load(attainment_half_width=found.attainment_half_width, too_short=True)
    assert json.loads(json.dumps(asdict(found), allow_nan=False))["makespan_ratio"] is None


@pytest.mark.parametrize("n", [1, 50])
def test_a_batch_that_arrives_at_once_has_no_load_and_is_not_too_short(n):
    found = of(Queue(np.zeros(n), np.arange(1.0, n + 1), np.ones(n)))
    half = found.attainment_half_width
    assert found == Load(arrival_span_s=0.0, drain_s=float(n), attainment_half_width=half, too_short=False)


def test_how_long_a_run_should_be_follows_from_its_batches():
    """Half of 600 met in long turns: the batches differ as much as they can."""
    line = queue(0.5, 600, 1)
    turns = (np.arange(600) // 30) % 2 == 0
    found = judged(*line, turns)
    half = 2.093024054408263 * np.std(np.tile([1.0, 0.0], 10), ddof=1) / np.sqrt(20)
    assert found.attainment_half_width == pytest.approx(half)
    assert found.needed_requests == pytest.approx(600 * (half / 0.05) ** 2 + (found.warm_up_requests or 0), abs=1)
    assert found.needed_s == pytest.approx(found.needed_requests / ((600 - 1) / line.arrival_s[-1]))
    assert found.too_short
    assert found.steady
    assert not of(line).too_short
