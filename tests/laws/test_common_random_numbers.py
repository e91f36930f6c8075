"""Class and luck belong to (seed, row of the trace): what else a study changes redraws nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specsim.config.configured import from_point
from specsim.runs.prepare import prepare
from specsim.simulation import Simulation
from tests.laws.subjects import NAMES, factory_of
from tests.laws.watch import watched
from tests.made import requests, simulation

WORDS = {"trace": "poisson", "scheduler": "continuous", "requests": "60"}
CHANGES = ({"rps": "7"}, {"slo_scale": "0.7"}, {"replicas": "2"}, {"scheduler": "adaserve"}, {"requests": "25"})


def prepared(words: dict[str, str]) -> Simulation:
    return prepare(from_point(words)).simulation


def drawn(of: Simulation, rows: slice) -> list[list[int]]:
    """Return the classes, outputs, keys of texts and places in the pools of these requests."""
    acceptance_trace = of.ground_truth.acceptance_trace
    columns = (
        of.requests.slo_class,
        of.ground_truth.output_tokens,
        acceptance_trace.keys,
        acceptance_trace.layout.start,
    )
    return [each[rows].tolist() for each in columns]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_what_the_command_line_changes_redraws_nothing(change: dict[str, str]) -> None:
    changed = prepared(WORDS | change)
    rows = slice(len(changed.requests))
    assert drawn(changed, rows) == drawn(prepared(WORDS), rows)


def test_luck_stays_with_the_row_when_a_window_cuts_the_front_off() -> None:
    words = {"trace": "azure_conv", "scheduler": "continuous"}
    whole, later = prepared(words | {"trace.window": "[0,60]"}), prepared(words | {"trace.window": "[20,60]"})
    assert 10 < len(later.requests) < len(whole.requests)
    assert drawn(later, slice(None)) == drawn(whole, slice(-len(later.requests), None))


def test_another_seed_redraws_both() -> None:
    one, other = (drawn(prepared(WORDS | {"seed": seed}), slice(None)) for seed in "03")
    assert all(not np.array_equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


@pytest.mark.parametrize(
    "name", [each if place % 3 == 0 else pytest.param(each, marks=pytest.mark.slow) for place, each in enumerate(NAMES)]
)
def test_the_text_is_the_same_for_every_schedule(name: str) -> None:
    """What the drafter says behind (request, position) never depends on batch, replicas, memory or preemption."""
    count = 12
    told = requests([0.01 * each for each in range(count)], [5] * count, [30] * count)
    simulated = simulation(told, [30] * count, factory_of(name))
    tight = replace(simulated, memory=replace(simulated.memory, capacity_bytes=simulated.memory.capacity_bytes // 60))
    assert tight.memory.capacity_bytes >= simulated.memory.bytes_of(35, 35)
    heard = [_first_proposals(each) for each in (simulated, tight, replace(simulated, replicas=3))]
    reference = _first_proposals(replace(simulated, scheduler=factory_of("vllm_spec", num_speculative_tokens=1)))
    assert len(reference) > 100
    for proposals in heard:
        shared = proposals.keys() & reference.keys()
        assert bool(shared) == bool(proposals)
        assert all(proposals[key] == reference[key] for key in shared)


def _first_proposals(simulated: Simulation) -> dict[tuple[int, int], float]:
    """Return the drafter's confidence in its likeliest token behind each (request, emitted tokens) it was asked at."""
    said: dict[tuple[int, int], float] = {}
    for heard in watched(simulated).heard:
        position = np.zeros(len(simulated.requests), dtype=int)
        for step in heard:
            if hasattr(step.answer, "tokens"):
                position[step.work.requests] += step.answer.tokens
                continue
            forest = step.answer
            first = (forest.depth == 1) & (forest.token == 0)
            for row, sure in zip(forest.row[first].tolist(), forest.probability[first].tolist(), strict=True):
                request = int(step.work.requests[row])
                assert said.setdefault((request, int(position[request])), sure) == sure
    return said
