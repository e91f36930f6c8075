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
from tests.made import memory, requests
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
    assert mapping_of("specinfer")["speculation"]["expansion"] == PAPER
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
