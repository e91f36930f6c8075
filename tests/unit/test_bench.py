"""The benchmark cannot rot: its runs can be prepared, its rows are kept and compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from specsim.errors import SpecsimError
from tests.bench import growth, loops, peers, queue, sweeps
from tests.bench.rows import Row, grown, store
from tests.bench.shares import shares

ROW = Row("loop", "continuous", 100, 50.0, 2.5, target="25,000 it/s")


@pytest.mark.slow
def test_every_loop_can_be_prepared(tmp_path: Path) -> None:
    for each in (*loops.main_loops(tmp_path), *growth.loops(tmp_path), *loops.every_scheduler()):
        assert len(replace(loops.prepared(each.words), **each.fields).requests) > 0


def test_a_loop_is_timed_beside_a_yardstick() -> None:
    row = loops.timed(loops.Loop("some", ("scheduler=continuous", *loops.batch(2, 20))), "loop", repeats=1)
    assert row.iterations > 20
    assert row.cost == row.us / row.yardstick_us > 0


def test_the_time_of_a_loop_is_shared_out_among_rooms() -> None:
    found = shares(loops.Loop("some", ("scheduler=vllm_spec", *loops.batch(2, 20))))
    assert found.iterations > 5
    assert {"server", "backend", "schedulers", "metrics", "latency"} <= found.rooms.keys()
    assert sum(share for share, _ in found.rooms.values()) == pytest.approx(1.0)


def test_what_ran_at_once_is_counted() -> None:
    loop = loops.Loop("some", ("scheduler=continuous", *loops.batch(2, 60)))
    found, slowly = shares(loop), shares(replace(loop, fields={"fast_forward": False}))
    assert found.iterations == slowly.iterations == slowly.turns
    assert (slowly.at_once, slowly.bookings) == (0, 0)
    assert found.turns + found.at_once - found.bookings == found.iterations
    assert found.bookings > 0


def test_the_cost_of_an_iteration_is_told_by_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "EVERY", 10)
    found = queue.parts("continuous", 1000)
    assert len(found) == queue.PARTS
    assert found[0].queued < found[-1].queued
    assert all(part.us > 0 for part in found)


@pytest.mark.slow
def test_a_sweep_is_timed_step_by_step() -> None:
    rows = list(sweeps.measured(8))
    assert {row.iterations for row in rows} == {8}
    alone, added = (row.us for row in rows if "runs alone" in row.name or "adds" in row.name)
    assert alone > 0
    assert added >= 0
    assert len(rows) == 9


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


def test_without_stored_rows_there_is_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(SpecsimError, match="missing; expected the rows that `make bench` writes"):
        grown([ROW], tmp_path / "bench.parquet")
    store([replace(ROW, name="other")], tmp_path / "bench.parquet")
    with pytest.raises(SpecsimError, match="none of its rows was measured"):
        grown([ROW], tmp_path / "bench.parquet")


def test_another_simulator_replays_the_same_requests(tmp_path: Path) -> None:
    words = loops.batch(3, 20)
    peers.write_trace(tmp_path / "trace.jsonl", words)
    told = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    requests = loops.prepared(("scheduler=continuous", *words)).requests
    assert [each["timestamp"] for each in told] == pytest.approx((requests.arrival_s * 1e3).tolist())
    assert {(each["input_length"], each["output_length"]) for each in told} == {(100, 20)}
    blocks = [block for each in told for block in each["hash_ids"]]
    assert blocks == [0, 1, 2]


def test_a_simulator_that_is_not_installed_has_no_row(tmp_path: Path, monkeypatch, capsys) -> None:
    without = tmp_path / "python"
    without.write_text("#!/bin/sh\nexit 1\n")
    without.chmod(0o755)
    for python in (tmp_path / "nowhere", without):
        monkeypatch.setattr(peers, "DYNAMO", python)
        assert list(peers.measured([ROW])) == []
    assert "dynamo.replay: not measured; expected ai-dynamo in" in capsys.readouterr().err
