import numpy as np
from hypothesis import given

from profiler.attention.packing import Work, pack
from tests.profiler.passes.works import seen_by_definition, works


def test_counts_by_hand():
    """Cached nodes are seen but ask nothing."""
    work = Work.of([3], [0], [0, 0, 0], [-1, 0, 1], [True, True, False])
    assert (work.batched_tokens, work.context_tokens, work.attention_pairs, work.logit_tokens) == (1, 3, 4, 1)
    work = Work.of([10, 0], [1, 4], [0, 0], [-1, 0])
    assert work.new_tokens.tolist() == [3, 4]
    assert work.key_tokens.tolist() == [13, 4]
    assert work.attention_pairs == 11 + 2 * 12 + 10
    assert work.logit_tokens == 1 + 2 + 1
    assert pack(work).logits.tolist() == [0, 1, 2, 6]


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
