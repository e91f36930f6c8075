"""A real run emits what the target says alone, whoever schedules; with drawn acceptance it is the simulated run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from profiler.passes.forward import Forward  # noqa: E402
from profiler.passes.graphs import Replays  # noqa: E402
from specsim.server.state import Progress  # noqa: E402
from specsim.simulation import Simulation, run  # noqa: E402
from tests.golden.scene import scene  # noqa: E402
from tests.laws.every import assert_same_record  # noqa: E402
from tests.laws.subjects import KINDS, NAMES, factories, factory_of  # noqa: E402
from tests.made import memory  # noqa: E402
from tests.profiler.backend.made import Wild, assert_lossless, for_drafter, real, small  # noqa: E402
from tests.profiler.backend.pairs import DRAFTERS, SHAPE, pair  # noqa: E402
from tests.profiler.passes.layouts import rerun  # noqa: E402

pytestmark = pytest.mark.torch
KEPT_SUMS = 1e-12
"""Relative error of seconds that are shared out by bytes, where the simulated run divides bytes by a rate."""


def assert_served(simulation: Simulation, drafter: str) -> Progress:
    """Run for real, and with drawn acceptance and the clock of the latency model; return what happened in the first.

    Where acceptance is drawn, models say nothing: they are of a layer, and one with skipped layers is like any other.
    """
    record, known, _ = real(simulation, drafter)
    assert_lossless(simulation, record, known)
    if drafter == "layers_skipped":
        return record.progress
    models = pair(simulation, drafter, shape=replace(SHAPE, layers=1))
    drawn, told = real(simulation, drafter, acceptance_trace=True, models=models).record, run(simulation)
    np.testing.assert_allclose(drawn.moving_s, told.moving_s, rtol=KEPT_SUMS)
    np.testing.assert_allclose(drawn.totals.moving_s, told.totals.moving_s, rtol=KEPT_SUMS)
    assert_same_record(replace(drawn, totals=replace(drawn.totals, moving_s=told.totals.moving_s)), told)
    return record.progress


@pytest.mark.parametrize(
    ("name", "drafter", "kernel"),
    [("adaserve", "separate", "split"), ("vllm_spec", "layers_skipped", "sdpa"), ("laps_sd", "lookup", "split")],
)
def test_replayed_passes_say_the_same(name, drafter, kernel):
    """Graphs are captured in the midst of a run, and take over rows that come and go."""
    simulation = replace(for_drafter(scene(), drafter), scheduler=factory_of(name))
    models = pair(simulation, drafter, kernel)
    forwards = [each for each in (models.target, models.draft) if isinstance(each, Forward)]
    for each in forwards:
        each.replays = Replays(each, rerun)
    record, known, _ = real(simulation, drafter, models=models)
    assert_lossless(simulation, record, known)
    assert all(len(each.replays) for each in forwards)


@pytest.mark.parametrize("drafter", DRAFTERS)
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data(), seed=st.integers(0, 10_000))
def test_whatever_a_scheduler_may_ask_for(drafter, data, seed):
    """Roots that wait for their logits, trees that are pruned and dropped, caches that leave and come back."""
    simulation = replace(data.draw(small(drafter)), scheduler=lambda: Wild(seed))
    roomy = memory(simulation.requests, 100.0, 4, int(drafter != "lookup"))
    assert_served(replace(simulation, memory=roomy), drafter)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "drafter"),
    [(name, each) for name in NAMES for each in DRAFTERS if name in KINDS or each != "layers_skipped"],
)
def test_under_every_scheduler(name, drafter):
    """Also short of memory, as the scene of the golden files is: its pool holds a few of its requests."""
    seen = assert_served(replace(for_drafter(scene(), drafter), scheduler=factory_of(name)), drafter)
    if name == "adaserve":
        assert seen.preemptions.sum() > 0
        assert seen.accepted_tokens.sum() > 20
        assert (seen.draft_tokens - seen.accepted_tokens).sum() > 20

    @settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def compared(data: st.DataObject) -> None:
        simulation = data.draw(small(drafter), label="simulation")
        assert_served(replace(simulation, scheduler=data.draw(factories(name), label="scheduler")), drafter)

    compared()
