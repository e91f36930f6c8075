"""Clients that wait for their answer before they send their next request."""

from dataclasses import replace

import numpy as np
import pytest

from specsim import simulate
from specsim.simulation import run
from tests.laws.subjects import factory_of
from tests.made import requests, simulation


@pytest.mark.parametrize(("clients", "frontend_s", "pipeline_steps"), [(1, 0.0, 0), (2, 0.04, 0), (3, 0.04, 1)])
def test_thousands_of_rejections_in_a_row_are_answers(clients, frontend_s, pipeline_steps):
    """The first request is rejected while others are still being sent, and the rest outnumber Python's stack."""
    prompts = [4_000, 4, 4, *[4_000] * 2_000, 4]
    n = len(prompts)
    told = requests([0.0] * n, prompts, [4] * n, [0] * n)
    simulated = simulation(told, [4] * n, factory_of("continuous"))
    small = replace(simulated, memory=replace(simulated.memory, capacity_bytes=200), concurrency=clients)
    record = run(replace(small, frontend_s=frontend_s, pipeline_steps=pipeline_steps))
    assert sorted(record.rejected) == [0, *range(3, n - 1)]
    assert np.isfinite(record.progress.finish_s[[1, 2, n - 1]]).all()
    assert (np.diff(record.requests.arrival_s) >= 0).all()


def test_a_run_says_that_it_is_a_closed_loop():
    done = simulate("continuous", "poisson", requests=25, concurrency=8)
    load = done.metrics["specsim"]["load"]
    assert (load["clients"], load["overloaded"], load["makespan_ratio"]) == (8, None, None)
    assert any("the trace's arrivals are not used" in note for note in done.notes)
    assert any(note.startswith("too short: slo_attainment is known to") for note in done.notes)
    assert simulate("continuous", "poisson", requests=9).metrics["specsim"]["load"]["clients"] is None
