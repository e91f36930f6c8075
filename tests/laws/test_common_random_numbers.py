"""Class and luck belong to (seed, row of the trace): what else a study changes redraws nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from specsim.acceptance.curves import Acceptance, Curve, draw_tape
from specsim.acceptance.tape import Tape
from specsim.config.compose import compose
from specsim.runs.prepare import prepare
from specsim.simulation import Simulation
from specsim.workload.slo import mix_from_mapping, promise
from specsim.workload.trace import Trace, TraceSource

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


def test_luck_stays_with_the_row_when_a_window_cuts_the_front_off() -> None:
    whole, later = world_of(trace()), world_of(trace().window(10.0))
    assert later[0].requests.slo_class.tolist() == whole[0].requests.slo_class[40:].tolist()
    assert later[1].keys.tolist() == whole[1].keys[40:].tolist()
    assert later[1].layout.start.tolist() == whole[1].layout.start[40:].tolist()


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
