"""Inter-token latencies of a run: whose they are, the longest of each request, and what a token costs in memory."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import specsim.metrics.distribution
import specsim.metrics.recorder
from specsim.metrics.distribution import RELATIVE_ERROR
from specsim.metrics.summary import summarise
from specsim.simulation import Simulation, run
from tests.laws.subjects import factory_of
from tests.made import requests, simulation, table_of_run


@pytest.fixture
def keeping_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specsim.metrics.recorder, "BLOCK", 1_000)
    monkeypatch.setattr(specsim.metrics.distribution, "MOST_EXACT", 2_000)


def mixed(window: tuple[float, float] | None = None) -> Simulation:
    """Return a run that speculates and preempts: arrivals at 0, 0.05, 0.1, ..."""
    count = 20
    at, outputs = np.arange(count) * 0.05, 1 + np.arange(count) * 7 % 31
    told = requests(at.tolist(), [9] * count, outputs.tolist())
    return replace(simulation(told, outputs.tolist(), factory_of("vllm_spec")), window=window)


def test_a_window_keeps_the_latencies_of_its_requests() -> None:
    record = run(mixed())
    told, everybody = record.requests, record.progress
    several = np.flatnonzero(everybody.emitted_tokens > 1)
    kept = []
    for request in several.tolist():
        arrival_s = float(told.arrival_s[request])
        totals = run(mixed((arrival_s, arrival_s))).totals
        lasted_s = everybody.finish_s[request] - everybody.first_token_s[request]
        assert np.sum(totals.itl_s) == pytest.approx(lasted_s, rel=1e-12)
        assert np.max(totals.itl_s) == record.longest_pause_s[request]
        kept.append(totals.itl_s)
    assert np.array_equal(np.sort(np.concatenate(kept)), np.sort(run(mixed()).totals.itl_s))


def decoding(tokens: int) -> Simulation:
    """Return a run of 30 requests with so many tokens each, half of them of another length."""
    count = 30
    outputs = [tokens, tokens + 7] * (count // 2)
    told = requests((np.arange(count) * 0.1).tolist(), [9] * count, outputs)
    return simulation(told, outputs, factory_of("continuous"), keep_passes=False)


def test_a_run_too_long_to_keep_differs_in_its_latencies_alone(
    keeping_few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sketched = run(decoding(400))
    monkeypatch.undo()
    exact = run(decoding(400))
    mine, theirs = (summarise(table_of_run(each), each.totals) for each in (sketched, exact))
    assert mine["specsim"].pop("itl_relative_error") == RELATIVE_ERROR
    assert theirs["specsim"].pop("itl_relative_error") == 0.0
    for name in ("mean_itl_ms", "std_itl_ms"):
        assert mine.pop(name) == pytest.approx(theirs.pop(name), rel=1e-12)
    for name in ("median_itl_ms", "p99_itl_ms"):
        assert mine.pop(name) == pytest.approx(theirs.pop(name), rel=RELATIVE_ERROR)
    assert mine == theirs


def test_a_token_costs_no_memory(keeping_few: None) -> None:
    """Nothing grows with the output; it was 39 bytes a token."""
    few, many = 200, 1_200
    peaks = [_peak(decoding(tokens)) for tokens in (few, few, many)]
    assert (peaks[2] - peaks[1]) / (30 * (many - few)) < 1


def _peak(chosen: Simulation) -> int:
    tracemalloc.start()
    run(chosen)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak
