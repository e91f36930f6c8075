"""Token trees by hand: SpecInfer's fixed ones, EAGLE-2's dynamic ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specsim.core.passes import DraftPass
from specsim.schedulers.composed import Composed
from specsim.schedulers.continuous import PrefillFirst
from specsim.schedulers.eagle2_tree import DynamicTrees
from specsim.schedulers.specinfer import FixedTrees, nodes_of
from tests.laws.subjects import raw_of
from tests.made import Linear, memory, requests
from tests.schedulers.test_specserve import play, verified
from tests.unit.hand import Hand, sizes

PAPER = [1, 1, 3, 1, 1, 1, 1, 1]


def grown_by(hand: Hand) -> tuple[list[tuple[int, int]], list[int]]:
    """Play a step; return (leaves, width) of each draft pass, and the nodes of each row that are verified."""
    asked, work = [], hand.begin()
    while isinstance(work, DraftPass):
        asked.append((len(work.leaves), work.width))
        work = hand.propose(0.6, 0.2, 0.1)
    return asked, sizes(work)


def test_the_papers_expansion_is_the_yamls_and_has_20_nodes() -> None:
    assert raw_of("specinfer")["speculation"]["expansion"] == PAPER
    assert nodes_of(PAPER) == 1 + 1 + 3 * 6 == 20


def test_where_memory_is_short_the_last_layers_go() -> None:
    told = requests([0.0], [5], [40], [2])
    pool = replace(memory(told, 1.0, block_tokens=1), capacity_bytes=4 * 45)
    for spare, nodes in ((20, 20), (19, 17), (8, 8), (4, 2), (0, 0)):
        hand = Hand(Composed(PrefillFirst(8, 64, 0.0), FixedTrees(PAPER)), told, pool)
        hand.begin()
        hand.propose()
        hand.emit([1])
        hand.ledger.pool.used_bytes = pool.capacity_bytes - 4 * (spare + 1)
        assert grown_by(hand)[1] == [nodes], spare


@pytest.mark.parametrize("wrong", [[0], [1.5], "1,1,3"])
def test_what_is_no_expansion_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="expansion: "):
        FixedTrees(wrong)


def test_the_likeliest_of_a_level_grow_and_the_likeliest_of_all_are_verified() -> None:
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
    assert sorted(drafted.round(3).tolist()) == [0.15, 0.24, 0.3, 0.3, 0.6]
    assert work.forest.depth.max() == 2


def test_a_topk_of_one_is_a_chain_and_one_token_is_no_tree() -> None:
    hand = play(DynamicTrees(4, 1, 5), Linear(0.0, 0.0, 0.01), rows=2)
    assert verified(hand, 0.5) == [4, 4]
    assert hand.work.forest.depth.max() == 4
    assert not DynamicTrees(4, 2, 1).drafts
