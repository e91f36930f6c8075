"""What schedulers learn of acceptance is unbiased, in a world whose acceptance is known, at batch 1 and at batch 16."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsim.acceptance.curves import Acceptance, Curve, draw_tape
from specsim.acceptance.tape import Tape
from specsim.core.passes import TargetPass
from specsim.core.protocols import Scheduler
from specsim.schedulers.smartspec.tree import HeadAverage
from specsim.simulation import run
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


def kept(name: str, batch: int, text: Tape, length: int, **overrides: Any) -> tuple[Scheduler, list[tuple[Any, Any]]]:
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


@pytest.mark.parametrize("alpha", [0.3, 0.84])
@pytest.mark.parametrize("batch", BATCHES)
def test_a_heads_acceptance_is_unbiased_whatever_the_widths_of_the_steps(batch: int, alpha: float) -> None:
    """The narrow steps alone, each trial of one token, bound the error of all."""
    rng, average = np.random.default_rng(batch), HeadAverage(2, STEPS, 0.5)
    tried = np.zeros(2)
    for step in range(STEPS):
        top = np.array([1, 1]) if step % 2 else np.array([4, 2])
        right = np.logical_and.accumulate(rng.random((batch, 2)) < 1 - (1 - alpha) ** top, axis=1)
        average.learn(top, np.full(batch, 2), right.sum(axis=1))
        tried += (step % 2) * np.array([batch, right[:, 0].sum()])
    assert (np.abs(average.rates() - alpha) < DEVIATIONS * np.sqrt(alpha * (1 - alpha) / tried)).all()


@pytest.mark.parametrize("batch", BATCHES)
def test_specserves_mean_confidence_is_unbiased(batch: int) -> None:
    agreement = 0.7
    curves = Acceptance({"default": Curve(agreement, 3.0, 0.0, 0.5)}, 4, 1)
    text = draw_tape(curves, ["text"], np.zeros(batch, dtype=np.int64), np.arange(batch), 0)
    speculation = raw_of("specserve")["speculation"] | {"history_steps": STEPS // 2, "first_confidence": 0.2}
    serve: Any
    serve, answers = kept("specserve", batch, text, 4 * STEPS, speculation=speculation, max_num_seqs=batch)
    assert len(answers) > STEPS // 2
    drafted = sum(trees.draft_nodes for trees, _ in answers[-(STEPS // 2) :])
    confidence = np.sort(text.confidence[:, 0])
    found = serve.speculation.mean_confidence
    assert abs(found - agreement) < DEVIATIONS * confidence.std() / np.sqrt(drafted)


@pytest.mark.parametrize("batch", [pytest.param(1, marks=pytest.mark.slow), 16])
def test_laps_sds_perceived_rate_is_unbiased(batch: int) -> None:
    """A_i is accepted / drafted, a + a^2 + ... + a^n over n: of 64 requests, each perceived after 40 rounds."""
    alpha, drafted, count = 0.84, 4, 64
    batching = raw_of("laps_sd")["batching"]
    batching["acceptance"] |= {"window": 40, "spread": 1.1}
    made: list[Any] = []

    def keeping() -> Any:
        made.append(factory_of("laps_sd", batching=batching, max_num_seqs=batch)())
        return made[-1]

    told = requests([0.0] * count, [3] * count, [300] * count)
    run(simulation(told, [300] * count, keeping, text=bernoulli(alpha, count), truth=CHEAP))
    rate = made[0].batching.acceptance.rate
    expected = (alpha ** np.arange(1, drafted + 1)).mean()
    assert abs(rate.mean() - expected) < DEVIATIONS * rate.std(ddof=1) / np.sqrt(count)
