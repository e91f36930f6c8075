"""Which drafted tokens are kept, by hand: TETRIS, equal shares, thresholds, v1's shape, adaptive verification."""

from __future__ import annotations

from itertools import product
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.core.passes import NOBODY, DraftPass, Emitted
from specsim.core.request import Ids
from specsim.core.trees import Forest
from specsim.pass_shape import PassShape
from specsim.schedulers.adaptive_verification import AdaptiveVerification
from specsim.schedulers.parts.growth import estimated_verify_s, plain_shape
from specsim.schedulers.parts.protocols import Sequences
from specsim.schedulers.parts.selection import likeliest_each
from specsim.schedulers.parts.survival import OnlineLogistic, PositionRates
from specsim.schedulers.parts.tree_shape import BudgetShare
from specsim.schedulers.tetris import Tetris
from specsim.schedulers.threshold import BatchThreshold, Threshold
from tests.layers import grow
from tests.made import Hardware, Linear, grown
from tests.schedulers.test_specserve import DRAFT_S, chains, play, verified
from tests.unit.hand import Hand, sizes


@pytest.mark.parametrize(
    ("rows", "capacity", "passes", "verified"), [(1, None, 2, 2), (2, None, 3, 4), (2, 3, 3, 3), (2, 9, 3, 6)]
)
def test_several_draft_extra_tokens_for_one_capacity(
    rows: int, capacity: int | None, passes: int, verified: int
) -> None:
    """k = 2 and one extra token: one request drafts 2; two draft 3 each and verify 2 x 2, or what the capacity says."""
    hand = play(Tetris(2, 1, capacity), Linear(0.0, 0.0, 0.01), rows=rows)
    work, asked = hand.begin(), 0
    while isinstance(work, DraftPass):
        work, asked = hand.propose(0.8), asked + 1
    assert (asked, sum(sizes(work))) == (passes, verified)


def test_a_token_budget_has_room_for_equal_shares() -> None:
    assert [Tetris(3, 2, None).draft_tokens(n) for n in (1, 8)] == [3, 3]
    assert [Tetris(3, 2, 10).draft_tokens(n) for n in (1, 2, 3, 100)] == [5, 5, 4, 1]
    assert [each.drafts for each in (Tetris(3, 2, 0), Tetris(0, 2, None), Tetris(1, 0, 1))] == [False, False, True]
    with pytest.raises(ValueError, match="capacity=-1 is below 0"):
        Tetris(3, 1, -1)


@pytest.mark.parametrize(
    ("requests", "shape"), [(1, (8, 3)), (64, (8, 3)), (100, (6, 3)), (200, (3, 2)), (512, (1, 1)), (900, (1, 1))]
)
def test_the_first_versions_shape(requests: int, shape: tuple[int, int]) -> None:
    """d = max(1, min(8, ceil(512 / n))), w = max(1, min(3, 512 // n)) (v1, Eq. 8, 9)."""
    assert tuple(BudgetShare(8, 3, 512, 512)(requests)) == shape


def test_equal_shares_are_each_requests_likeliest() -> None:
    path = np.array([0.5, 0.6, 0.9, 0.2, 0.1, 0.8])
    forest = grow(Forest.roots(2), np.array([0, 1] * 3), np.arange(6), path, path, np.arange(6))
    assert likeliest_each(forest, 2).tolist() == [True, True, True, True, True, False, False, True]


ANY = Linear(0.0, 0.0, 0.01)


@pytest.mark.parametrize(
    ("sure", "length"), [((0.9, 0.4, 0.39), 3), ((0.1,), 1), ((0.9,), 8), ((0.9, 0.9, 0.9, 0.2), 4)]
)
def test_a_chain_ends_behind_the_first_token_below_the_threshold(sure: tuple[float, ...], length: int) -> None:
    """0.4 is not below 0.4; the token that is gets verified, too."""
    assert verified(play(Threshold(0.4, 8), ANY), *sure) == [length]


def test_the_mean_of_a_pass_stops_the_whole_batch() -> None:
    """0.9 and 0.4 have a mean of 0.65; then 0.9 and 0.2 have 0.55, and the pass is verified too."""
    view, ones = play(BatchThreshold(0.6, 8), ANY, rows=2).view, np.ones(2, dtype=np.int64)
    growing = BatchThreshold(0.6, 8).grow(view, Sequences(np.arange(2), ones, 2, ones))
    work = next(growing)
    work = growing.send(grown(work.forest, work.leaves, [0.9, 0.4]))
    assert work.forest.row[work.leaves].tolist() == [0, 1], "also the one below the threshold goes on"
    with pytest.raises(StopIteration) as end:
        growing.send(grown(work.forest, work.leaves, [0.9, 0.2]))
    assert end.value.value.tree_tokens().tolist() == [2, 2]


# --- adaptive verification: the budget, the age of its estimates, the context of its table, the tokens that get it ----

EVEN = Linear(0.0, 0.01, 0.01)
HALF = [[0.5] * 3] * 2


def part(**changed: Any) -> AdaptiveVerification:
    given = {"max_num_seqs": 8, "survival": "confidence", "fresh": False, "table_context": 8192}
    return AdaptiveVerification(3, **(given | changed))


def kept(hand: Hand, confidences: list[list[float]], *chunks: int, evicted: Ids = NOBODY) -> list[int]:
    """Return how many tokens of each row's chain are verified, where three draft passes bring these confidences."""
    part, ones = hand.scheduler.speculation, np.ones(len(confidences), dtype=np.int64)
    fed = np.array(chunks) if chunks else ones
    growing = part.grow(hand.view, Sequences(np.arange(len(ones)), fed, np.count_nonzero(fed == 1), ones, evicted))
    next(growing)
    hand.view.now_s += 3 * DRAFT_S
    with pytest.raises(StopIteration) as end:
        growing.send(chains(confidences))
    return end.value.value.tree_tokens().tolist()


def test_the_budget_is_one_step_old_and_this_step_spends_it() -> None:
    """Costs as above. Nothing is known of the first draft: all of it. Behind 0.5: two tokens, to whoever has the best.

    Behind 0.1 and 0.9: 2/60 = 33.3, 2.9/70 = 41.4, 3.71/80 = 46.4, 4.44/90 = 49.3, 4.54/100 = 45.4: three tokens.
    Behind 0.5 two, but nothing is known of row 1 after its preemption: 3/70 = 42.9, 4/80, 5/90 = 55.6, 5.5/100: three.
    """
    hand, drafts = play(part(), EVEN, rows=2), (HALF, [[0.1] * 3, [0.9] * 3], HALF, HALF)
    assert [kept(hand, each) for each in drafts] == [[3, 3], [0, 2], [2, 1], [1, 1]]
    kept(hand, HALF[:1], evicted=np.array([1]))
    assert kept(hand, HALF) == [2, 1]


def test_the_table_knows_one_context_and_the_number_of_tokens() -> None:
    """10 us a token of context, of which each request has 6; two rows at 0.5; 60 ms + 10 ms a token but for contexts.

    8,192 for each of two requests add 163.84 ms: 2/223.84 = 8.9, 10.7, 12.3, 12.8, 3.5/263.84 = 13.27,
    3.625/273.84 = 13.24: four tokens, where the real context (0.12 ms) says two. With room for more requests each
    further token is one, of 81.92 ms: 2.5/315.76 = 7.9 is less than 8.9.
    """
    model = Linear(1e-5, 0.01, 0.01)
    assert kept(play(part(fresh=True, max_num_seqs=2), model, rows=2), HALF) == [2, 2]
    assert kept(play(part(fresh=True, table_context=None), model, rows=2), HALF) == [1, 1]
    assert kept(play(part(fresh=True, max_num_seqs=9), model, rows=2), HALF) == [0, 0]


def test_plans_count_the_keys_that_each_token_attends_to() -> None:
    """Two rows of 5 cached tokens, and two drafts each: as many keys as the pass itself has."""
    view, two, keys = play(part(), ANY, rows=2).view, np.array([2, 2]), attrgetter("attention_pairs")
    view.cost_model = Hardware(SimpleNamespace(seconds=keys, seconds_array=keys), Linear(0.0, 0.0, 0.0))
    rows, pass_s = Sequences(np.arange(2), two // 2, 2, two), keys(PassShape.of(two + 3, two // 2, two))
    assert estimated_verify_s(view, rows, 4) == pass_s
    assert plain_shape(view, rows._replace(decoding=1, scheduled_tokens=two)).prefill_tokens == 2, "of the second row"
    for context, start_s in ((None, view.now_s), (5, 0.0)):
        assert part(max_num_seqs=2, table_context=context)._seconds(view, rows, start_s, 4)[4] == pass_s


@pytest.mark.parametrize("few", [{"one_pass": True}, {"max_depth": 1}])
def test_a_drafter_of_one_pass_is_priced_once(few: dict[str, Any]) -> None:
    """Two rows at 0.45: behind three passes 33.3, 35, 36.3, 34.5: two tokens; behind one 2/40 = 50 and 2.45/50 = 49."""
    hand = play(part(fresh=True), EVEN, rows=2)
    assert kept(hand, [[0.45] * 3] * 2) == [1, 1]
    hand.view.cost_model = Hardware(EVEN, Linear(0.0, 0.0, DRAFT_S, **few))
    assert kept(hand, [[0.45] * 3] * 2) == [0, 0]


@settings(max_examples=60)
@given(st.lists(st.lists(st.floats(0.01, 1.0), max_size=3), min_size=1, max_size=4), st.floats(1e-4, 3e-2))
def test_no_choice_of_prefixes_brings_more_tokens_per_second(confidences: list[list[float]], gamma: float) -> None:
    """Against every combination of prefixes, where cost goes by the number of tokens."""

    def of(lengths: tuple[int, ...]) -> float:
        survival = sum(float(np.cumprod(c[:k]).sum()) for c, k in zip(confidences, lengths, strict=True))
        return (len(confidences) + survival) / (3 * DRAFT_S + 0.01 + gamma * (len(confidences) + sum(lengths)))

    hand = play(part(fresh=True), Linear(0.0, gamma, 0.01), rows=len(confidences))
    best = max(of(lengths) for lengths in product(*(range(len(each) + 1) for each in confidences)))
    assert of(tuple(kept(hand, confidences))) == pytest.approx(best, rel=1e-9)


def test_a_row_amid_its_prompt_samples_nothing() -> None:
    """Row 1 reads 5 tokens and is not through: T = 40 ms + 60 ms + 10 ms a draft of row 0, whose tokens have 0.15.

    1/100 = 10, 1.15/110 = 10.5, 1.17/120 = 9.8: one token. If row 1 sampled, 2/100 = 20 and 2.15/110 = 19.5: none.
    """
    assert kept(play(part(fresh=True), EVEN, rows=2), [[0.15] * 3, []], 1, 5) == [1, 0]


def test_only_tokens_behind_accepted_ones_are_noted() -> None:
    """Chains of 3, 3 and 1, of which 1, 3 and 0 were right: seen are 2, 3 and 1 tokens."""
    mine, forest = part(survival="statistics"), chains([[0.9] * 3, [0.8] * 3, [0.7]])
    answer = Emitted(*(np.array(each) for each in ([2, 4, 1], [1, 3, 0], [1, 3, 0])), np.zeros(3, dtype=bool))
    mine.on_verified(None, None, forest, answer)  # type: ignore[arg-type]
    assert (mine._estimator.accepted.tolist(), mine._estimator.observed.tolist()) == ([2, 1, 1], [3, 2, 1])


def test_rates_by_position_begin_at_a_half_and_fade() -> None:
    rates, position, sure = PositionRates(2), np.array([0, 0, 1]), np.array([0.9, 0.1, 0.5])
    assert rates.estimate(sure, position).tolist() == [0.5] * 3
    rates.note(sure, position, np.array([True, False, True]))
    assert rates.estimate(sure, position) == pytest.approx([2 / 4, 2 / 4, 2 / 3])
    for _ in range(1023):
        rates.note(sure[:1], position[:1], np.array([True]))
    assert (rates.accepted.tolist(), rates.observed.tolist()) == ([512.0, 0.0], [512.0, 0.0])


def test_a_logistic_step_by_hand() -> None:
    """A hundred tokens of confidence 0.5, whose logit is 0, half of them right; the intercept begins at -0.2.

    Each is believed with 1 / (1 + e^0.2) = 0.45017, its weight is 0.24752: the Newton step is
    (50 - 45.017) / (24.752 + 0.001) = 0.2013, of which 100 / 150 is taken: -0.2 + 0.1342 = -0.0658.
    0.3 has the logit -0.8473, of which the slope takes half: 1 / (1 + e^0.6236) = 0.3489, then 1 / (1 + e^0.4894).
    """
    logistic, first = OnlineLogistic(2), np.array([0])
    for step in range(100):
        assert logistic.estimate(np.array([0.3]), first) == pytest.approx([0.348952])
        logistic.note(np.array([0.5]), first, np.array([step % 2 == 0]))
    assert logistic.intercept == pytest.approx([-0.0658, -0.2], abs=1e-4)
    assert logistic.estimate(np.array([0.3]), first) == pytest.approx([0.3800], abs=1e-4)


def test_the_logistic_trims_from_the_start() -> None:
    """The first draft has none before it and is sure; then 0.5 is believed with 0.45, and two tokens pay."""
    hand = play(part(survival="logistic"), EVEN, rows=2)
    assert [kept(hand, HALF), kept(hand, HALF)] == [[3, 3], [1, 1]]
