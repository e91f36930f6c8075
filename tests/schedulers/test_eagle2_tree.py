"""EAGLE-2's dynamic trees by hand: which nodes are extended, and which are verified."""

from __future__ import annotations

from specsim.core.passes import DraftPass
from specsim.schedulers.eagle2_tree import DynamicTrees
from tests.made import Linear
from tests.schedulers.test_specserve import play
from tests.unit.hand import sizes


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
    work = hand.begin()
    while isinstance(work, DraftPass):
        work = hand.propose(0.5)
    assert sizes(work) == [4, 4]
    assert work.forest.depth.max() == 4
    assert not DynamicTrees(4, 2, 1).drafts
