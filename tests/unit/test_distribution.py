"""Numbers in bounded memory: exact up to a bound, then mean and deviation to rounding and percentiles to 0.1%."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import specsim.metrics.recorder
import specsim.metrics.statistics
from specsim.metrics.statistics import RELATIVE_ERROR, Distribution
from specsim.metrics.summary import summarise
from specsim.simulation import run
from tests.laws.subjects import factory_of
from tests.made import requests, simulation, table_of_run

SIZES = st.lists(st.integers(0, 400), min_size=1, max_size=12)
KINDS = ("exponential", "lognormal", "pareto", "few values", "one value", "zeros among them", "two far apart")


def drawn(kind, size, seed):
    rng = np.random.default_rng(seed)
    if kind in ("exponential", "lognormal", "pareto"):
        return getattr(rng, kind)(2.0, size=size) * 1e-2
    choices = {
        "few values": (0.011, 0.0125, 0.3),
        "one value": (0.02,),
        "zeros among them": (0.0, 0.01),
        "two far apart": (1e-6, 1e6),
    }
    return rng.choice(choices[kind], size)


def filled(numbers, sizes, most_exact, parts=False):
    """Return a distribution to which the numbers are added in blocks, or merged of one distribution a block."""
    whole = Distribution(most_exact)
    for block in np.split(numbers, np.cumsum(sizes)[:-1]):
        into = Distribution(most_exact) if parts else whole
        into.add(block)
        if parts:
            whole.merge(into)
    return whole


@example("lognormal", [1, 5], 0, 0.5, True)
@given(st.sampled_from(KINDS), SIZES, st.integers(0, 99), st.floats(0, 1.2), st.booleans())
def test_up_to_the_bound_all_is_kept_and_beyond_it_the_error_is_the_stated_one(kind, sizes, seed, share, parts):
    numbers = drawn(kind, sum(sizes), seed)
    most_exact = int(share * len(numbers))
    known = filled(numbers, sizes, most_exact, parts).result
    if len(numbers) <= most_exact:
        assert known.tobytes() == numbers.tobytes()
        return
    assert (known.count, known.least) == (len(numbers), np.min(numbers))
    assert known.mean == pytest.approx(np.mean(numbers), rel=1e-12)
    assert known.std == pytest.approx(np.std(numbers), rel=1e-12, abs=1e-12 * np.mean(numbers))
    for found, percent in ((known.median, 50), (known.p99, 99)):
        there = np.percentile(numbers, percent, method="lower")
        assert abs(found - there) <= RELATIVE_ERROR * (1 + 1e-9) * there
    once = filled(numbers, sizes, 0).result
    assert (known.median, known.p99) == (once.median, once.p99)


def test_the_deviation_of_large_numbers_that_hardly_differ_is_no_rounding():
    """A sum of squares less the square of the sum would return 0, or the root of a negative number."""
    numbers = 1e9 + np.random.default_rng(0).standard_normal(100_000)
    assert filled(numbers, [1_000] * 100, most_exact=0).result.std == pytest.approx(np.std(numbers - 1e9), rel=1e-6)


@pytest.fixture
def keeping_few(monkeypatch):
    monkeypatch.setattr(specsim.metrics.recorder, "BLOCK", 1_000)
    monkeypatch.setattr(specsim.metrics.statistics, "MOST_EXACT", 2_000)


def mixed(window=None):
    """Return a run that speculates and preempts: arrivals at 0, 0.05, 0.1, ..."""
    outputs = (1 + np.arange(20) * 7 % 31).tolist()
    told = requests((np.arange(20) * 0.05).tolist(), [9] * 20, outputs)
    return simulation(told, outputs, factory_of("vllm_spec"), window=window)


def test_a_window_keeps_the_latencies_of_its_requests():
    record, kept = run(mixed()), []
    everybody = record.progress
    for request in np.flatnonzero(everybody.emitted_tokens > 1).tolist():
        arrival_s = float(record.requests.arrival_s[request])
        totals = run(mixed((arrival_s, arrival_s))).totals
        lasted_s = everybody.finish_s[request] - everybody.first_token_s[request]
        assert np.sum(totals.itl_s) == pytest.approx(lasted_s, rel=1e-12)
        assert np.max(totals.itl_s) == record.longest_pause_s[request]
        kept.append(totals.itl_s)
    assert np.array_equal(np.sort(np.concatenate(kept)), np.sort(record.totals.itl_s))


def decoding(tokens):
    """Return a run of 30 requests with so many tokens each, half of them of another length."""
    count = 30
    outputs = [tokens, tokens + 7] * (count // 2)
    told = requests((np.arange(count) * 0.1).tolist(), [9] * count, outputs)
    return simulation(told, outputs, factory_of("continuous"), keep_passes=False)


def test_a_run_too_long_to_keep_differs_in_its_latencies_alone(keeping_few, monkeypatch):
    sketched = run(decoding(400))
    monkeypatch.undo()
    mine, theirs = (summarise(table_of_run(each), each.totals) for each in (sketched, run(decoding(400))))
    assert mine["specsim"].pop("itl_relative_error") == RELATIVE_ERROR
    assert theirs["specsim"].pop("itl_relative_error") == 0.0
    for name in ("mean_itl_ms", "std_itl_ms"):
        assert mine.pop(name) == pytest.approx(theirs.pop(name), rel=1e-12)
    for name in ("median_itl_ms", "p99_itl_ms"):
        assert mine.pop(name) == pytest.approx(theirs.pop(name), rel=RELATIVE_ERROR)
    assert mine == theirs


def test_a_token_costs_no_memory(keeping_few):
    """Nothing grows with the output; it was 39 bytes a token."""
    few, many, peaks = 200, 1_200, []
    for tokens in (few, few, many):
        chosen = decoding(tokens)
        tracemalloc.start()
        run(chosen)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[2] - peaks[1]) / (30 * (many - few)) < 1
