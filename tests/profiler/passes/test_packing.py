"""Random passes, and by definition what each of their queries sees; both ways of counting and packing them agree."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiler.attention.packing import Work, pack


@st.composite
def works(draw, rows=4, context=40, chunk=12, nodes=8):
    """Rows of any context from 0, a chunk or none, a tree, a chain, one node or none, part of it cached."""
    contexts, chunks, row, parent, cached = [], [], [], [], []
    for number in range(draw(st.integers(1, rows))):
        contexts.append(draw(st.integers(0, context)))
        size = draw(st.integers(0, nodes))
        first = len(parent)
        for place in range(size):
            behind = draw(st.integers(-1, place - 1))
            parent.append(behind if behind < 0 else first + behind)
        held = draw(st.integers(0, size))
        cached += [place < held for place in range(size)]
        row += [number] * size
        chunks.append(draw(st.integers(0 if held < size else 1, chunk)))
    return Work.of(contexts, chunks, row, parent, cached)


def seen_by_definition(work):
    """Yield (row, places of the keys seen) of each query, in order: context, chunk up to itself, then ancestors."""
    for row in range(work.rows):
        context, chunk = int(work.context[row]), int(work.chunk[row])
        for place in range(chunk):
            yield row, list(range(context + place + 1))
        mine = np.flatnonzero(work.node_row == row)
        for node in mine:
            if work.node_cached[node]:
                continue
            path, at = [], int(node)
            while at >= 0:
                path.append(context + chunk + int(np.searchsorted(mine, at)))
                at = int(work.node_parent[at])
            yield row, [*range(context + chunk), *sorted(path)]


def test_counts_by_hand():
    """Cached nodes are seen but ask nothing."""
    work = Work.of([3], [0], [0, 0, 0], [-1, 0, 1], [True, True, False])
    assert (work.batched_tokens, work.context_tokens, work.attention_pairs, work.logit_tokens) == (1, 3, 4, 1)
    work = Work.of([10, 0], [1, 4], [0, 0], [-1, 0])
    assert (work.new_tokens.tolist(), work.key_tokens.tolist()) == ([3, 4], [13, 4])
    assert (work.attention_pairs, work.logit_tokens) == (11 + 2 * 12 + 10, 1 + 2 + 1)
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
