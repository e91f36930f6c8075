"""Class and luck belong to (seed, row of the trace): what else a study changes redraws nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specsim.acceptance.curves import Acceptance, Curve, draw_tape
from specsim.acceptance.tape import Tape
from specsim.config.compose import compose
from specsim.rng import mix
from specsim.runs.prepare import prepare
from specsim.simulation import Simulation
from specsim.workload.slo import mix_from_mapping, promise
from specsim.workload.trace import Trace, TraceSource
from tests.laws.subjects import NAMES, factory_of
from tests.laws.watch import watched
from tests.made import requests, simulation

ACCEPTANCE = Acceptance({"default": Curve(0.7, 8.0, 0.5, 0.5)}, width=4, levels=8)
MIX = mix_from_mapping(
    {
        "classes": {
            "tight": {"share": 0.5, "tpot_ratio": 1.2, "max_tokens": 64, "scaled": True},
            "loose": {"share": 0.3, "tpot_s": 0.1, "max_tokens": 16},
            "none": {"share": 0.2, "max_tokens": 32},
        }
    },
    "slo",
)


def trace(count: int = 200) -> Trace:
    at = np.arange(count)
    return Trace(at * 0.25, 1 + at * 7 % 50, 1 + at * 11 % 60, at, TraceSource("made", "synthetic"))


def world_of(part: Trace, seed: int = 0, slo_scale: float = 1.0) -> tuple[Any, Tape]:
    promised = promise(MIX, part, seed=seed, baseline_s=0.02, slo_scale=slo_scale)
    return promised, draw_tape(ACCEPTANCE, promised.acceptance, promised.requests.slo_class, part.row, seed)


def luck(tape: Tape, count: int) -> tuple[Any, Any]:
    """Return the rows that the first `count` requests read at their first 9 positions."""
    ids, positions = np.repeat(np.arange(count), 9), np.tile(np.arange(9), count)
    keys = tape.on_path(ids, positions)
    rows = tape.rows(ids, keys, mix(keys), np.ones(len(ids), dtype=np.bool_), np.zeros_like(ids))
    return tape.confidence[rows], tape.rank[rows]


def assert_same_luck(one: tuple[Any, Tape], other: tuple[Any, Tape], count: int) -> None:
    assert np.array_equal(one[0].requests.slo_class[:count], other[0].requests.slo_class[:count])
    assert np.array_equal(one[0].output_tokens[:count], other[0].output_tokens[:count])
    for mine, theirs in zip(luck(one[1], count), luck(other[1], count), strict=True):
        assert np.array_equal(mine, theirs)


def test_fewer_requests_are_a_prefix() -> None:
    assert_same_luck(world_of(trace()), world_of(trace().head(37)), 37)


def test_luck_stays_with_the_row_when_a_window_cuts_the_front_off() -> None:
    whole, later = world_of(trace()), world_of(trace().window(10.0))
    assert later[0].requests.slo_class.tolist() == whole[0].requests.slo_class[40:].tolist()
    assert later[1].keys.tolist() == whole[1].keys[40:].tolist()
    assert later[1].layout.start.tolist() == whole[1].layout.start[40:].tolist()


@pytest.mark.parametrize("changed", [{"slo_scale": 0.5}, {"rps": 9.0}])
def test_load_and_objectives_redraw_nothing(changed: dict[str, float]) -> None:
    part = trace().at_rate(changed["rps"]) if "rps" in changed else trace()
    other = world_of(part, slo_scale=changed.get("slo_scale", 1.0))
    assert_same_luck(world_of(trace()), other, 200)


def test_another_seed_redraws_both() -> None:
    one, other = world_of(trace()), world_of(trace(), seed=1)
    assert not np.array_equal(one[0].requests.slo_class, other[0].requests.slo_class)
    assert not np.array_equal(luck(one[1], 200)[1], luck(other[1], 200)[1])


def test_shares_are_those_of_the_mix_and_scale_only_the_scaled() -> None:
    promised, _ = world_of(trace(20_000), slo_scale=0.5)
    told = promised.requests
    shares = np.bincount(told.slo_class) / len(told)
    assert np.abs(shares - [0.5, 0.3, 0.2]).max() < 4 * np.sqrt(0.25 / len(told))
    assert set(told.tpot_slo_s[told.slo_class == 0]) == {1.2 * 0.02 * 0.5}
    assert set(told.tpot_slo_s[told.slo_class == 1]) == {0.1}
    assert np.isnan(told.tpot_slo_s[told.slo_class == 2]).all()
    assert (promised.output_tokens <= told.max_tokens).all()
    assert np.array_equal(promised.output_tokens, np.minimum(trace(20_000).output_tokens, told.max_tokens))


def test_what_the_command_line_changes_redraws_nothing() -> None:
    """The same through the whole door: YAMLs in, simulation out."""
    words = {"trace": "poisson", "scheduler": "continuous", "requests": "60"}
    plain = _prepared(words)
    for other in ({"rps": "7"}, {"slo_scale": "0.7"}, {"replicas": "2"}, {"scheduler": "adaserve"}, {"requests": "25"}):
        changed = _prepared(words | other)
        count = len(changed.requests)
        assert np.array_equal(changed.requests.slo_class, plain.requests.slo_class[:count]), other
        assert np.array_equal(changed.world.output_tokens, plain.world.output_tokens[:count]), other
        assert np.array_equal(changed.world.tape.keys, plain.world.tape.keys[:count]), other
        assert np.array_equal(changed.world.tape.layout.start, plain.world.tape.layout.start[:count]), other
    assert not np.array_equal(_prepared(words | {"seed": "3"}).world.tape.keys, plain.world.tape.keys)


def _prepared(words: dict[str, str]) -> Simulation:
    return prepare(compose(words)).simulation


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
