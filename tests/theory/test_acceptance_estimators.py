"""What schedulers learn of acceptance is unbiased, in a world whose acceptance is known, at batch 1 and at batch 16."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsim.acceptance.curves import Acceptance, Curve
from specsim.acceptance.trace import AcceptanceTrace
from specsim.core.passes import TargetPass
from specsim.core.protocols import Scheduler
from tests.laws.subjects import factory_of, raw_of
from tests.laws.watch import watched
from tests.made import Hardware, Linear, requests, simulation
from tests.theory.test_acceptance import bernoulli

CHEAP = Hardware(Linear(0.0, 1e-6, 1.0), Linear(0.0, 0.0, 1e-3))
"""Drafting and verifying cost next to nothing beside the weights: every draft pays."""
DEVIATIONS = 4.0
"""An estimate may lie so many standard errors of the tokens behind it from the truth."""
STEPS = 400
NO_OBJECTIVE = 2
BATCHES = (1, 16)


def kept(
    name: str, batch: int, text: AcceptanceTrace, length: int, **overrides: Any
) -> tuple[Scheduler, list[tuple[Any, Any]]]:
    """Run `batch` requests of `length` tokens; return the scheduler and each verification's trees and answer."""
    made: list[Scheduler] = []

    def keeping() -> Scheduler:
        made.append(factory_of(name, **overrides)())
        return made[-1]

    told = requests([0.0] * batch, [3] * batch, [length] * batch, [NO_OBJECTIVE] * batch)
    heard = watched(simulation(told, [length] * batch, keeping, text=text, truth=CHEAP)).heard[0]
    answers = [(each.work.forest, each.answer) for each in heard if isinstance(each.work, TargetPass)]
    return made[0], [each for each in answers if each[0].draft_nodes]


@pytest.mark.parametrize("acceptance", ["global", "per_request"])
@pytest.mark.parametrize("alpha", [pytest.param(0.5, marks=pytest.mark.slow), 0.84])
@pytest.mark.parametrize("batch", BATCHES)
def test_smartspecs_acceptance_is_unbiased(batch: int, alpha: float, acceptance: str) -> None:
    """At batch 1 and chains of 8 the mean of the steps' own ratios reads 0.84 as 0.67."""
    window = STEPS // 2
    length = int(STEPS / (1 - alpha))
    smart: Any
    smart, answers = kept(
        "smartspec", batch, bernoulli(alpha, batch), length, acceptance=acceptance, window=window, max_num_seqs=batch
    )
    assert len(answers) > window, "what the window began with has left it"
    tried = sum(int(np.minimum(told.matched + 1, trees.tree_tokens()).sum()) for trees, told in answers[-window:])
    found = smart.proposal.average.of(np.arange(batch)).mean()
    assert abs(found - alpha) < DEVIATIONS * np.sqrt(alpha * (1 - alpha) / tried)


@pytest.mark.parametrize("batch", BATCHES)
def test_specserves_mean_confidence_is_unbiased(batch: int) -> None:
    agreement = 0.7
    curves = Acceptance({"default": Curve(agreement, 3.0, 0.0, 0.5)}, 4, 1)
    text = curves.acceptance_trace(["text"], np.zeros(batch, dtype=np.int64), np.arange(batch), 0)
    speculation = raw_of("specserve")["speculation"] | {"history_steps": STEPS // 2, "first_confidence": 0.2}
    serve: Any
    serve, answers = kept("specserve", batch, text, 4 * STEPS, speculation=speculation, max_num_seqs=batch)
    assert len(answers) > STEPS // 2
    drafted = sum(trees.draft_nodes for trees, _ in answers[-(STEPS // 2) :])
    confidence = np.sort(text.confidence[:, 0])
    found = serve.speculation.mean_confidence
    assert abs(found - agreement) < DEVIATIONS * confidence.std() / np.sqrt(drafted)
