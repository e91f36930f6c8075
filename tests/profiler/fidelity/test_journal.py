"""The journal of a run makes its times again and tells its decisions; the trace of texts decoded alone."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from profiler.backend.future import OracleText  # noqa: E402
from profiler.backend.known import Known  # noqa: E402
from profiler.backend.served import served  # noqa: E402
from profiler.backend.stopwatch import MOVE, DeviceStopwatch  # noqa: E402
from profiler.fidelity.journal import Journal, JournalClock, kind_of  # noqa: E402
from profiler.fidelity.serving import acceptance_trace_of, differing  # noqa: E402
from profiler.fidelity.verdicts import Step, accounted  # noqa: E402
from specsim.pass_shape import PassShape  # noqa: E402
from specsim.rng import mix  # noqa: E402
from specsim.simulated_backend import SimulatedBackend  # noqa: E402
from specsim.simulation import run  # noqa: E402
from tests.golden.scene import scene  # noqa: E402
from tests.laws.subjects import factory_of  # noqa: E402
from tests.made import requests, simulation  # noqa: E402
from tests.profiler.backend.made import Wild, for_drafter  # noqa: E402
from tests.profiler.backend.pairs import CPU, pair  # noqa: E402

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


LIKELY = np.zeros((3, 2), dtype=np.int64)
SURE = np.array([[0.9], [0.0], [0.4]])
TEXTS = [
    OracleText(np.array([5, 6, 7]), SURE, np.array([0, 1, 1]), LIKELY, np.array([[0.6, 0.3]] * 3)),
    OracleText(np.array([8, 9]), np.array([[0.2], [0.3]]), np.array([1, 0]), LIKELY[:2], np.array([[0.5, 0.5]] * 2)),
]


def rows_of(acceptance_trace, request, positions):
    requests, at = np.full(len(positions), request), np.array(positions)
    keys = acceptance_trace.on_path(requests, at)
    return acceptance_trace.rows(requests, keys, mix(keys), np.ones(len(at), dtype=np.bool_), np.zeros_like(requests))


def test_each_request_reads_its_own_text_and_begins_again_behind_its_end():
    acceptance_trace = acceptance_trace_of(TEXTS, 0, None)
    np.testing.assert_array_equal(rows_of(acceptance_trace, 0, [0, 1, 2, 3]), [0, 1, 2, 0])
    np.testing.assert_array_equal(rows_of(acceptance_trace, 1, [0, 1, 2]), [3, 4, 3])
    np.testing.assert_array_equal(acceptance_trace.rank, [0, 1, 1, 1, 0])
    np.testing.assert_allclose(acceptance_trace.confidence[:, 0], [0.9, 1e-7, 0.4, 0.2, 0.3])


def test_a_lookup_proposes_nothing_without_a_match_also_behind_a_wrong_token_where_a_model_says_what_it_says():
    lookup = acceptance_trace_of([TEXTS[0]._replace(confidence=np.array([[1.0], [0.0], [1.0]]))], 0, 0.5)
    np.testing.assert_allclose(lookup.confidence[:, 0], [0.5, 0, 0.5, 0.5])
    assert lookup.silent
    keys = np.arange(50).astype(np.uint64) * np.uint64(977)
    away, nobody = np.zeros(50, dtype=np.bool_), np.zeros(50, dtype=np.int64)
    assert set(lookup.rows(nobody, keys, mix(keys), away, np.zeros_like(nobody)).tolist()) == {3}
    model = acceptance_trace_of(TEXTS, 0, None)
    assert set(model.rows(nobody, keys, mix(keys), away, np.zeros_like(nobody)).tolist()) == set(range(5))


def test_texts_that_differ_are_counted_with_the_gap_where_they_begin_to():
    known = Known([np.array([1]), np.array([1])], np.array([3, 2]))
    known.emit(0, np.array([5, 0, 0]))
    known.emit(1, np.array([8, 9]))
    assert differing(known, TEXTS, np.array([0, 1])) == (1, pytest.approx(np.log(2)))
    assert differing(known, TEXTS, np.array([1])) == (0, 0.0)
