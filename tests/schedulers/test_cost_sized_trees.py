"""Cost-sized trees by hand: the tokens to expect, the size that pays, and none where none does."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from specsim.core.passes import DraftPass
from specsim.schedulers.cost_sized_trees import CostSizedTrees, TreeSize
from specsim.schedulers.parts.protocols import Sequences
from tests.made import Linear
from tests.schedulers.test_specserve import DRAFT_S, play
from tests.unit.hand import sizes


def part(depth: int = 3, width: int = 2, tokens: int = 32, first: float = 0.6, window: int = 100) -> CostSizedTrees:
    return CostSizedTrees(depth, width, tokens, first, window)


def rows_of(hand: Any) -> Sequences:
    ids = hand.view.running
    ones = np.ones_like(ids)
    return Sequences(ids, ones, len(ids), ones)


def test_the_tokens_to_expect_of_a_tree_by_hand() -> None:
    """Shares .6 and .24 at each level. Chains: 1 + .6 + .36 + .216.

    Width 2: level 1 has .6 .24, in all .84; level 2 .84 times that: .504 .2016; level 3 .4234 .1693.
    The likeliest first: .6 .504 .4234 .24 .2016 .1693.
    """
    tokens = part().expected()
    assert tokens.shape == (3, 2, 7)
    assert tokens[2, 0, :4] == pytest.approx([1, 1.6, 1.96, 2.176])
    assert tokens[2, 1] == pytest.approx(1 + np.cumsum([0, 0.6, 0.504, 0.42336, 0.24, 0.2016, 0.169344]))
    assert tokens[0, 1, :3] == pytest.approx([1, 1.6, 1.84])


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("gamma", [1e-4, 2e-3, 5e-3, 2e-2])
@pytest.mark.parametrize("first", [0.3, 0.9])
def test_no_other_size_has_more_tokens_a_second(rows: int, gamma: float, first: float) -> None:
    """Target: 40 ms and gamma a token; 10 ms a draft pass whatever its width. Against all sizes, one by one."""
    made, target = part(first=first), Linear(0.0, gamma, 0.04)
    hand = play(made, target, rows)
    tokens, plain = made.expected(), rows / (0.04 + gamma * rows)
    rate = {
        TreeSize(d, w, m): rows * tokens[d - 1, w - 1, m] / (d * DRAFT_S + 0.04 + gamma * rows * (1 + m))
        for d, w, m in product((1, 2, 3), (1, 2), range(7))
    }
    best = max(rate, key=lambda size: (round(rate[size], 9), -size.depth, -size.width, -size.nodes))
    assert made.size(hand.view, rows_of(hand), 6) == (best if rate[best] > plain else TreeSize(0, 1, 0))


def test_what_is_found_changes_the_tokens_to_expect() -> None:
    """One row drafts levels 1 and 2 of confidence .9 and both are right.

    Level 1: (.6 + .9) / (1 + 1) = .75; level 2: (.6 + .81) / (1 + .9). Right of level 1: (1 + 1) / (1 + .9).
    """
    made = part(depth=2, width=1, window=1000000)
    hand = play(made, Linear(0.0, 1e-4, 0.04))
    while isinstance(hand.work or hand.begin(), DraftPass):
        hand.propose(0.9)
    assert sizes(hand.work) == [2]
    hand.emit([3], [2])
    first, second, right = 1.5 / 2, 1.41 / 1.9, (2 / 1.9, 2 / 1.81)
    assert made.expected()[1, 0] == pytest.approx(
        [1, 1 + right[0] * first, 1 + right[0] * first + right[1] * first * second], rel=1e-5
    )
