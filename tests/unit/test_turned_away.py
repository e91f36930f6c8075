"""What is said of the load where clients give up: one server, 1 s a request, 300 requests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsim.api import load_run, simulate
from specsim.metrics.summary import summarise
from specsim.server.admission import Shedding
from specsim.simulation import run
from tests.laws.subjects import factory_of
from tests.made import hardware, requests, simulation

COUNT = 300


def metrics(every_s: float, **more: Any) -> dict[str, Any]:
    """Return the metrics of requests that come every so many seconds, ten passes of 0.1 s each."""
    told = requests((every_s * np.arange(COUNT)).tolist(), [1] * COUNT, [10] * COUNT)
    one = factory_of("continuous", max_num_seqs=1)
    record = run(simulation(told, [10] * COUNT, one, truth=hardware(0.0, 0.0, 0.1), **more))
    return summarise(record.table(), record.totals)


SHED = {"shedding": Shedding(2)}


@pytest.mark.parametrize("more", [{"timeout_s": 3.0}, SHED, SHED | {"timeout_s": 3.0}])
def test_a_server_that_gives_up_a_third_of_what_comes_is_overloaded(more):
    block = metrics(0.67, **more)["specsim"]["load"]
    assert block["overloaded"]
    assert block["steady"] is False
    assert block["turned_away"] >= COUNT / 4
    assert block["makespan_ratio"] >= 1


@pytest.mark.parametrize("more", [{"timeout_s": 3.0}, SHED, {"timeout_s": 0.75}])
def test_a_server_with_time_to_spare_is_not(more):
    """Of the last, each request takes longer than its client waits: more or quicker servers alone would not help."""
    block = metrics(2.0, **more)["specsim"]["load"]
    assert block["turned_away"] == 0
    assert block["overloaded"] is False
    assert block["steady"]


def test_a_run_whose_last_request_is_cancelled_lasts_until_then():
    told = requests([0.0, 10.0], [1, 1], [2, 90])
    record = run(simulation(told, [2, 90], factory_of("continuous"), truth=hardware(0.0, 0.0, 0.1), timeout_s=5.0))
    found = summarise(record.table(), record.totals)
    assert found["duration"] == pytest.approx(15.0, abs=0.11)
    assert found["output_throughput"] == pytest.approx(2 / found["duration"])
    assert sum(found["specsim"]["time_s"].values()) == pytest.approx(found["duration"])
    last = summarise(record.table(), record.totals, (5.0, 10.0))
    assert last["duration"] == pytest.approx(5.0, abs=0.11)
    assert last["output_throughput"] == 0.0


def test_a_stored_run_says_when_each_request_was_cancelled(tmp_path):
    given = {"requests": 30, "rps": 40.0, "acceptance": "bernoulli"}
    simulate("continuous", "poisson", timeout_s=0.5, out=tmp_path / "run", **given)
    rows = load_run(tmp_path / "run").requests
    cancelled = rows["rejected_reason"] == "timeout"
    assert cancelled.any()
    assert (rows["cancelled_s"] >= rows["arrival_s"] + 0.5)[cancelled].all()
    assert rows["cancelled_s"][~cancelled].isna().all()
    assert "cancelled_s" not in simulate("continuous", "poisson", **given).requests
