"""The benchmark cannot rot: its runs can be prepared, its rows are kept and compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench import loops, queue
from tests.bench.rows import Row, grown, store
from tests.bench.shares import shares

ROW = Row("loop", "continuous", 100, 50.0, 2.5, target="25,000 it/s")


def test_a_loop_is_timed_beside_a_yardstick() -> None:
    row = loops.timed(loops.Loop("some", ("scheduler=continuous", *loops.batch(2, 20))), "loop", repeats=1)
    assert row.iterations > 20
    assert row.cost == row.us / row.yardstick_us > 0


def test_what_ran_at_once_is_counted() -> None:
    loop = loops.Loop("some", ("scheduler=continuous", *loops.batch(2, 60)))
    found, slowly = shares(loop), shares(replace(loop, fields={"multi_step": False}))
    assert found.iterations == slowly.iterations == slowly.turns
    assert (slowly.at_once, slowly.events) == (0, 0)
    assert found.turns + found.at_once - found.events == found.iterations
    assert found.events > 0


def test_the_cost_of_an_iteration_is_told_by_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "EVERY", 10)
    found = queue.parts("continuous", 1000)
    assert len(found) == queue.PARTS
    assert found[0].queued < found[-1].queued
    assert all(part.us > 0 for part in found)


def test_a_cost_that_has_grown_is_told(tmp_path: Path) -> None:
    file = tmp_path / "bench.parquet"
    store([ROW, replace(ROW, name="other")], file)
    both = [ROW, replace(ROW, name="other")]
    assert grown([replace(ROW, us=60.0), both[1], replace(ROW, name="new", us=1e9)], file) == []
    said = grown([replace(ROW, us=100.0), replace(ROW, name="other", us=100.0, yardstick_us=5.0)], file)
    assert said == ["continuous: 40.0 yardsticks, 2.00 times the stored figure"]


def test_what_is_stored_and_was_not_measured_is_told(tmp_path: Path) -> None:
    file = tmp_path / "bench.parquet"
    store([ROW, replace(ROW, name="with numba"), replace(ROW, group="growth", name="batch 2")], file)
    assert grown([ROW], file) == ["with numba: stored, and not measured now"]
