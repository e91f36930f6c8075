"""SpecServe by hand, of its paper and as released: drafter, single peak, estimator, verifier, objectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.core.passes import DraftPass, TargetPass
from specsim.core.trees import Forest
from specsim.pass_shape import PassShapes
from specsim.schedulers.composed import Composed
from specsim.schedulers.continuous import PrefillFirst
from specsim.schedulers.parts.protocols import Sequences, Speculation
from specsim.schedulers.specserve import (
    ReleasedSpecServe,
    SpecServe,
    StepEstimate,
    estimate_of,
    smaller_graph,
    to_graph_size,
    worth_keeping,
)
from tests.made import Hardware, Linear, grown, ledger_and_view, many, memory, one, requests
from tests.unit.hand import Hand, sizes

CHAT, NOBODY_HURRIES = 1, 2
DRAFT_S = 0.01
"""What every pass takes when played by hand."""


def specserve(**changed: Any) -> SpecServe:
    given = {"num_speculative_tokens": 8, "verifier": True, "history_steps": 1, "first_confidence": 0.8}
    return SpecServe(**(given | changed))


def play(part: Speculation, target: Linear, rows: int = 1, kind: int = NOBODY_HURRIES, most: int = 40) -> Hand:
    """Return a replica whose prompts are read, and whose draft passes take what they are believed to take."""
    told = requests([0.0] * rows, [5] * rows, [most] * rows, [kind] * rows)
    hand = Hand(Composed(PrefillFirst(8, 64, 0.0), part), told, memory(told, 9.0, block_tokens=1))
    hand.view.cost_model = Hardware(target, Linear(0.0, 0.0, DRAFT_S))
    return prefilled(hand)


def prefilled(hand: Hand) -> Hand:
    """Read all prompts at once, by the drafter too where it is asked."""
    if isinstance(hand.begin(), DraftPass):
        hand.propose()
    hand.emit([1] * len(hand.work.requests))
    return hand


def verified(hand: Hand, *sure: float) -> list[int]:
    """Play one step whose k-th draft pass brings confidence `sure[k]`, the last one again and again."""
    work, asked = hand.begin(), 0
    while isinstance(work, DraftPass):
        work, asked = hand.propose(sure[min(asked, len(sure) - 1)]), asked + 1
    assert isinstance(work, TargetPass)
    return sizes(work)


def test_it_predicts_executes_and_corrects() -> None:
    """Algorithm 1. T = 40 ms + 1 ms a token, 10 ms a draft pass; tokens/s of SL = 0: 1 / 41 = 24.4.

    Predicted 1.8 / 52 = 34.6: drafted, comes with 0.5, corrected to 1.5 / 52 = 28.8. Predicted with 0.5 x 0.8:
    1.9 / 63 = 30.2: drafted, comes with 0.1, corrected to 1.55 / 63 = 24.6, which is bad and yet kept.
    Predicted 1.59 / 74 = 21.5: not drafted. Without its last token: 1.5 / 62 = 24.2, so that it is verified.
    """
    assert verified(play(specserve(), Linear(0.0, 1e-3, 0.04)), 0.5, 0.1) == [2]


LINES = st.builds(Linear, st.sampled_from((0.0, 1e-5, 1e-4)), st.floats(1e-5, 1e-2), st.floats(1e-3, 0.1))


@settings(max_examples=60)
@given(sure=st.floats(0.05, 0.98), rows=st.integers(1, 5), target=LINES)
def test_throughput_has_one_peak_and_the_drafter_stops_on_it(sure: float, rows: int, target: Linear) -> None:
    """Section 4.3, for linear passes; confidences as they always were, so that predictions are right."""
    k = np.arange(13)
    seconds = DRAFT_S * k + target.seconds_array(many(5 * rows, rows * (1 + k), 0.0))
    throughput = rows * np.cumsum(sure**k) / seconds
    rising = np.diff(throughput) > 0
    assert not (rising[1:] & ~rising[:-1]).any()
    part = specserve(num_speculative_tokens=12, first_confidence=sure, verifier=False)
    assert verified(play(part, target, rows), sure) == [int(np.argmax(throughput))] * rows


# --- the SLO-aware estimator, Algorithm 3 -----------------------------------------------------------------------------


def chains(confidences: list[list[float]]) -> Forest:
    """Return one chain a row with these confidences."""
    forest, tips = Forest.roots(len(confidences)), list(range(len(confidences)))
    for level in range(max(map(len, confidences))):
        going = [row for row, chain in enumerate(confidences) if len(chain) > level]
        forest = grown(forest, [tips[row] for row in going], [confidences[row][level] for row in going])
        for place, row in enumerate(going):
            tips[row] = len(forest) - len(going) + place
    return forest


def estimated(rows: int, target: Linear, spent_s: float = 0.0, limit_s: float = np.inf) -> StepEstimate:
    _, view = ledger_and_view(requests([0.0] * rows, [5] * rows, [40] * rows))
    view.cost_model = Hardware(target, Linear(0.0, 0.0, DRAFT_S))
    ids, ones = np.arange(rows), np.ones(rows, dtype=np.int64)
    estimate = estimate_of(view, Sequences(ids, ones, rows, ones), limit_s)
    view.now_s += spent_s
    return estimate


@pytest.mark.parametrize(
    ("verify_s", "drafted"), [(0.1499, 5), (0.1501, 4), (0.1799, 2), (0.1899, 1), (0.1901, 0), (0.3, 0)]
)
def test_an_objective_of_200_ms_leaves_room_for_so_many_passes_of_10_ms(verify_s: float, drafted: int) -> None:
    assert verified(play(specserve(first_confidence=1.0), Linear(0.0, 0.0, verify_s), kind=CHAT), 1.0) == [drafted]


CHEAP = Linear(0.0, 0.0, 1.0)
MILLI = Linear(0.0, 1e-3, 0.04)
"""40 ms and 1 ms a token; a draft pass takes 10 ms."""


def test_a_prompt_beside_a_decode_is_read_whether_that_drafts_or_not() -> None:
    """Its 100 tokens alone, 110 + 141 ms a token: 1.6 tokens in 111 + 142 ms are more. Beside 141 ms they were less."""
    view, tokens = play(specserve(), MILLI, rows=2).view, np.array([1, 100])
    view.cost_model = Hardware(MILLI, Linear(0.0, 1e-3, 0.01))
    for sure, fed in ((0.6, [1, 100]), (0.0, [0, 100])):
        work = next(specserve(first_confidence=sure).grow(view, Sequences(np.arange(2), tokens, 1, tokens)))
        assert (work.scheduled_tokens.tolist(), len(work.leaves)) == (fed, fed[0])


def released(**changed: Any) -> ReleasedSpecServe:
    given: dict[str, Any] = {"num_speculative_tokens": 8, "verifier": False, "first_confidence": 0.6, "limit_s": None}
    return ReleasedSpecServe(**(given | changed))


@pytest.mark.parametrize(
    ("limit_s", "target", "sure", "drafted"),
    [(None, MILLI, 0.5, 1), (None, Linear(0.0, 1e-3, 0.005), 0.9, 0), (None, CHEAP, 0.9, 8), (1.035, CHEAP, 0.9, 3)],
)
def test_the_first_pass_must_beat_no_draft(limit_s: float | None, target: Linear, sure: float, drafted: int) -> None:
    """1.6 / 52 ms beats 1 / 41 ms; 1.6 / 17 ms is below 1 / 6 ms. No objective is looked at unless `limit_s` is set."""
    assert verified(play(released(limit_s=limit_s), target, kind=0), sure) == [drafted]


def test_a_pass_that_lowered_throughput_is_kept_ends_the_drafting_and_teaches_nothing() -> None:
    """1 / 41 ms is 24.4; with 0.1 it is 1.1 / 52 ms = 21.2: kept, and the mean stays 0.6."""
    assert verified(play(part := released(), MILLI), 0.1) == [1]
    assert part.mean_confidence == 0.6


def test_a_pass_that_raised_it_is_learnt_without_the_prior() -> None:
    """0.8: 1.8 / 52 ms = 34.6. Predicted 1.8 + 0.8 x 0.8 over 63 ms = 38.7; with 0.1 it is 1.88 / 63 = 29.8, a fall."""
    hand = play(part := released(), MILLI)
    assert verified(hand, 0.8, 0.1) == [2]
    assert part.mean_confidence == pytest.approx(0.8)
    hand.emit([1])
    assert verified(hand, 0.7, 0.1) == [2]
    assert part.mean_confidence == pytest.approx(0.75), "of all since the start"


@pytest.mark.parametrize(("tokens", "size"), [(1, 0), (3, 2), (5, 4), (32, 16), (33, 32), (100, 96), (1153, 1152)])
def test_the_next_smaller_graph_size(tokens: int, size: int) -> None:
    assert smaller_graph(tokens) == size


@pytest.mark.parametrize(("second", "token_s", "kept"), [(0.9, 0.05, [0, 2]), (0.9, 1e-4, [2, 2]), (0.1, 0.05, [2, 0])])
def test_it_cuts_to_the_smaller_size_where_that_pays(second: float, token_s: float, kept: list[int]) -> None:
    """Six tokens, of which the next smaller graph holds four: the chain goes that ends in 0.09, first token or not."""
    forest = chains([[0.9, 0.1], [second, 0.2]])
    keep = to_graph_size(estimated(2, Linear(0.0, token_s, 0.01)), forest)
    assert np.bincount(forest.row[keep], minlength=2).tolist() == [1 + each for each in kept]


def test_it_stops_at_the_first_token_that_does_not_pay() -> None:
    """A staircase: only the loss of two tokens would save a tile, and the loss of one saves nothing."""

    @dataclass(frozen=True)
    class Stairs(Linear):
        def seconds_array(self, shapes: PassShapes) -> Any:
            return self.delta * (-(-np.asarray(shapes.batched_tokens) // 2))

    forest, estimate = chains([[0.1, 0.1, 0.1]]), estimated(1, Stairs(0.0, 0.0, 0.01))
    assert (estimate.by_kept(forest, np.arange(1, 4)).argmax(), worth_keeping(estimate, forest).sum()) == (1, 4)


def algorithm_2(estimate: StepEstimate, forest: Forest) -> int:
    """Return how many drafted tokens the paper's loop leaves, one at a time."""
    path = sorted(forest.path_probability[forest.rows :].tolist())
    model, spent_s = estimate.view.cost_model.target, estimate.view.now_s - estimate.start_s

    def throughput(left: list[float]) -> float:
        seconds = spent_s + model.seconds(one(estimate.plain.context_tokens, forest.rows + len(left), 0.0))
        return -1.0 if seconds > estimate.limit_s else (forest.rows + sum(left)) / seconds

    best = throughput(path)
    while path and throughput(path[1:]) > best:
        path, best = path[1:], throughput(path[1:])
    return len(path)


CONFIDENCES = st.lists(st.lists(st.floats(0.01, 1.0), max_size=5), min_size=1, max_size=6)


@settings(max_examples=150)
@given(CONFIDENCES, st.floats(1e-4, 2e-2), st.floats(0.0, 0.1), st.sampled_from((np.inf, 0.1, 0.03)))
def test_it_keeps_what_the_paper_s_loop_keeps(
    confidences: list[list[float]], gamma: float, spent_s: float, limit_s: float
) -> None:
    forest, estimate = chains(confidences), estimated(len(confidences), Linear(0.0, gamma, 0.01), spent_s, limit_s)
    keep = worth_keeping(estimate, forest)
    kept, path = keep[forest.rows :], forest.path_probability[forest.rows :]
    assert kept.sum() == algorithm_2(estimate, forest)
    assert path[~kept].max(initial=0.0) <= path[kept].min(initial=1.0)
    forest.subset(keep)
