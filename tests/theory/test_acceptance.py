"""Geometric acceptance, and what a drawn acceptance trace promises: calibrated, and luck that no schedule moves."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from specsim.acceptance.curves import Acceptance, Curve, level_rates
from specsim.acceptance.trace import AcceptanceTrace
from specsim.config.compose import compose
from specsim.core.passes import NOBODY, DraftPass, TargetPass
from specsim.core.trees import Forest
from specsim.pass_shape import PassShape
from specsim.rng import mix
from specsim.simulated_backend import GroundTruth, SimulatedBackend
from specsim.simulation import run
from tests.laws.every import watched
from tests.laws.subjects import KINDS, factory_of, raw_of
from tests.made import Hardware, Linear, hardware, ledger_and_view, requests, simulation
from tests.theory.test_acceptance_by_position import loaded, text_of

SHAPE = PassShape(1, 1, 1.0, 0, 1, 1)


def one_rate(alpha: float) -> Acceptance:
    return loaded({"kind": "bernoulli", "alpha": alpha, "width": 4})


def bernoulli(alpha: float, count: int) -> AcceptanceTrace:
    return text_of(one_rate(alpha), count)


@pytest.mark.parametrize("alpha", [1e-4, 2.2e-4, 0.5, 0.9995, 0.9999])
def test_a_trace_is_right_as_often_as_it_was_asked_to_be(alpha):
    """Within 5% of the rarer verdict, however rare."""
    text = bernoulli(alpha, 1)
    right = float((text.rank == 0).mean())
    assert abs(right - alpha) < 0.05 * min(alpha, 1 - alpha)
    assert (text.likeliest == alpha).all()


@pytest.mark.parametrize(("alpha", "emitted"), [(0, 1), (1, 5)])
def test_a_drafter_that_is_never_right_or_always_still_drafts(alpha, emitted):
    told = requests([0.0] * 6, [3] * 6, [101] * 6)
    chains = factory_of("vllm_spec", num_speculative_tokens=4)
    (heard,) = watched(simulation(told, [101] * 6, chains, text=bernoulli(alpha, 6))).heard
    full = [step for step in heard if isinstance(step.work, TargetPass) and step.work.forest.draft_nodes == 6 * 4]
    assert len(full) >= 96 // emitted
    assert all((step.answer.tokens == emitted).all() for step in full)


@pytest.mark.parametrize("alpha", [0, 1])
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_scheduler_can_do_without_doubt(name, alpha):
    told = requests([0.0, 0.0, 0.1, 0.4, 0.4], [9, 3, 30, 5, 5], [20] * 5)
    progress = run(simulation(told, [20, 11, 3, 1, 17], factory_of(name), text=bernoulli(alpha, 5))).progress
    assert progress.emitted_tokens.tolist() == [20, 11, 3, 1, 17]
    assert alpha or not progress.accepted_tokens.any()


Told = dict[tuple[int, tuple[int, ...]], float]


def told_by(text: Any, count: int, widths: list[int], ids: Any = None, beam: Any = None, emitted: int = 1) -> Told:
    """Return the confidence of each node that a drafter grows behind requests `ids` of `count`, `emitted` tokens in.

    By request and ranks taken from the root.
    """
    ledger, view = ledger_and_view(requests([0.0] * count, [3] * count, [1_000] * count))
    ledger.progress.emitted_tokens[:] = emitted
    ledger.progress.target_cached[:] = 3 + emitted - 1
    backend = SimulatedBackend(GroundTruth(np.full(count, 999), text), hardware(), view)
    ids = np.arange(count) if ids is None else np.array(ids)
    forest, leaves = Forest.roots(len(ids)), np.arange(len(ids))
    for width in widths:
        before = len(forest)
        forest = backend.draft(DraftPass(ids, NOBODY, forest, leaves, width, beam), SHAPE).forest
        leaves = np.arange(before, len(forest))
    ranks: list[tuple[int, ...]] = [()] * len(forest)
    told = {}
    for node in range(forest.rows, len(forest)):
        ranks[node] = (*ranks[forest.parent[node]], int(forest.token[node]))
        told[int(ids[forest.row[node]]), ranks[node]] = float(forest.probability[node])
    return told


CURVED = Acceptance({"default": Curve(agreement=0.6, concentration=3.0, spread=0.5, tail=0.5)}, 4, 8)


def test_what_a_drafter_says_does_not_depend_on_the_shape_of_the_tree_or_on_who_else_is_drafted():
    text, count = text_of(CURVED, 6), 6
    whole = told_by(text, count, [4, 4, 4, 4])
    assert len(whole) == count * (4 + 16 + 64 + 256)
    assert len(set(whole.values())) > 0.4 * len(whole), "the acceptance trace says the same thing everywhere"
    for widths, beam in (([1] * 4, None), ([2, 3, 1, 4], None), ([4] * 4, 2), ([3] * 4, 3), ([2], None)):
        for ids in ([0, 1, 2, 3, 4, 5], [5, 3, 0], [4]):
            part = told_by(text, count, widths, ids, beam)
            assert part
            assert all(whole[key] == sure for key, sure in part.items())


def test_the_right_continuation_is_found_again_one_position_later():
    """A tree that is right d tokens deep says there what a fresh tree says d positions on."""
    text, count = text_of(CURVED, 40), 40
    behind, fresh = told_by(text, count, [4, 4, 4]), told_by(text, count, [4, 4], emitted=2)
    keys = text.on_path(np.arange(count), np.full(count, 1))
    first = text.rank[text.rows(np.arange(count), keys, mix(keys), np.True_, np.zeros(count, dtype=np.int64))]
    compared = [(who, ranks) for who, ranks in fresh if first[who] < 4]
    assert len(compared) > 300
    assert all(behind[who, (int(first[who]), *ranks)] == fresh[who, ranks] for who, ranks in compared)


def test_off_the_path_every_way_of_being_wrong_is_another_text():
    """Siblings, their order, the position and the request all make a difference, or luck would repeat itself."""
    text, count = text_of(CURVED, 200), 200
    told, later = (told_by(text, count, [4, 2, 1], emitted=emitted) for emitted in (1, 2))
    siblings = [(told[r, (a, 0)], told[r, (b, 0)]) for r in range(count) for a in range(4) for b in range(a)]
    swapped = [(told[r, (0, 1, 0)], told[r, (1, 0, 0)]) for r in range(count)]
    moved = [(told[r, (3, 0)], later[r, (3, 0)]) for r in range(count)]
    others = [(told[r, (3, 0)], told[r - 1, (3, 0)]) for r in range(1, count)]
    for pairs in (siblings, swapped, moved, others):
        equal = np.mean([one == other for one, other in pairs])
        assert equal < 0.03, equal


FOUR_SIGMA = 3.167e-5
"""The share of a normal law above four standard deviations; where few are right, theirs is far from normal."""
DRAWN = ("bernoulli", "llama8b_eagle3", "suffix_spec_bench", "gemma4_31b_dflash", "llama70b_1b", "smollm2_skip_curves")
"""Shipped acceptances that are drawn: of each kind, of a lookup, and of four proposals a position and eight."""


@pytest.mark.parametrize("name", [*DRAWN, "pinned_sglang"])
def test_confidence_is_calibrated_and_falls_with_rank(name):
    """At every rank, and in every tenth of the confidences, the mean confidence is the share that is right.

    Of the categories that agree least and most; over all within a thousandth (the pools are a lattice), in a tenth
    what a binomial law exceeds as rarely as a normal one exceeds four deviations.
    """
    acceptance = loaded(compose({"acceptance": name})["acceptance"])
    by_rate = sorted(acceptance.curves, key=lambda category: acceptance.curves[category].rates)
    for category in {by_rate[0], by_rate[-1]}:
        curve = acceptance.curves[category]
        text = acceptance.acceptance_trace([category], np.zeros(2, dtype=np.int64), np.arange(2), 0)
        for rank in range(acceptance.width):
            sure, right = text.confidence[:, rank], text.rank == rank
            order = np.argsort(sure, kind="stable")
            assert abs(right.mean() - sure.mean()) < 1e-3
            for part in np.array_split(order, 10):
                low, high = binom.ppf((FOUR_SIGMA, 1 - FOUR_SIGMA), len(part), sure[part].mean())
                assert low <= right[part].sum() <= high, (name, category, rank)
        assert (text.confidence.sum(axis=1) <= 1 + 1e-9).all()
        assert (text.confidence >= 0).all()
        assert (np.diff(text.confidence, axis=1) <= 1e-12).all(), (name, category)
        rates = level_rates(curve, acceptance.levels)
        assert text.confidence[:, 0].mean() == pytest.approx(rates.mean(), abs=2e-3), (name, category)
        assert text.rank.max() <= text.width


# --- what schedulers learn of it is unbiased, at batch 1 and at batch 16 ----------------------------------------------

CHEAP = Hardware(Linear(0.0, 1e-6, 1.0), Linear(0.0, 0.0, 1e-3))
"""Drafting and verifying cost next to nothing beside the weights: every draft pays."""
DEVIATIONS = 4.0
"""An estimate may lie so many standard errors of the tokens behind it from the truth."""
STEPS, NO_OBJECTIVE, BATCHES = 400, 2, (1, 16)


def kept(name: str, batch: int, text: AcceptanceTrace, length: int, **overrides: Any) -> tuple[Any, list[Any]]:
    """Run `batch` requests of `length` tokens; return the scheduler and each verification's trees and answer."""
    scheduler = factory_of(name, **overrides, max_num_seqs=batch)()
    told = requests([0.0] * batch, [3] * batch, [length] * batch, [NO_OBJECTIVE] * batch)
    heard = watched(simulation(told, [length] * batch, lambda: scheduler, text=text, truth=CHEAP)).heard[0]
    answers = [(each.work.forest, each.answer) for each in heard if isinstance(each.work, TargetPass)]
    return scheduler, [each for each in answers if each[0].draft_nodes]


@pytest.mark.parametrize("acceptance", ["global", "per_request"])
@pytest.mark.parametrize("alpha", [pytest.param(0.5, marks=pytest.mark.slow), 0.84])
@pytest.mark.parametrize("batch", BATCHES)
def test_smartspecs_acceptance_is_unbiased(batch, alpha, acceptance):
    """At batch 1 and chains of 8 the mean of the steps' own ratios reads 0.84 as 0.67."""
    window, length, text = STEPS // 2, int(STEPS / (1 - alpha)), bernoulli(alpha, batch)
    smart, answers = kept("smartspec", batch, text, length, acceptance=acceptance, window=window)
    assert len(answers) > window, "what the window began with has left it"
    tried = sum(int(np.minimum(told.matched + 1, trees.tree_tokens()).sum()) for trees, told in answers[-window:])
    found = smart.proposal.average.of(np.arange(batch)).mean()
    assert abs(found - alpha) < DEVIATIONS * np.sqrt(alpha * (1 - alpha) / tried)


@pytest.mark.parametrize("batch", BATCHES)
def test_specserves_mean_confidence_is_unbiased(batch):
    agreement = 0.7
    text = text_of(Acceptance({"default": Curve(agreement, 3.0, 0.0, 0.5)}, 4, 1), batch)
    speculation = raw_of("specserve")["speculation"] | {"history_steps": STEPS // 2, "first_confidence": 0.2}
    serve, answers = kept("specserve", batch, text, 4 * STEPS, speculation=speculation)
    assert len(answers) > STEPS // 2
    drafted = sum(trees.draft_nodes for trees, _ in answers[-(STEPS // 2) :])
    found = serve.speculation.mean_confidence
    assert abs(found - agreement) < DEVIATIONS * text.confidence[:, 0].std() / np.sqrt(drafted)
