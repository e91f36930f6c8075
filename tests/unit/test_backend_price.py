"""What the simulated backend charges for a pass: each of the shape's counts, in its place."""

from __future__ import annotations

import numpy as np
import pytest

from specsim.backend.simulated import SimulatedBackend, World
from specsim.core.passes import DraftPass, TargetPass
from specsim.core.trees import Forest
from specsim.latency.forms import Roofline
from specsim.pass_shape import PassShape
from tests.made import Hardware, ledger_and_view, requests, tape

FORM = Roofline(0.0, 1e-3, 0.0, 0.0, 1e-5, 0.0, pair_s=1e-7, logit_s=1e-2)
SHAPE = PassShape(
    context_tokens=7, batched_tokens=5, attention_pairs=11.0, prefill_tokens=4, logit_tokens=2, requests=1
)
SECONDS = 5e-3 + 7e-5 + 11e-7 + 2e-2


class Priced(Roofline):
    """A model's form with what a drafter says of itself."""

    one_pass, cached, deepest, expands = False, True, 9, False


def test_both_models_charge_what_the_shape_says() -> None:
    _, view = ledger_and_view(requests([0.0], [5], [9]))
    model = Priced(*(getattr(FORM, name) for name in Roofline.__slots__))
    backend = SimulatedBackend(World(np.array([5]), tape(1)), Hardware(model, model), view, 1e6)  # type: ignore[arg-type]
    row, chunk, roots = np.array([0]), np.array([5]), Forest.roots(1)
    assert backend.verify(TargetPass(row, chunk, roots), SHAPE)[1] == pytest.approx(SECONDS)
    assert backend.draft(DraftPass(row, chunk, roots), SHAPE).levels[0].seconds == pytest.approx(SECONDS)
    moved = SHAPE._replace(moved_bytes=2_000_000)
    assert backend.verify(TargetPass(row, chunk, roots), moved)[1] == pytest.approx(SECONDS), (
        "moving is no forward pass"
    )
    assert backend.move(TargetPass(row, chunk, roots), moved) == 2
