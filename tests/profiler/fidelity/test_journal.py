"""What is written down of a run is enough to make its times again, and to tell what it decided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from profiler.backend.served import served  # noqa: E402
from profiler.backend.stopwatch import MOVE, DeviceStopwatch  # noqa: E402
from profiler.fidelity.journal import Journal, JournalClock, kind_of  # noqa: E402
from profiler.fidelity.verdicts import Step, accounted  # noqa: E402
from specsim.backend.simulated import SimulatedBackend  # noqa: E402
from specsim.pass_shape import PassShape  # noqa: E402
from specsim.simulation import run  # noqa: E402
from tests.golden.scene import scene  # noqa: E402
from tests.laws.subjects import factory_of  # noqa: E402
from tests.made import requests, simulation  # noqa: E402
from tests.profiler.backend.made import for_drafter  # noqa: E402
from tests.profiler.backend.pairs import CPU, pair  # noqa: E402
from tests.profiler.backend.wild import Wild  # noqa: E402

pytestmark = pytest.mark.torch
THINKING = {"selection_s": 2e-3, "selection_token_s": 1e-4}


def scene_of(name, drafter="separate"):
    return for_drafter(replace(scene(), scheduler=factory_of(name), **THINKING), drafter)


def on_models(simulation, drafter="separate", *, predicted, wall=False):
    """Return the record and the entries of a run on an acceptance trace, on measured or on predicted seconds."""
    entries = []
    clock = JournalClock(DeviceStopwatch(CPU), simulation.truth, simulation.host_bytes_per_s, predicted=predicted)
    made = served(simulation, pair(simulation, drafter), stopwatch=clock, wall=wall)
    thinking = simulation.selection_s, simulation.selection_token_s

    def journal(view):
        return Journal(made.backend(view), clock, thinking, entries, lookup=drafter == "lookup", wall=wall)

    return run(replace(made, backend=journal)), entries


def simulated(simulation):
    entries = []
    thinking = simulation.selection_s, simulation.selection_token_s

    def backend(view):
        inner = SimulatedBackend(simulation.ground_truth, simulation.truth, view, simulation.host_bytes_per_s)
        return Journal(inner, None, thinking, entries, lookup=False)

    return run(replace(simulation, backend=backend)), entries


def decided(entry):
    return entry.role, entry.kind, entry.shape, entry.requests, entry.emitted


def again(record, entries, column):
    steps = (Step(each.requests, each.emitted, each.host_s + getattr(each.time, column)) for each in entries)
    return accounted(steps, record.requests.arrival_s)


@pytest.mark.parametrize(
    ("name", "drafter", "wall"),
    [("adaserve", "separate", False), ("vllm_spec", "lookup", False), ("vllm_spec", "separate", True)],
)
def test_a_run_is_made_again_from_its_own_seconds_and_the_hosts_on_the_walls_clock(name, drafter, wall):
    record, entries = on_models(scene_of(name, drafter), drafter, predicted=False, wall=wall)
    times = again(record, entries, "measured_s")
    np.testing.assert_allclose(times.first_token_s, record.progress.first_token_s, rtol=1e-9)
    np.testing.assert_allclose(times.finish_s, record.progress.finish_s, rtol=1e-9)
    np.testing.assert_array_equal(times.tokens, record.progress.emitted_tokens)
    assert sum(each.host_s for each in entries) > 0 or not wall


def test_caches_that_move_take_their_time_there_too():
    told = requests([0.0] * 6, [5] * 6, [9] * 6)
    moving = replace(simulation(told, [9] * 6, factory_of("vllm_spec")), scheduler=lambda: Wild(0))
    record, entries = on_models(moving, predicted=False)
    assert any(each.role == MOVE for each in entries)
    np.testing.assert_allclose(again(record, entries, "measured_s").finish_s, record.progress.finish_s, rtol=1e-9)


@pytest.mark.parametrize("name", ["continuous", "specserve"])
def test_models_on_the_simulated_clock_are_the_simulation(name):
    simulation = scene_of(name)
    record, entries = on_models(simulation, predicted=True)
    plain, told = simulated(simulation)
    np.testing.assert_array_equal(record.progress.finish_s, plain.progress.finish_s)
    np.testing.assert_array_equal(run(simulation).progress.finish_s, plain.progress.finish_s)
    assert [decided(each) for each in entries] == [decided(each) for each in told]
    assert [each.time.predicted_s for each in entries] == [each.time.predicted_s for each in told]
    assert [each.host_s for each in entries] == [each.host_s for each in told]
    assert any(each.host_s for each in told) == (name == "specserve")
    assert all(each.time.measured_s > 0 for each in entries)
    assert np.isnan([each.time.measured_s for each in told]).all()


@pytest.mark.parametrize(
    ("role", "shape", "kind"),
    [
        ("target", PassShape.decode(50, 3), "target decode"),
        ("target", PassShape.decode(50, 3).with_nodes(5, 90), "target verify"),
        ("target", PassShape.prompt(40, 2), "target prefill"),
        ("target", PassShape.prompt(40)._replace(batched_tokens=41, requests=2), "target mixed"),
        ("draft", PassShape.decode(50, 3), "draft step"),
        ("draft", PassShape.decode(50, 3)._replace(batched_tokens=5), "draft catch-up"),
        ("draft", PassShape.prompt(40, 2), "draft prefill"),
    ],
)
def test_kinds_of_pass(role, shape, kind):
    assert kind_of(role, shape) == kind
