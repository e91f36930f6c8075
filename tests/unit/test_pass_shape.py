"""The shape of a pass: one formula, and the two special cases that are quicker."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specsim.pass_shape import PassShape, PassShapes

ROWS = st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 40), st.integers(0, 30)), min_size=1, max_size=20)


def columns(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, ...]:
    cached, chunks, nodes = np.array(rows, dtype=np.int64).T
    return cached, chunks, nodes


@given(ROWS)
def test_it_counts_token_by_token(rows: list[tuple[int, int, int]]) -> None:
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


@given(ROWS)
def test_decoding_and_drafting_are_special_cases(rows: list[tuple[int, int, int]]) -> None:
    cached, _, nodes = columns(rows)
    ones, none = np.ones_like(cached), np.zeros_like(cached)
    assert PassShape.of_decoding(cached, nodes, int(nodes.sum())) == PassShape.of(cached, ones, nodes)
    assert PassShape.of_decoding(cached, None, 0) == PassShape.of(cached, ones)
    assert PassShape.of_nodes(cached, nodes) == PassShape.of(cached, none, nodes)


@given(ROWS)
def test_many_passes_of_one_row_add_up_to_one_of_many(rows: list[tuple[int, int, int]]) -> None:
    cached, chunks, nodes = columns(rows)
    whole = PassShape.of(cached, chunks, nodes)
    last = [np.asarray(each)[-1] for each in PassShapes.each(cached, chunks, nodes).cumulated(axis=0)]
    assert last == [getattr(whole, name) for name in PassShapes._fields]


@given(ROWS)
def test_nodes_may_be_added_to_a_pass_of_roots(rows: list[tuple[int, int, int]]) -> None:
    cached, _, nodes = columns(rows)
    ones, added = np.ones_like(cached), int(nodes.sum())
    whole, pairs = PassShape.of(cached, ones, nodes), float(np.dot(nodes, cached + 2))
    assert PassShape.of(cached, ones).with_nodes(added, pairs) == whole
    grown = PassShapes.with_nodes(PassShape.of(cached, ones), np.array([added]), np.array([pairs]))
    assert [np.asarray(each).item() for each in grown] == [getattr(whole, name) for name in PassShapes._fields]
