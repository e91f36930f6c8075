"""Which drafted tokens are kept, by hand: TETRIS, equal shares, thresholds, and the first version's shape."""

from __future__ import annotations

import numpy as np
import pytest

from specsim.core.passes import DraftPass
from specsim.core.trees import Forest
from specsim.schedulers.parts.protocols import Sequences
from specsim.schedulers.parts.selection import likeliest_each, likeliest_of_all
from specsim.schedulers.parts.tree_shape import BudgetShare
from specsim.schedulers.tetris import Tetris
from specsim.schedulers.threshold import BatchThreshold, Threshold
from tests.layers import grow
from tests.made import Linear, grown
from tests.schedulers.test_specserve import chains, play, verified
from tests.unit.hand import sizes


@pytest.mark.parametrize(
    ("rows", "capacity", "passes", "verified"), [(1, None, 2, 2), (2, None, 3, 4), (2, 3, 3, 3), (2, 9, 3, 6)]
)
def test_a_batch_of_several_drafts_extra_tokens_for_one_capacity(
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


def test_no_other_choice_of_prefixes_has_more_expected_tokens() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        forest = chains(rng.uniform(0, 1, (3, 3)).tolist())
        paths = forest.path_probability[3:].reshape(3, 3)  # by depth, by row
        choices = [lengths for lengths in np.ndindex(4, 4, 4) if sum(lengths) <= 5]
        best = max(sum(paths[:k, row].sum() for row, k in enumerate(lengths)) for lengths in choices)
        kept = forest.subset(likeliest_of_all(forest, 5))
        assert kept.path_probability[3:].sum() == pytest.approx(best)


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
    ("sure", "length"),
    [
        ((0.9, 0.4, 0.39), 3),  # 0.4 is not below 0.4; the token that is gets verified too
        ((0.1,), 1),
        ((0.9,), 8),
        ((0.9, 0.9, 0.9, 0.2), 4),
    ],
)
def test_a_chain_ends_behind_the_first_token_below_the_threshold(sure: tuple[float, ...], length: int) -> None:
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
