"""A real run emits what the target says alone, whoever schedules and drafts; on a tape it is the simulated run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from profiler.passes.forward import Forward  # noqa: E402
from profiler.passes.graphs import Replays  # noqa: E402
from specsim.metrics.recorder import Record  # noqa: E402
from specsim.simulation import Simulation, run  # noqa: E402
from tests.golden.scene import scene  # noqa: E402
from tests.laws.every import assert_same_record  # noqa: E402
from tests.laws.subjects import NAMES, factories, factory_of  # noqa: E402
from tests.made import memory  # noqa: E402
from tests.profiler.backend.made import assert_lossless, for_drafter, real, small  # noqa: E402
from tests.profiler.backend.pairs import DRAFTERS, pair  # noqa: E402
from tests.profiler.backend.wild import Wild  # noqa: E402
from tests.profiler.passes.graph import rerun  # noqa: E402

pytestmark = pytest.mark.torch
FEW = ("adaserve", "adaserve_clairvoyant", "laps_sd", "smartspec_oracle", "specserve", "vllm_spec")
PAIRS = [(name, DRAFTERS[place % 3]) for place, name in enumerate(FEW)] + [("adaserve", each) for each in DRAFTERS[1:]]
"""Each of a few schedulers with one drafter, one of them with all; the thorough test has every scheduler with each."""
QUICK, LONG = 3, 2
KEPT_SUMS = 1e-12
"""Relative error of seconds that are shared out by bytes, where the simulated run divides bytes by a rate."""


def lossless(name: str, drafter: str, examples: int) -> Counter[str]:
    """Run drawn simulations for real; return how much has happened in them that may go wrong."""
    seen: Counter[str] = Counter()

    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def decoded(data: st.DataObject) -> None:
        simulation = drawn(data, name, drafter)
        record, known, _ = real(simulation, drafter)
        assert_lossless(simulation, record, known)
        seen.update(happened(record))

    decoded()
    return seen


def on_a_tape(name: str, drafter: str, examples: int) -> None:
    """Run drawn simulations for real on the clock of their latency model, and simulated: they are the same run."""

    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def compared(data: st.DataObject) -> None:
        simulation = drawn(data, name, drafter)
        assert_same_run(real(simulation, drafter, tape=True).record, run(simulation))

    compared()


def drawn(data: st.DataObject, name: str, drafter: str) -> Simulation:
    simulation = data.draw(small(drafter), label="simulation")
    return replace(simulation, scheduler=data.draw(factories(name), label="scheduler"))


def happened(record: Record) -> dict[str, int]:
    progress = record.progress
    return {
        "preempted": int(progress.preemptions.sum()),
        "moved": int((progress.moved_bytes > 0).sum()),
        "accepted": int(progress.accepted_tokens.sum()),
        "refused": int((progress.draft_tokens - progress.accepted_tokens).sum()),
    }


def assert_same_run(record: Record, told: Record) -> None:
    np.testing.assert_allclose(record.moving_s, told.moving_s, rtol=KEPT_SUMS)
    np.testing.assert_allclose(record.totals.moving_s, told.totals.moving_s, rtol=KEPT_SUMS)
    assert_same_record(replace(record, totals=replace(record.totals, moving_s=told.totals.moving_s)), told)


@pytest.mark.parametrize(("name", "drafter"), PAIRS)
def test_the_output_is_the_targets_own(name, drafter):
    lossless(name, drafter, QUICK)


@pytest.mark.parametrize(("name", "drafter"), PAIRS)
def test_on_a_tape_and_the_profiles_clock_it_is_the_simulated_run(name, drafter):
    on_a_tape(name, drafter, QUICK)


@pytest.mark.parametrize("kernel", ["sdpa", "split"])
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("name", ["adaserve", "laps_sd", "vllm_spec"])
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


def short_of_memory(name: str, drafter: str) -> dict[str, int]:
    """Run the scene of the golden files for real, whose pool holds a few of its requests; return what happened."""
    simulation = replace(for_drafter(scene(), drafter), scheduler=factory_of(name))
    record, known, _ = real(simulation, drafter)
    assert_lossless(simulation, record, known)
    assert_same_run(real(simulation, drafter, tape=True).record, run(simulation))
    return happened(record)


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("name", ["adaserve", "specinfer", "vllm_spec"])
def test_a_run_short_of_memory_evicts_and_accepts_and_refuses_drafts(name, drafter):
    seen = short_of_memory(name, drafter)
    assert seen["preempted"] > 0
    assert seen["accepted"] > 20
    assert seen["refused"] > 20


@pytest.mark.parametrize("drafter", DRAFTERS)
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data(), seed=st.integers(0, 10_000))
def test_whatever_a_scheduler_may_ask_for(drafter, data, seed):
    """Roots that wait for their logits, trees that are pruned and dropped, caches that leave and come back."""
    simulation = replace(data.draw(small(drafter)), scheduler=lambda: Wild(seed))
    simulation = replace(simulation, memory=memory(simulation.requests, 100.0, 4, int(drafter != "lookup")))
    record, known, _ = real(simulation, drafter)
    assert_lossless(simulation, record, known)
    assert_same_run(real(simulation, drafter, tape=True).record, run(simulation))


@pytest.mark.slow
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("name", NAMES)
def test_under_every_scheduler(name, drafter):
    short_of_memory(name, drafter)
    lossless(name, drafter, LONG)
    on_a_tape(name, drafter, LONG)
