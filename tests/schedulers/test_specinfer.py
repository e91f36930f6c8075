"""SpecInfer's fixed trees by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specsim.core.passes import DraftPass
from specsim.schedulers.composed import Composed
from specsim.schedulers.continuous import PrefillFirst
from specsim.schedulers.specinfer import FixedTrees, nodes_of
from tests.laws.subjects import mapping_of
from tests.made import Linear, memory, requests
from tests.schedulers.test_specserve import play, verified
from tests.unit.hand import Hand, sizes

ANY = Linear(0.0, 0.0, 0.01)
PAPER = [1, 1, 3, 1, 1, 1, 1, 1]


def grown_by(hand: Hand) -> tuple[list[tuple[int, int]], list[int]]:
    """Play a step; return (leaves, width) of each draft pass, and the nodes of each row that are verified."""
    asked, work = [], hand.begin()
    while isinstance(work, DraftPass):
        asked.append((len(work.leaves), work.width))
        work = hand.propose(0.6, 0.2, 0.1)
    return asked, sizes(work)


def test_the_papers_expansion_is_the_yamls_and_has_20_nodes() -> None:
    assert mapping_of("specinfer")["speculation"]["expansion"] == PAPER
    assert nodes_of(PAPER) == 1 + 1 + 3 * 6 == 20


def test_every_step_drafts_and_verifies_all_of_it() -> None:
    asked, nodes = grown_by(play(FixedTrees(PAPER), ANY, rows=2))
    assert asked == [(2, 1), (2, 1), (2, 3), (6, 1), (6, 1), (6, 1), (6, 1), (6, 1)]
    assert nodes == [20, 20]


def test_branches_multiply() -> None:
    asked, nodes = grown_by(play(FixedTrees([2, 3]), ANY))
    assert (asked, nodes) == ([(1, 2), (2, 3)], [8])


def test_no_tree_is_deeper_than_what_may_be_emitted() -> None:
    """5 may be emitted, 1 has been, the bonus is the last: 3 layers, the third with three nodes."""
    assert grown_by(play(FixedTrees(PAPER), ANY, most=5))[1] == [5]


def test_it_does_not_look_at_the_load() -> None:
    for rows in (1, 8):
        assert grown_by(play(FixedTrees(PAPER), Linear(0.0, 1.0, 1.0), rows=rows))[1] == [20] * rows


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


def test_an_empty_expansion_never_drafts() -> None:
    part = FixedTrees([])
    assert not part.drafts
    assert verified(play(part, ANY), 0.9) == [0]


def test_the_most_children_of_a_node() -> None:
    assert (FixedTrees(PAPER).widest, FixedTrees([2, 1]).widest, FixedTrees([]).widest) == (3, 2, 1)


@pytest.mark.parametrize("wrong", [[0], [1, -1], [1.5], [True], "1,1,3", None, {1: 1}])
def test_what_is_no_expansion_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="expansion: "):
        FixedTrees(wrong)
