"""Preemption by moving a cache to the host: nothing is read again, and both ways take time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specsim.api import simulate
from specsim.core.passes import Emitted, TargetPass
from specsim.core.trees import Forest
from specsim.errors import IllegalPass
from specsim.simulation import run
from tests.golden.scene import scene
from tests.laws.subjects import factory_of, raw_of
from tests.made import ledger_and_view, requests

LENGTHY: dict[str, Any] = {"trace": "poisson", "requests": 30, "rps": 4, "profile": "llama8b_1b_h100"}


def verify(*ids: int, chunks: Any, **more: Any) -> TargetPass:
    return TargetPass(np.array(ids), np.array(chunks), Forest.roots(len(ids)), **more)


def answer(*tokens: int) -> Emitted:
    none = np.zeros(len(tokens), dtype=np.int64)
    return Emitted(np.array(tokens), none, none, none > 0)


def two_read_prompts() -> Any:
    ledger, view = ledger_and_view(requests([0.0, 0.0], [7, 5], [9, 9]))
    work = verify(0, 1, chunks=[7, 5])
    ledger.reserve(work)
    ledger.commit_verify(work, answer(1, 1), 0.0, 0.1)
    ledger.end_step()
    return ledger, view


def test_a_cache_leaves_and_comes_back_whole() -> None:
    ledger, view = two_read_prompts()
    one = np.array([1])
    held = int(view.held_bytes(one)[0])
    work = verify(0, chunks=[1], evict=one, transfer=True)
    assert ledger.reserve(work).moved_bytes == held
    ledger.commit_verify(work, answer(1), 0.1, 0.2)
    ledger.end_step()
    assert list(view.waiting) == [1]
    assert view.held_bytes(one).tolist() == [0]
    assert view.pending(one).tolist() == [1], "nothing has to be read again"
    back = verify(0, 1, chunks=[1, 1])
    assert ledger.reserve(back).moved_bytes == held
    ledger.commit_verify(back, answer(1, 1), 0.2, 0.3)
    assert view.running.tolist() == [0, 1]
    assert ledger.progress.preemptions.tolist() == [0, 1]


def test_a_dropped_cache_moves_nothing_and_is_read_again() -> None:
    ledger, view = two_read_prompts()
    work = verify(0, chunks=[1], evict=np.array([1]))
    assert ledger.reserve(work).moved_bytes == 0
    assert view.pending(np.array([1])).tolist() == [6]


def test_what_never_fits_beside_another_cannot_come_back() -> None:
    ledger, _ = two_read_prompts()
    ledger.reserve(verify(0, chunks=[1], evict=np.array([1]), transfer=True))
    ledger.pool.memory = replace(ledger.pool.memory, capacity_bytes=ledger.pool.used_bytes)
    with pytest.raises(IllegalPass, match="more cache wanted"):
        ledger.reserve(verify(0, 1, chunks=[1, 1]))


def test_moving_takes_the_links_time() -> None:
    batching = raw_of("las")["batching"] | {"quantum_s": 0.0}
    factory = factory_of("las", batching=batching, switching="transfer", max_num_seqs=1)
    fast = run(replace(scene(), scheduler=factory))
    slow = run(replace(scene(), scheduler=factory, host_bytes_per_s=1e3))
    assert fast.progress.preemptions.sum() > 0
    assert np.nanmax(slow.progress.finish_s) > np.nanmax(fast.progress.finish_s)


def test_laps_sd_switches_at_the_price_of_the_transfer() -> None:
    def mean_s(**settings: Any) -> float:
        found = simulate("laps_sd", **LENGTHY, **settings).requests
        return float((found["finish_s"] - found["arrival_s"]).mean())

    kept = mean_s(scheduler__switching="keep")
    moved = mean_s(scheduler__switching="transfer")
    crawling = mean_s(scheduler__switching="transfer", host_bytes_per_s=1e9)
    assert kept < moved < crawling
