"""Each kernel in numba equals its twin in numpy to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.kernels.acceptance import Texts, numpy_answer, numpy_rounds, numpy_walk
from specsim.kernels.blocks import numpy_growth, numpy_hold
from specsim.kernels.growth import ALL, PARENT, ROW, Front, Grown, Growth, Pooled, numpy_grow
from specsim.kernels.layers import numpy_layers
from specsim.kernels.roofline import numpy_pad, numpy_roofline
from specsim.kernels.selection import Bounds, numpy_select
from specsim.kernels.subset import numpy_subset
from specsim.rng import STRIDE
from tests.examples import examples

pytest.importorskip("numba", reason="needs specsim[fast]")

CHANCES = (0.0, 0.1, 0.3, 0.3, 0.5, 0.9, 1.0)
"""Few, so that ties are frequent."""
many = settings(max_examples=examples(200, 2_000), deadline=None, derandomize=True)


def assert_equal(one: Sequence[Any], other: Sequence[Any]) -> None:
    for mine, theirs in zip(one, other, strict=True):
        assert np.asarray(mine).dtype == np.asarray(theirs).dtype
        assert np.asarray(mine).tobytes() == np.asarray(theirs).tobytes()
        assert np.shape(mine) == np.shape(theirs)


@st.composite
def fronts(draw: st.DrawFn) -> tuple[Pooled, Front, Growth]:
    luck = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    width, trees = draw(st.integers(1, 5)), draw(st.integers(1, 8))
    confidence = np.sort(luck.choice(CHANCES[draw(st.integers(0, 1)) :], (64, width)))[:, ::-1].copy()
    if draw(st.booleans()):
        row = np.repeat(np.arange(trees), draw(st.integers(1, 3)))
    else:
        row = np.sort(luck.integers(0, trees, draw(st.integers(1, 16))))
    leaves = len(row)
    start = luck.integers(0, 4, leaves) * 16
    off_start = start if draw(st.booleans()) else luck.integers(0, 4, leaves) * 16
    rank = luck.integers(0, width + 1, 64)
    text = Pooled(confidence, rank, bool((confidence[:, 0] == 0).any()), start, off_start, 15)
    keys = luck.integers(0, 2**64, leaves, dtype=np.uint64, endpoint=False)
    front = Front(
        50 + np.arange(leaves), row, luck.integers(0, 3, leaves), luck.random(leaves), keys, luck.random(leaves) < 0.7
    )
    limit = luck.integers(0, 7, trees) if draw(st.booleans()) else np.full(trees, 1 << 20)
    beam = draw(st.sampled_from((ALL, 1, 2, 3, 4)))
    most = draw(st.sampled_from((40, 1 << 21)))
    return text, front, Growth(limit, draw(st.integers(1, 5)), draw(st.integers(1, width)), beam, 50 + leaves, most)


@many
@given(fronts())
def test_trees_grow_the_same(drawn: tuple[Pooled, Front, Growth]) -> None:
    from specsim.kernels.compiled import numba_grow

    assert_equal(numpy_grow(*drawn), numba_grow(*drawn))


def test_more_proposals_than_allowed_are_refused_with_their_number() -> None:
    from specsim.kernels.compiled import numba_grow

    text = Pooled(np.full((4, 3), 0.3), np.zeros(4, dtype=np.int64), False, *(np.zeros(2, dtype=np.int64),) * 2, 3)
    front = Front(
        *(np.arange(2),) * 2, np.zeros(2, dtype=np.int64), np.ones(2), np.zeros(2, dtype=np.uint64), np.ones(2, bool)
    )
    growth = Growth(np.full(2, 9), 4, 3, ALL, 2, 17)
    assert [grow(text, front, growth).refused for grow in (numpy_grow, numba_grow)] == [18, 18]


@many
@given(st.data())
def test_the_same_nodes_are_selected(data: st.DataObject) -> None:
    from specsim.kernels.compiled import numba_select

    luck = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    rows, nodes = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 60))
    row, path = (
        luck.integers(0, rows, nodes),
        luck.choice(CHANCES if data.draw(st.booleans()) else luck.random(9), nodes),
    )
    need = luck.choice([-np.inf, 0.0, 1.0, 1.5, 2.0, 3.0, 5.0, np.inf], rows)
    below = st.sampled_from((0.0, 0.3, 0.5))
    bounds = Bounds(
        data.draw(st.integers(0, 10)),
        data.draw(st.integers(rows, rows + nodes + 4)),
        data.draw(st.booleans()),
        data.draw(below),
        data.draw(below),
        data.draw(st.sampled_from((1, 4, 8))),
    )
    asked = (row, path, need, luck.permutation(rows), bounds)
    assert numpy_select(*asked).tobytes() == numba_select(*asked).tobytes()


def test_an_order_of_any_layout_is_taken() -> None:
    """A scheduler of one's own may turn an array round, or count in other integers."""
    from specsim.kernels.compiled import numba_select

    asked = np.arange(6) % 3, np.linspace(0.9, 0.1, 6), np.array([1.5, 2, 9], dtype=np.float32)[::-1]
    bounds = Bounds(3, 6, True, 0, 0, 1)
    for order in (np.arange(3)[::-1], np.array([2, 0, 1], dtype=np.int32)):
        assert numpy_select(*asked, order, bounds).tolist() == numba_select(*asked, order, bounds).tolist()


@st.composite
def trees(draw: st.DrawFn) -> tuple[int, Any, Grown, np.random.Generator]:
    """Rows, a forest's numbers, what was grown of it, and luck."""
    text, front, growth = draw(fronts())
    grown = numpy_grow(text, front, growth._replace(most=1 << 21))
    rows = len(growth.limit)
    numbers = np.concatenate((np.zeros((5, rows), dtype=np.int64), grown.numbers), axis=1)
    numbers[ROW, :rows], numbers[PARENT, :rows] = np.arange(rows), -1
    # The front's nodes count from 50, as if others stood before them.
    numbers[PARENT, rows:] = np.maximum(numbers[PARENT, rows:] - growth.first + rows, numbers[ROW, rows:])
    return rows, numbers, grown, np.random.default_rng(draw(st.integers(0, 2**32 - 1)))


@many
@given(trees())
def test_the_target_says_the_same(drawn: tuple[int, Any, Grown, np.random.Generator]) -> None:
    from specsim.kernels.compiled import numba_answer

    rows, numbers, grown, luck = drawn
    rank = luck.integers(-1, 6, max(grown.rows.shape[1], 1))
    prompt, emitted = luck.integers(1, 9, 12), luck.integers(0, 4, 12)
    texts = Texts(prompt, emitted, luck.integers(0, prompt + emitted), emitted + luck.integers(1, 6, 12))
    ids = luck.permutation(12)[:rows]
    chunks = np.where(luck.random(rows) < 0.7, (prompt + emitted - texts.target_cached)[ids], 1)
    assert_equal(*(answer(texts, ids, chunks, numbers, rank) for answer in (numpy_answer, numba_answer)))


@many
@given(trees())
def test_the_same_nodes_are_kept(drawn: tuple[int, Any, Grown, np.random.Generator]) -> None:
    from specsim.kernels.compiled import numba_subset

    rows, numbers, grown, luck = drawn
    odds = np.concatenate((np.ones((2, rows)), grown.odds), axis=1)
    keep = luck.random(numbers.shape[1]) < luck.choice((0.3, 0.9))
    if luck.random() < 0.7:
        for node in range(rows, len(keep)):
            keep[node] &= keep[numbers[PARENT, node]] or numbers[PARENT, node] < rows
    one, other = (subset(numbers, odds, rows, keep) for subset in (numpy_subset, numba_subset))
    assert (one is None) == (other is None)
    assert_equal(one or (), other or ())


@many
@given(trees(), st.data())
def test_further_passes_extend_the_same_nodes(
    drawn: tuple[int, Any, Grown, np.random.Generator], data: st.DataObject
) -> None:
    from specsim.kernels.compiled import numba_layers

    rows, _, grown, luck = drawn
    deepest = luck.integers(0, 7, (rows, 2))[:, 0] if data.draw(st.booleans()) else None
    depth = data.draw(st.integers(1, len(grown.ends)))
    cached = luck.integers(0, 90, rows)
    one, other = (layers(grown, depth, deepest, cached) for layers in (numpy_layers, numba_layers))
    assert one.shapes == other.shapes
    assert len(one.shapes) < depth
    assert_equal([one.extended], [other.extended])


@many
@given(fronts(), st.data())
def test_the_target_walks_chain_after_chain_the_same_way(
    drawn: tuple[Pooled, Front, Growth], data: st.DataObject
) -> None:
    """As far as trees of one chain say that are grown anew behind each bonus token."""
    from specsim.kernels.compiled import numba_rounds

    text, front, _ = drawn
    rows, depth, most = len(front.node), data.draw(st.integers(1, 5)), data.draw(st.integers(1, 20))
    luck = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    left, room = luck.integers(1, 60, rows), luck.integers(0, 90, rows)
    found = numpy_rounds(text, front.key, depth, left, room, most)
    assert_equal([found], [numba_rounds(text, front.key, depth, left, room, most)])
    emitted = np.zeros(rows, dtype=np.int64)
    for each in found:
        assert (emitted < np.minimum(left, room)).all()
        on_path = np.arange(rows), np.arange(rows), *np.zeros((1, rows), dtype=np.int64), np.ones(rows)
        key = front.key + STRIDE * emitted.astype(np.uint64)
        growth = Growth(np.full(rows, 1 << 20), depth, 1, ALL, rows, 1 << 21)
        spoken = text._replace(silent=False)
        grown = numpy_grow(spoken, Front(*on_path, key, np.ones(rows, dtype=np.bool_)), growth)
        numbers = np.concatenate((np.zeros((5, rows), dtype=np.int64), grown.numbers), axis=1)
        assert np.array_equal(each, numpy_walk(numbers, rows, grown.rows[1]))
        emitted += each + 1
    assert len(found) == most or (emitted >= np.minimum(left, room)).any()


@many
@given(st.data())
def test_the_same_blocks_are_held(data: st.DataObject) -> None:
    from specsim.kernels.compiled import numba_hold

    luck = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    held = luck.integers(0, 6, 12)
    ids = luck.permutation(12)[: data.draw(st.integers(1, 12))]
    block_tokens, most = data.draw(st.sampled_from((1, 3, 16))), data.draw(st.integers(-5, 20))
    tokens = held[ids] * block_tokens if data.draw(st.booleans()) else luck.integers(0, 90, len(ids))
    after = [held.copy(), held.copy()]
    more = [
        hold(each, ids, tokens, block_tokens, most) for hold, each in zip((numpy_hold, numba_hold), after, strict=True)
    ]
    assert more[0] == more[1] == (-(-tokens // block_tokens) - held[ids]).sum()
    assert_equal(after[:1], after[1:])
    assert (after[0] != held).any() <= (more[0] <= most)


@many
@given(st.integers(0, 2**32 - 1))
def test_requests_grow_by_the_same(seed: int) -> None:
    from specsim.kernels.compiled import numba_growth

    luck = np.random.default_rng(seed)
    ids = luck.permutation(12)[: luck.integers(0, 13)]
    target = luck.integers(0, 90, ((), (3, 1))[luck.integers(2)]) + luck.integers(0, 9, len(ids))
    draft = luck.integers(0, 90, len(ids)) / luck.choice((1, 1, 2))
    draft = draft if (draft % 1).any() else draft.astype(np.int64)
    asked = luck.integers(0, 6, (2, 12)), ids, target, draft, int(luck.integers(1, 20)), (7 << 40, 0)
    assert_equal([numpy_growth(*asked)], [numba_growth(*asked)])


def test_nothing_is_read_beyond_the_end() -> None:
    """Compiled loops look at no bounds: what is named that is not there goes to numpy, which says so."""
    from specsim.kernels.compiled import numba_growth, numba_select, numba_subset

    blocks, ids = np.zeros((2, 3), dtype=np.int64), np.array([0, 3])
    tokens, odds = np.ones(2, dtype=np.int64), np.ones((2, 3))
    for growth in (numpy_growth, numba_growth):
        with pytest.raises(IndexError):
            growth(blocks, ids, tokens, tokens, 1, (1, 1))
        assert growth(blocks, [1, 2], tokens, tokens, 1, (2, 3)).tolist() == [5, 5]  # type: ignore[arg-type]
    numbers = np.zeros((5, 3), dtype=np.int64)
    numbers[PARENT] = -1, 7, 0
    assert numba_subset(numbers, odds, 1, np.ones(3, dtype=np.bool_)) is None
    bounds = Bounds(3, 9, True, 0, 0, 1)
    for select in (numpy_select, numba_select):
        for row, order in (([0, 5], [0, 1]), ([0, 1], [0, 6])):
            with pytest.raises((IndexError, ValueError)):
                select(np.array(row), np.ones(2), np.full(2, 9.0), np.array(order), bounds)


@many
@given(st.data())
def test_passes_take_the_same_seconds(data: st.DataObject) -> None:
    from specsim.kernels.compiled import numba_pad, numba_roofline

    luck = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    shapes: tuple[tuple[int, ...], ...] = ((), (5,), (3, 1), (3, 5))
    context, batched, pairs, logits = (
        luck.integers(0, most, shapes[luck.integers(len(shapes))]) for most in (90_000, 600, 9_000_000, 40)
    )
    if data.draw(st.booleans()):
        batched = batched / 8
    rates = luck.random(10) * (luck.random(10) < 0.7)
    rates[6] = data.draw(st.sampled_from((1, 8, 64)))
    few, few_logits = luck.random(luck.integers(0, 4)) - 0.5, luck.random(luck.integers(0, 4)) - 0.5
    asked = context, batched, pairs, logits, rates, few, few_logits
    assert_equal([numpy_roofline(*asked)], [numba_roofline(*asked)])
    sizes = np.unique(luck.integers(1, 500, luck.integers(1, 9)))
    asked = luck.integers(0, 600, shapes[luck.integers(len(shapes))]), sizes
    asked = asked if data.draw(st.booleans()) else (asked[0] / 2, sizes)
    assert_equal([numpy_pad(*asked)], [numba_pad(*asked)])
