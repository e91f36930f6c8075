"""The order of a queue, in which those that can get no seat are left out before it is sorted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.schedulers import laps_sd
from specsim.schedulers.parts import queues
from specsim.schedulers.parts.queues import Lines, nearest
from specsim.server.state import SPARSE, RequestQueues, SharedRows
from specsim.simulation import run
from tests.laws.every import assert_same_record
from tests.laws.subjects import factory_of
from tests.made import hardware, requests, simulation

ORDERED = ("priority", "fastserve", "stta", "srpt")


@given(data=st.data(), most=st.integers(1, 12))
def test_the_nearest_are_the_first_of_a_sort(data: st.DataObject, most: int) -> None:
    count = data.draw(st.integers(0, 30))
    few = st.lists(st.sampled_from([0.0, 1.0, 2.0, np.inf, np.nan]), min_size=count, max_size=count)
    one, two = (np.array(data.draw(few), dtype=np.float64) for _ in range(2))
    last = np.array(data.draw(st.permutations(range(count))), dtype=np.int64)
    assert sorted(nearest((one, two, last), most).tolist()) == sorted(np.lexsort((last, two, one))[:most].tolist())


@given(data=st.data())
def test_the_line_is_the_same_as_an_array(data: st.DataObject) -> None:
    """Near each other and far apart, before and behind ones that run or have ended."""
    size = 4 * SPARSE
    rows = SharedRows.of(size)
    queues = RequestQueues(rows.at, rows.admitted, rows.seat, 0)
    here = data.draw(st.lists(st.integers(0, size - 1), unique=True, max_size=20))
    for request in here:
        queues.enter(request)
    inside = np.array(data.draw(st.lists(st.sampled_from(here), unique=True)) if here else [], dtype=np.int64)
    queues.admit(inside)
    queues.end(inside[::2])
    left = set(inside[1::2].tolist())
    back = data.draw(st.lists(st.sampled_from(sorted(left)), unique=True)) if left else []
    if back:
        queues.evict(np.array(back, dtype=np.int64), np.zeros(0, dtype=np.int64))
    waiting = {*here} - {*inside.tolist()} | {*back}
    gone = data.draw(st.lists(st.sampled_from(sorted(waiting | left)), unique=True)) if waiting | left else []
    for request in gone:
        queues.strike(request)
    waiting -= {*gone}
    assert queues.waiting_ids.tolist() == sorted(waiting) == list(queues.waiting)
    assert np.flatnonzero(queues.waits(slice(None))).tolist() == sorted(waiting)


@pytest.mark.parametrize("name", ORDERED)
def test_what_is_left_out_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    count = 80
    at = np.sort(rng.uniform(0, 0.4, count)).tolist()
    outputs, kinds = rng.integers(1, 40, count).tolist(), rng.integers(0, 3, count).tolist()
    told = requests(at, rng.integers(1, 60, count).tolist(), outputs, kinds)
    simulated = simulation(told, outputs, factory_of(name, max_num_seqs=6), truth=hardware())
    tight = replace(simulated, memory=replace(simulated.memory, capacity_bytes=simulated.memory.capacity_bytes // 4))
    short = [run(each) for each in (simulated, tight)]
    for module in (queues, laps_sd):
        monkeypatch.setattr(module, "nearest", lambda keys, most: np.arange(len(keys[0])))
    for record, each in zip(short, (simulated, tight), strict=True):
        assert_same_record(record, run(each))


@pytest.mark.parametrize("objectives", ["by class", "of each", "none", "endless"])
@pytest.mark.parametrize("few", [0, 20])
def test_the_first_of_each_line_are_those_of_the_whole_queue(
    objectives: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objectives that many share, of which each request has its own, and of which one class has none."""
    rng = np.random.default_rng(5)
    count = 120
    outputs, kinds = rng.integers(1, 40, count).tolist(), rng.integers(0, 3, count).tolist()
    at = np.sort(rng.uniform(0, 0.6, count)).tolist()
    told = requests(at, rng.integers(1, 60, count).tolist(), outputs, kinds)
    own_s = {"of each": rng.uniform(0.01, 0.1, count), "none": np.where(told.slo_class == 1, np.nan, told.tpot_slo_s)}
    own_s["endless"] = np.where(told.slo_class == 2, np.inf, own_s["none"])
    told = replace(told, tpot_slo_s=own_s.get(objectives, told.tpot_slo_s))
    simulated = simulation(told, outputs, factory_of("priority", max_num_seqs=6), truth=hardware())
    tight = replace(simulated, memory=replace(simulated.memory, capacity_bytes=simulated.memory.capacity_bytes // 4))
    monkeypatch.setattr(queues, "FEW", few)
    monkeypatch.setattr(queues, "SPARSE", 3 * few)
    by_lines = [run(each) for each in (simulated, tight)]
    monkeypatch.setattr(Lines, "heads", lambda _, view, numbers, most: np.array(view.waiting, dtype=np.int64))
    for record, each in zip(by_lines, (simulated, tight), strict=True):
        assert_same_record(record, run(each))
