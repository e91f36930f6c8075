"""Passes that nothing comes between run at once, and leave what they leave one by one."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

import specsim.results.pauses
import specsim.simulation
from specsim.errors import IllegalPass
from specsim.replica.passes import TargetPass
from specsim.replica.protocols import Step, View
from specsim.replica.trees import Forest
from specsim.schedulers.continuous import decode
from specsim.simulation import Simulation, run
from specsim.world.backend import SimulatedBackend
from tests.laws.every import assert_same_record
from tests.laws.subjects import factory_of
from tests.made import memory, requests, simulation

REPEATING = ("continuous", "sarathi", "fcfs")


def busy(name: str, **more: object) -> Simulation:
    """Return a run of bursts and of pauses, with outputs of many lengths."""
    luck = np.random.default_rng(3)
    count = 40
    at = np.sort(luck.choice([0.0, 1.0, 1.5, 40.0], count) + luck.uniform(0, 0.4, count))
    outputs = luck.integers(1, 90, count)
    told = requests(at.tolist(), luck.integers(1, 60, count).tolist(), outputs.tolist())
    return replace(simulation(told, outputs.tolist(), factory_of(name)), **more)


def asked(of: Simulation) -> tuple[int, int]:
    """Return how many iterations a run has, and how many of them the backend was asked for one by one."""
    verified = 0

    class Counting(SimulatedBackend):
        def verify(self, *given):
            nonlocal verified
            verified += 1
            return super().verify(*given)

    with patch.object(specsim.simulation, "SimulatedBackend", Counting):
        return run(of).totals.iterations, verified


@pytest.mark.parametrize("name", REPEATING)
def test_most_decoding_passes_are_not_asked_for_one_by_one(name: str) -> None:
    iterations, verified = asked(busy(name))
    assert verified < iterations / 2
    assert asked(busy(name, fast_forward=False)) == (iterations, iterations)


@pytest.mark.parametrize("name", REPEATING)
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"replicas": 3},
        {"pipeline_steps": 1},
        {"pipeline_steps": 2, "frontend_s": 0.013},
        {"concurrency": 5},
        {"concurrency": 7, "replicas": 2},
        {"window": (0.2, 1.6)},
    ],
    ids=str,
)
def test_they_leave_the_same_record(name: str, more: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specsim.results.pauses, "BLOCK", 50)
    assert_same_record(run(busy(name, **more)), run(busy(name, fast_forward=False, **more)))


@pytest.mark.parametrize("factor", [1.0, 1.3, 3.0])
@pytest.mark.parametrize("name", REPEATING)
def test_they_leave_the_same_record_where_memory_is_short(name: str, factor: float) -> None:
    of = busy(name)
    of = replace(of, memory=memory(of.requests, factor))
    found = run(of)
    assert_same_record(found, run(replace(of, fast_forward=False)))
    assert name == "fcfs" or factor > 1.3 or found.progress.preemptions.any()


class Resting:
    """Lets only the oldest request decode, and says that it would again."""

    def step(self, view: View) -> Step:
        if len(view.waiting):
            ids = np.array(view.waiting[:1])
            yield TargetPass(ids, view.pending(ids), Forest.roots(1))
        else:
            yield TargetPass(view.running[:1], np.ones(1, dtype=np.int64), Forest.roots(1), repeat=True)


def test_rows_that_rest_stay_as_they_are() -> None:
    of = simulation(requests([0.0, 0.0, 0.7], [4, 5, 6], [80, 40, 9]), [70, 40, 9], Resting)
    assert_same_record(run(of), run(replace(of, fast_forward=False)))


class Counting:
    """Takes the passes of `continuous` through the function that plug-ins use, and counts its steps."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self, view: View) -> Step:
        self.steps += 1
        if len(view.waiting):
            ids = np.array(view.waiting)
            yield TargetPass(ids, view.pending(ids), Forest.roots(len(ids)))
        else:
            yield decode(view)


def test_who_says_nothing_is_asked_before_each_pass() -> None:
    counting = Counting()
    record = run(simulation(requests([0.0], [4], [80]), [70], lambda: counting))
    assert counting.steps == record.totals.iterations == 70


def test_the_word_of_a_scheduler_is_checked() -> None:
    class Wrong:
        def step(self, view: View) -> Step:
            ids = np.array(view.waiting)
            yield TargetPass(ids, view.pending(ids), Forest.roots(len(ids)), repeat=3)  # type: ignore[arg-type]

    with pytest.raises(IllegalPass, match=r"TargetPass.repeat is 3 \(int\); expected True or False"):
        run(simulation(requests([0.0], [4], [9]), [3], Wrong))
