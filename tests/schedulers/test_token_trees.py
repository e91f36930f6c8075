"""Token trees by hand: SpecInfer's fixed ones, EAGLE-2's dynamic ones, and those sized by what they cost."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from specsim.core.passes import DraftPass
from specsim.schedulers.composed import Composed
from specsim.schedulers.continuous import PrefillFirst
from specsim.schedulers.cost_sized_trees import CostSizedTrees, TreeSize
from specsim.schedulers.eagle2_tree import DynamicTrees
from specsim.schedulers.parts.protocols import Sequences
from specsim.schedulers.specinfer import FixedTrees, nodes_of
from tests.laws.subjects import raw_of
from tests.made import Hardware, Linear, memory, requests
from tests.schedulers.test_specserve import DRAFT_S, play, prefilled, verified
from tests.unit.hand import Hand, sizes

PAPER = [1, 1, 3, 1, 1, 1, 1, 1]


def test_the_papers_expansion_is_the_yamls_and_has_20_nodes():
    assert raw_of("specinfer")["speculation"]["expansion"] == PAPER
    assert nodes_of(PAPER) == 1 + 1 + 3 * 6 == 20


def test_where_memory_is_short_the_last_layers_go():
    told = requests([0.0], [5], [40], [2])
    pool = replace(memory(told, 1.0, block_tokens=1), capacity_bytes=4 * 45)
    for spare, nodes in ((20, 20), (19, 17), (8, 8), (4, 2), (0, 0)):
        hand = prefilled(Hand(Composed(PrefillFirst(8, 64, 0.0), FixedTrees(PAPER)), told, pool))
        hand.ledger.pool.used_bytes = pool.capacity_bytes - 4 * (spare + 1)
        work = hand.begin()
        while isinstance(work, DraftPass):
            work = hand.propose(0.6, 0.2, 0.1)
        assert sizes(work) == [nodes], spare


@pytest.mark.parametrize("wrong", [[0], [1.5], "1,1,3"])
def test_what_is_no_expansion_is_refused(wrong):
    with pytest.raises(ValueError, match="expansion: "):
        FixedTrees(wrong)


def test_the_likeliest_of_a_level_grow_and_the_likeliest_of_all_are_verified():
    """Confidences 0.6 and 0.3, then 0.5 and 0.4 behind each node, k = 2, three levels; of each level the two best grow.

    Level 1: .6 .3, both grow. Level 2: .3 .24 .15 .12, of which .3 and .24 grow, though .15 has a confidence of 0.5.
    Level 3: .15 .12 .12 .096. The best 5 of 10: .6 .3 .3 .24 .15, the first .15, which never grew.
    """
    hand = play(DynamicTrees(3, 2, 6), Linear(0.0, 0.0, 0.01))
    work, grew = hand.begin(), []
    while isinstance(work, DraftPass):
        grew.append(work.forest.path_probability[work.leaves].round(3).tolist())
        work = hand.propose(*((0.5, 0.4) if len(grew) > 1 else (0.6, 0.3)))
    assert grew == [[1], [0.6, 0.3], [0.3, 0.24]]
    drafted = work.forest.path_probability[1:]
    assert (sorted(drafted.round(3).tolist()), work.forest.depth.max()) == ([0.15, 0.24, 0.3, 0.3, 0.6], 2)


def test_a_topk_of_one_is_a_chain_and_one_token_is_no_tree():
    hand = play(DynamicTrees(4, 1, 5), Linear(0.0, 0.0, 0.01), rows=2)
    assert verified(hand, 0.5) == [4, 4]
    assert hand.work.forest.depth.max() == 4
    assert not DynamicTrees(4, 2, 1).drafts


# --- cost-sized trees: the tokens to expect, the size that pays, and none where none does -----------------------------


def part(depth: int = 3, width: int = 2, first: float = 0.6, window: int = 100) -> CostSizedTrees:
    return CostSizedTrees(depth, width, 32, first, window)


def test_the_tokens_to_expect_of_a_tree_by_hand():
    """Shares .6 and .24 at each level. Chains: 1 + .6 + .36 + .216.

    Width 2: level 1 has .6 .24, in all .84; level 2 .84 times that: .504 .2016; level 3 .4234 .1693.
    The likeliest first: .6 .504 .4234 .24 .2016 .1693.
    """
    tokens = part().expected()
    assert (tokens.shape, tokens[2, 0, :4]) == ((3, 2, 7), pytest.approx([1, 1.6, 1.96, 2.176]))
    assert tokens[2, 1] == pytest.approx(1 + np.cumsum([0, 0.6, 0.504, 0.42336, 0.24, 0.2016, 0.169344]))
    assert tokens[0, 1, :3] == pytest.approx([1, 1.6, 1.84])


@pytest.mark.parametrize(("rows", "most"), [(1, 9), (3, 9), (3, 2)])
@pytest.mark.parametrize("gamma", [1e-4, 2e-3, 5e-3, 2e-2])
@pytest.mark.parametrize("first", [0.3, 0.9])
def test_no_other_size_has_more_tokens_a_second(rows, most, gamma, first):
    """Target: 40 ms and gamma a token; 10 ms a draft pass, `most` levels. Against all sizes, one by one."""
    made, target = part(first=first), Linear(0.0, gamma, 0.04)
    hand = play(made, target, rows)
    hand.view.cost_model = Hardware(target, Linear(0.0, 0.0, DRAFT_S, max_depth=most))
    tokens, plain = made.expected(), rows / (0.04 + gamma * rows)
    rate = {
        TreeSize(d, w, m): rows * tokens[d - 1, w - 1, m] / (d * DRAFT_S + 0.04 + gamma * rows * (1 + m))
        for d, w, m in product(range(1, min(most, 3) + 1), (1, 2), range(7))
    }
    best = max(rate, key=lambda size: (round(rate[size], 9), -size.depth, -size.width, -size.nodes))
    ids, ones = hand.view.running, np.ones_like(hand.view.running)
    found = made.size(hand.view, Sequences(ids, ones, len(ids), ones), 6)
    assert found == (best if rate[best] > plain else TreeSize(0, 1, 0))


def test_what_is_found_changes_the_tokens_to_expect():
    """One row drafts levels 1 and 2 of confidence .9 and both are right.

    Level 1: (.6 + .9) / (1 + 1) = .75; level 2: (.6 + .81) / (1 + .9). Right of level 1: (1 + 1) / (1 + .9).
    """
    made = part(depth=2, width=1, window=1000000)
    hand = play(made, Linear(0.0, 1e-4, 0.04))
    assert verified(hand, 0.9) == [2]
    hand.emit([3], [2])
    first, second, right = 1.5 / 2, 1.41 / 1.9, (2 / 1.9, 2 / 1.81)
    assert made.expected()[1, 0] == pytest.approx(
        [1, 1 + right[0] * first, 1 + right[0] * first + right[1] * first * second], rel=1e-5
    )
