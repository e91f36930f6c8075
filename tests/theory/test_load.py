"""Overloaded, steady or too short, on queues whose load is known; intervals that cover what they say."""

import heapq
import json
from collections import Counter
from dataclasses import asdict
from math import sqrt
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from specsim.core.request import Floats
from specsim.metrics.load import Load, judged
from specsim.metrics.statistics import BATCHES, T_975, Z_975, backlog, half_width, trend, warm_up
from specsim.workload.synthetic import on_off


class Queue(NamedTuple):
    """Customers in order of arrival, (N,) seconds each."""

    arrival_s: Floats
    finish_s: Floats
    service_s: Floats


def queue(load: float, n: int, seed: int, *, servers: int = 1, cv: float = 0.0, bursts: bool = False) -> Queue:
    """Return a queue served first come, first served, whose services last 1 s in the mean, log-normal with this cv.

    `load` is arrivals over what the servers can do; `bursts` are of 40 customers, a fifth of the time; else Poisson.
    """
    rng = np.random.default_rng([seed, n])
    rate_per_s = load * servers
    if bursts:
        arrival_s = on_off(rate_per_s, n, rng, burst_requests=40, on_share=0.2, off_rate_ratio=0.1)
    else:
        arrival_s = np.cumsum(rng.exponential(1 / rate_per_s, n))
        arrival_s -= arrival_s[0]
    spread = np.log1p(cv**2)
    service_s = np.exp(np.sqrt(spread) * rng.standard_normal(n) - spread / 2)
    return first_come(arrival_s, service_s, servers)


def first_come(arrival_s: Floats, service_s: Floats, servers: int = 1) -> Queue:
    free_s, finish_s = [0.0] * servers, []
    for arrived_s, takes_s in zip(arrival_s.tolist(), service_s.tolist(), strict=True):
        finish_s.append(max(arrived_s, free_s[0]) + takes_s)
        heapq.heapreplace(free_s, finish_s[-1])
    return Queue(arrival_s, np.array(finish_s), service_s)


# --- how often each is said, and of what ------------------------------------------------------------------------------

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


KEEPS_UP = [(load, n, kind, 2) for load in (0.5, 0.9) for n, kind in ((300, {}), (1_000, MANY))]
KEEPS_UP += [(load, 3_000, BURSTS, most) for load, most in ((0.5, 2), (0.8, 3), (0.9, 15))]
STEADY = [(0.5, 1_000, {}), (0.9, 1_000, {}), (0.8, 4_000, MANY)]
OVERLOADED = [(1.1, 4_000, {}), (1.5, 300, {}), (3.0, 300, {}), (1.1, 10_000, MANY), (1.5, 4_000, MANY)]
VERDICTS = [(load, n, kind, "overloaded", 0, most) for load, n, kind, most in KEEPS_UP]
VERDICTS += [(*case, "steady", 98, RUNS) for case in STEADY]
VERDICTS += [(*case, "overloaded", 95, RUNS) for case in [*OVERLOADED, (1.5, 3_000, BURSTS)]]


@pytest.mark.parametrize(("load", "n", "kind", "verdict", "least", "most"), VERDICTS)
def test_how_often_a_run_is_called_overloaded_or_steady(load, n, kind, verdict, least, most):
    assert least <= said(load, n, **kind)[verdict] <= most


@pytest.mark.parametrize("load", [0.5, 1.0])
@pytest.mark.parametrize(("n", "kind", "most"), [(40, {}, 2), (100, MANY, 2), (100, BURSTS, 16)])
def test_a_short_run_is_called_too_short(load, n, kind, most):
    found = said(load, n, **kind)
    assert found["too short"] + found["overloaded"] == RUNS
    assert found["overloaded"] <= most


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


@pytest.mark.parametrize(("n", "own_s"), [(1_000, 61.0), (1_000, 1.0), (100, 1.0)])
def test_a_drain_no_longer_than_the_longest_service_or_time_alone_is_no_overload(n, own_s):
    """One request of 60 s among those of 1 s, the last to arrive; its own service may be estimated too short."""
    arrival_s = np.arange(n) / 10
    line = Queue(arrival_s, arrival_s + np.where(np.arange(n) < n - 1, 1.0, 60.0), np.full(n, own_s))
    found = judged(*line, ALL_MET[:n], lone_s=line.finish_s - arrival_s)
    assert of(line).overloaded == (None if own_s > 60 else True)
    assert (found.overloaded, found.too_short, found.longest_service_s) == (None, True, own_s)
    assert found.needed_requests == pytest.approx(10 * 60 * 10, rel=0.02)


def with_burst(at: int, customers: int = 300) -> Queue:
    """Return a queue at half load, in which so many arrive at once as customer `at`."""
    arrival_s = np.sort(np.concatenate([np.arange(0, 2_000, 2.0), np.full(customers, 2.0 * at)]))
    return first_come(arrival_s, np.ones(len(arrival_s)))


def test_a_burst_at_the_end_of_a_server_that_had_caught_up_is_no_overload():
    found = of(with_burst(999))
    assert found.makespan_ratio > 1.1
    assert (found.last_backlog, found.overloaded, found.too_short) == (301, None, True)
    assert of(with_burst(500)).steady


def test_a_makespan_without_a_way_back_is_overload():
    """The backlog jumps from 0 to 600 early and stays: a trend cannot be told from one jump, the makespan can."""
    arrival_s = np.sort(np.concatenate([np.arange(1_000.0), np.full(600, 400.0)]))
    found = of(first_come(arrival_s, np.ones(1_600)))
    assert found.makespan_ratio == pytest.approx(1.6, abs=0.01)
    assert (found.backlog_grows, found.overloaded) == (False, True)


def test_a_backlog_that_is_worked_off_is_not_steady_until_it_is_left_out():
    """A server at half load that begins with 1,000 in its queue."""
    arrival_s = np.concatenate([np.zeros(1_000), np.arange(1, 4_000, 2.0)])
    line = first_come(arrival_s, np.ones(len(arrival_s)))
    whole, late = of(Queue(*(column[:1_800] for column in line))), of(line, 2_001.0)
    assert (whole.steady, late.steady) == (False, True)
    assert max(whole.backlog_trend_interval_per_s) < 0
    assert late.backlog_trend_per_s == pytest.approx(0, abs=1e-3)


def test_a_rejected_request_is_never_in_the_system():
    line = queue(0.8, 1_000, 3)
    arrival_s = np.sort(np.concatenate([line.arrival_s, np.linspace(1, line.arrival_s[-1] - 1, 500)]))
    finish_s, service_s = np.full(1_500, np.nan), np.full(1_500, np.nan)
    served_ones = np.searchsorted(arrival_s, line.arrival_s)
    finish_s[served_ones], service_s[served_ones] = line.finish_s, line.service_s
    found, alone = of(Queue(arrival_s, finish_s, service_s)), of(line)
    assert found.last_backlog == alone.last_backlog
    assert found.backlog_trend_interval_per_s == alone.backlog_trend_interval_per_s
    assert found.makespan_ratio == alone.makespan_ratio


@pytest.mark.parametrize("arrival_s", [np.arange(3.0), np.zeros(3)])
def test_where_no_request_was_let_in_nothing_is_said(arrival_s):
    found = of(Queue(arrival_s, *np.full((2, 3), np.nan)))
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
    assert (found.too_short, found.steady, of(line).too_short) == (True, True, False)


# --- batch means: intervals that cover what they say; MSER-5 against its definition -----------------------------------

COVERED_RUNS = 400
SLACK = 3 * sqrt(0.95 * 0.05 / COVERED_RUNS)
"""Three standard errors of a coverage of 95% over that many runs."""


def test_the_quantiles_are_students_and_the_normals():
    found = stats.t.ppf(0.975, BATCHES - 1), stats.norm.ppf(0.975)
    assert found == pytest.approx((T_975, Z_975), abs=1e-12)


def test_the_backlog_counts_who_came_and_has_not_left():
    arrival_s, finish_s = np.array([0.0, 1.0, 1.0, 4.0]), np.array([3.0, 2.0, 5.0, 6.0])
    at_s = np.array([0.0, 1.0, 2.0, 2.5, 4.0, 6.0])
    assert backlog(arrival_s, finish_s, at_s).tolist() == [1, 3, 2, 2, 2, 0]


@pytest.mark.parametrize(("arrivals_per_s", "ends_per_s"), [(10.0, 10.0), (15.0, 10.0)])
def test_the_interval_of_a_busy_servers_trend_covers_it(arrivals_per_s, ends_per_s):
    """Poisson arrivals and Poisson ends, an endless backlog to begin with: the drift is the difference of the rates."""
    covered = 0
    for seed in range(COVERED_RUNS):
        rng = np.random.default_rng(seed)
        arrival_s = np.cumsum(rng.exponential(1 / arrivals_per_s, 3_000))
        finish_s = np.cumsum(rng.exponential(1 / ends_per_s, 6_000))
        low_per_s, high_per_s = trend(arrival_s, finish_s, 0.0, 150.0).interval_per_s
        covered += low_per_s <= arrivals_per_s - ends_per_s <= high_per_s
    assert abs(covered / COVERED_RUNS - 0.95) < SLACK


def test_the_trend_is_the_backlogs_change_over_time():
    """By hand: two more every second, without a spread."""
    found = trend(np.arange(0.25, 100, 0.5), np.empty(0), 0.0, 100.0)
    assert (found.per_s, *found.interval_per_s) == pytest.approx((2.0, 2.0, 2.0))
    assert found.grows


def test_a_stable_queue_is_rarely_found_to_grow():
    lines = (queue(0.9, 1_000, seed) for seed in range(COVERED_RUNS))
    assert np.mean([trend(*line[:2], 1.0, line.arrival_s[-1]).grows for line in lines]) < 0.025


def waits_met(seed, n=4_000):
    """Return who of an M/D/1 queue's customers ended within 3 s."""
    arrival_s, finish_s, _ = queue(0.7, n, seed)
    return finish_s - arrival_s <= 3.0


def test_the_half_width_covers_where_the_binomial_does_not():
    """Waits resemble their neighbours'. The truth is the mean of runs that take no part in the test."""
    truth = np.mean([waits_met(10_000 + seed, 20_000).mean() for seed in range(40)])
    assert 0.6 < truth < 0.95
    covered = binomial = 0
    for seed in range(COVERED_RUNS):
        met = waits_met(seed)
        share = met.mean()
        covered += abs(share - truth) <= half_width(met)
        binomial += abs(share - truth) <= Z_975 * sqrt(share * (1 - share) / len(met))
    assert binomial / COVERED_RUNS < 0.6, "neighbours are as good as independent here: the test could not fail"
    assert covered / COVERED_RUNS > 0.95 - SLACK


def test_the_half_width_of_independent_requests_is_near_the_binomials():
    rng = np.random.default_rng(0)
    widths = [half_width(rng.random(1_000) < 0.5) for _ in range(100)]
    assert np.mean(widths) == pytest.approx(Z_975 * sqrt(0.25 / 1_000), rel=0.25)


def dropped_by_definition(values):
    """MSER-5 without cumulative sums: the d that leaves the least sum of squares over (k - d) squared."""
    k = len(values) // 5
    means = [np.mean(values[5 * each : 5 * each + 5]) for each in range(k)]
    cost = [np.sum((means[d:] - np.mean(means[d:])) ** 2) / (k - d) ** 2 for d in range(max(1, k - 5))]
    return int(np.argmin(cost))


@pytest.mark.parametrize("seed", range(5))
def test_mser_5_is_what_its_authors_define(seed):
    rng = np.random.default_rng(seed)
    values = 50 * np.exp(-np.arange(403) / rng.uniform(5, 80)) + rng.normal(1e3, 1, 403)
    dropped = dropped_by_definition(values)
    assert dropped > 0
    assert warm_up(values) == (5 * dropped if dropped <= 40 else None)


def test_a_high_beginning_is_left_out_and_what_never_settles_has_no_warm_up():
    for high in (60, 200):
        values = np.random.default_rng(1).normal(0, 1, 1_000) + np.where(np.arange(1_000) < high, 20, 0)
        assert warm_up(values) == pytest.approx(high, abs=10)
    assert warm_up(np.arange(1_000.0)) is None
    assert warm_up(np.ones(9)) is None
    assert warm_up(np.ones(500)) == 0, "what is level needs none"
