"""Class and luck belong to (seed, row of the trace): what else a study changes redraws nothing."""

from __future__ import annotations

import numpy as np
import pytest

from specsim.config.configured import from_point
from specsim.runs.prepare import prepare
from specsim.simulation import Simulation

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
