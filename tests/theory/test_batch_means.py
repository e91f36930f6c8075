"""Intervals that cover what they say, on processes whose truth is known; MSER-5 against its definition."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from scipy import stats

from specsim.metrics.batch_means import BATCHES, T_975, Z_975, backlog, half_width, trend, warm_up
from tests.theory.queues import queue

RUNS = 400
SLACK = 3 * sqrt(0.95 * 0.05 / RUNS)
"""Three standard errors of a coverage of 95% over that many runs."""


def test_the_quantiles_are_students_and_the_normals():
    assert stats.t.ppf(0.975, BATCHES - 1) == pytest.approx(T_975, abs=1e-12)
    assert stats.norm.ppf(0.975) == pytest.approx(Z_975, abs=1e-12)


def test_the_backlog_counts_who_came_and_has_not_left():
    arrival_s, finish_s = np.array([0.0, 1.0, 1.0, 4.0]), np.array([3.0, 2.0, 5.0, 6.0])
    at_s = np.array([0.0, 1.0, 2.0, 2.5, 4.0, 6.0])
    assert backlog(arrival_s, finish_s, at_s).tolist() == [1, 3, 2, 2, 2, 0]


@pytest.mark.parametrize(("arrivals_per_s", "ends_per_s"), [(10.0, 10.0), (15.0, 10.0)])
def test_the_interval_of_a_busy_servers_trend_covers_it(arrivals_per_s, ends_per_s):
    """Poisson arrivals and Poisson ends, an endless backlog to begin with: the drift is the difference of the rates."""
    covered = 0
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        arrival_s = np.cumsum(rng.exponential(1 / arrivals_per_s, 3_000))
        finish_s = np.cumsum(rng.exponential(1 / ends_per_s, 6_000))
        low_per_s, high_per_s = trend(arrival_s, finish_s, 0.0, 150.0).interval_per_s
        covered += low_per_s <= arrivals_per_s - ends_per_s <= high_per_s
    assert abs(covered / RUNS - 0.95) < SLACK


def test_the_trend_is_the_backlogs_change_over_time():
    """By hand: two more every second, without a spread."""
    found = trend(np.arange(0.25, 100, 0.5), np.empty(0), 0.0, 100.0)
    assert found.per_s == pytest.approx(2.0)
    assert found.interval_per_s == pytest.approx((2.0, 2.0))
    assert found.grows


def test_a_stable_queue_is_rarely_found_to_grow():
    grown = 0
    for seed in range(RUNS):
        arrival_s, finish_s, _ = queue(0.9, 1_000, seed)
        grown += trend(arrival_s, finish_s, 1.0, arrival_s[-1]).grows
    assert grown / RUNS < 0.025


def waits_met(seed, n=4_000, load=0.7, most_s=3.0):
    """Return who of an M/D/1 queue's customers ended within so many seconds."""
    arrival_s, finish_s, _ = queue(load, n, seed)
    return finish_s - arrival_s <= most_s


def test_the_half_width_covers_where_the_binomial_does_not():
    """Waits resemble their neighbours'. The truth is the mean of runs that take no part in the test."""
    truth = np.mean([waits_met(10_000 + seed, 20_000).mean() for seed in range(40)])
    assert 0.6 < truth < 0.95
    covered = binomial = 0
    for seed in range(RUNS):
        met = waits_met(seed)
        share = met.mean()
        covered += abs(share - truth) <= half_width(met)
        binomial += abs(share - truth) <= Z_975 * sqrt(share * (1 - share) / len(met))
    assert binomial / RUNS < 0.6, "neighbours are as good as independent here: the test could not fail"
    assert covered / RUNS > 0.95 - SLACK


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


@pytest.mark.parametrize("high", [60, 200])
def test_a_high_beginning_is_left_out(high):
    rng = np.random.default_rng(1)
    values = rng.normal(0, 1, 1_000) + np.where(np.arange(1_000) < high, 20, 0)
    assert warm_up(values) == pytest.approx(high, abs=10)


def test_what_never_settles_has_no_warm_up():
    assert warm_up(np.arange(1_000.0)) is None
    assert warm_up(np.ones(9)) is None
    assert warm_up(np.ones(500)) == 0, "what is level needs none"
