"""The shape of a pass: one formula, and the two special cases that are quicker."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specsim.pass_shape import PassShape, PassShapes

ROWS = st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 40), st.integers(0, 30)), min_size=1, max_size=20)


def columns(rows):
    cached, chunks, nodes = np.array(rows, dtype=np.int64).T
    return cached, chunks, nodes


@given(ROWS)
def test_it_counts_token_by_token(rows):
    context = batched = pairs = logits = requests = again = 0
    for cached, chunk, nodes in rows:
        context += cached if chunk + nodes else 0
        batched += chunk + nodes
        pairs += sum(cached + place + 1 for place in range(chunk)) + nodes * (cached + chunk + 1)
        logits += nodes + (chunk > 0)
        requests += chunk + nodes > 0
        again += cached * max(nodes - (chunk == 0), 0)
    expected = PassShape(context, batched, pairs, 3, logits, requests, again)
    assert PassShape.of(*columns(rows), prefill_tokens=3) == expected


def counts(shape):
    return [getattr(shape, name) for name in PassShapes._fields]


@given(ROWS)
def test_the_quicker_ways_count_alike(rows):
    """Passes that decode or draft, many passes of one row, and nodes that are added to a pass of roots."""
    cached, chunks, nodes = columns(rows)
    ones, none, added = np.ones_like(cached), np.zeros_like(cached), int(nodes.sum())
    roots, whole = PassShape.of(cached, ones), PassShape.of(cached, ones, nodes)
    assert PassShape.of_decoding(cached, nodes, added) == whole
    assert PassShape.of_decoding(cached, None, 0) == roots
    assert PassShape.of_nodes(cached, nodes) == PassShape.of(cached, none, nodes)
    last = [np.asarray(each)[-1] for each in PassShapes.each(cached, chunks, nodes).cumulated(axis=0)]
    assert last == counts(PassShape.of(cached, chunks, nodes))
    pairs = float(np.dot(nodes, cached + 2))
    assert roots.with_nodes(added, pairs) == whole
    grown = PassShapes.with_nodes(roots, np.array([added]), np.array([pairs]))
    assert [np.asarray(each).item() for each in grown] == counts(whole)
