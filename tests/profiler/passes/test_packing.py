from __future__ import annotations

import numpy as np
from hypothesis import given

from profiler.attention.packing import EVERYWHERE, Work, pack
from tests.profiler.passes.works import seen_by_definition, works


def test_a_tree_behind_a_chunk_by_hand():
    """Context 5, one pending token, then nodes 0 - 1, 0 behind the token, 2 - 3 beside them."""
    packed = pack(Work.of([5], [1], [0, 0, 0, 0], [-1, 0, -1, 2]))
    assert packed.position.tolist() == [5, 6, 7, 6, 7]
    assert packed.key.tolist() == [5, 6, 7, 8, 9]
    assert packed.point.tolist() == [0, 1, 2, 3, 4]
    assert packed.closes.tolist() == [EVERYWHERE, 3, 3, 5, 5]
    assert packed.logits.tolist() == [0, 1, 2, 3, 4]


def test_cached_nodes_are_seen_but_ask_nothing():
    work = Work.of([3], [0], [0, 0, 0], [-1, 0, 1], [True, True, False])
    packed = pack(work)
    assert packed.position.tolist() == [5]
    assert packed.key.tolist() == [5]
    assert work.batched_tokens == 1
    assert work.context_tokens == 3
    assert work.attention_pairs == 4
    assert work.logit_tokens == 1


def test_counts_by_hand():
    work = Work.of([10, 0], [1, 4], [0, 0], [-1, 0])
    assert work.new_tokens.tolist() == [3, 4]
    assert work.key_tokens.tolist() == [13, 4]
    assert work.attention_pairs == 11 + 2 * 12 + 10
    assert work.logit_tokens == 1 + 2 + 1


@given(works())
def test_intervals_say_what_a_walk_up_the_tree_says(work):
    packed = pack(work)
    expected = list(seen_by_definition(work))
    assert packed.row.tolist() == [row for row, _ in expected]
    for query, (row, keys) in enumerate(expected):
        tail = slice(packed.tail_start[row], packed.tail_start[row + 1])
        inside = (packed.opens[tail] <= packed.point[query]) & (packed.point[query] < packed.closes[tail])
        assert [*range(work.context[row]), *(work.context[row] + np.flatnonzero(inside))] == keys
        assert packed.key[query] == keys[-1] or packed.key[query] in keys
        assert packed.position[query] == len(keys) - 1
