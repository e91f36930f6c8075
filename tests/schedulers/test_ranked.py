"""The order of a queue, in which those that can get no seat are left out before it is sorted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.schedulers.parts import queues
from specsim.schedulers.parts.queues import Lines, nearest
from specsim.simulation import run
from tests.laws.every import assert_same_record
from tests.laws.subjects import factory_of
from tests.made import hardware, requests, simulation


@given(data=st.data(), most=st.integers(1, 12))
def test_the_nearest_are_the_first_of_a_sort(data: st.DataObject, most: int) -> None:
    count = data.draw(st.integers(0, 30))
    few = st.lists(st.sampled_from([0.0, 1.0, 2.0, np.inf, np.nan]), min_size=count, max_size=count)
    one, two = (np.array(data.draw(few), dtype=np.float64) for _ in range(2))
    last = np.array(data.draw(st.permutations(range(count))), dtype=np.int64)
    assert sorted(nearest((one, two, last), most).tolist()) == sorted(np.lexsort((last, two, one))[:most].tolist())


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
