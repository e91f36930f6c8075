"""The kernels in numba, with the signatures of their twins in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

from specsim.kernels.acceptance import Answer, Texts, numpy_answer
from specsim.kernels.arrays import Bools, Floats, Ints
from specsim.kernels.blocks import numpy_growth
from specsim.kernels.books import NO_INTS, Books, Left, Room, Taken, Tally, numpy_deepen
from specsim.kernels.compiling import compiling
from specsim.kernels.growth import Front, Grown, Growth, Pooled, Text, numpy_grow
from specsim.kernels.layers import Layers
from specsim.kernels.roofline import numpy_pad
from specsim.kernels.selection import Bounds, numpy_select
from specsim.pass_shape import PassShape
from specsim.rng import Words

with compiling():
    from specsim.kernels import block_loops, book_loops, loops, roofline_loops, tree_loops


def numba_grow(text: Text, front: Front, growth: Growth) -> Grown:
    """See `numpy_grow`, which answers where the text is read by somebody's own code, or might have too many nodes."""
    if not isinstance(text, Pooled):
        return numpy_grow(text, front, growth)
    room = level = len(front.node)
    for _ in range(growth.levels):
        proposed = level * growth.width
        level = min(proposed, growth.beam * len(growth.limit)) if growth.beam else proposed
        room += level
        if max(proposed, room) > growth.most:
            return numpy_grow(text, front, growth)
    numbers, odds = np.empty((5, room), dtype=np.int64), np.empty((2, room))
    words, rows = np.empty((2, room), dtype=np.uint64), np.empty((2, room), dtype=np.int64)
    ends, scratch = np.empty(growth.levels, dtype=np.int64), np.empty((4, room), dtype=np.int64)
    keys, ahead = np.empty(room, dtype=np.uint64), np.empty(room * growth.width)
    read = loops.grow(*text, *front, *growth[:-1], numbers, odds, words, rows, ends, scratch, keys, ahead)
    new = slice(len(front.node), len(front.node) + int(ends[-1]))
    return Grown(numbers[:, new], odds[:, new], words[:, :read], rows[:, :read], ends)


def numba_select(row: Ints, path: Floats, need: Floats, order: Ints, bounds: Bounds) -> Bools:
    """See `specsim.kernels.selection.numpy_select`, which answers where rows are named that are not there."""
    needs, turns = np.ascontiguousarray(need, dtype=np.float64), np.ascontiguousarray(order)
    if turns.dtype.kind in "iu" and bounds.budget >= len(needs):
        chosen: Bools = loops.select(row, path, needs, turns.astype(np.int64, copy=False), *bounds)
        if len(chosen) == len(row):
            return chosen
    return numpy_select(row, path, need, order, bounds)


def numba_roofline(
    context: Any, batched: Any, pairs: Any, logits: Any, rates: Floats, few: Floats, few_logits: Floats
) -> Floats:
    """See `specsim.kernels.roofline.numpy_roofline`."""
    return np.asarray(roofline_loops.roofline(context, batched, pairs, logits, rates, few, few_logits))


def numba_pad(batched: Any, sizes: Ints) -> Any:
    """See `specsim.kernels.roofline.numpy_pad`, which answers where a mean number of tokens is asked for."""
    return np.asarray(roofline_loops.pad(batched, sizes)) if _whole(batched) else numpy_pad(batched, sizes)


def _whole(counts: Any) -> bool:
    return np.asarray(counts).dtype == np.int64


def numba_subset(numbers: Ints, odds: Floats, rows: int, keep: Bools) -> tuple[Ints, Floats] | None:
    """See `specsim.kernels.subset.numpy_subset`."""
    kept = rows + int(np.count_nonzero(keep[rows:]))
    some, probabilities = np.empty((5, kept), dtype=np.int64), np.empty((2, kept))
    legal = tree_loops.subset(numbers, odds, rows, np.ascontiguousarray(keep), some, probabilities)
    return (some, probabilities) if legal else None


def numba_answer(texts: Texts, ids: Ints, chunks: Ints, numbers: Ints, rank: Ints) -> Answer:
    """See `specsim.kernels.acceptance.numpy_answer`, which answers where a forest is none of ours."""
    told, finished = np.empty((3, len(ids)), dtype=np.int64), np.empty(len(ids), dtype=np.bool_)
    if not tree_loops.answer(numbers, rank, *texts, ids, chunks, told, finished):
        return numpy_answer(texts, ids, chunks, numbers, rank)
    tokens, accepted, matched = told
    return tokens, accepted, matched, finished


def numba_rounds(text: Pooled, key: Words, depth: int, left: Ints, room: Ints, most: int) -> Ints:
    """See `specsim.kernels.acceptance.numpy_rounds`."""
    matched = np.empty((most, len(key)), dtype=np.int64)
    count: int = loops.rounds(text.rank, text.start, text.mask, key, depth, left, room, matched)
    return matched[:count]


def numba_hold(held: Ints, ids: Ints, tokens: Ints, block_tokens: int, most: int) -> int:
    """See `specsim.kernels.blocks.numpy_hold`."""
    more: int = block_loops.hold(held, ids, tokens, block_tokens, most)
    return more


def numba_layers(grown: Grown, depth: int, deepest: Ints | None, cached: Ints) -> Layers:
    """See `specsim.kernels.layers.numpy_layers`."""
    counts, scratch = np.empty((depth - 1, 4), dtype=np.int64), np.empty(len(cached), dtype=np.int64)
    extended = np.empty(grown.numbers.shape[1], dtype=np.int64)
    numbers = np.ascontiguousarray(grown.numbers)
    limit = NO_INTS if deepest is None else np.ascontiguousarray(deepest)
    passes, many = tree_loops.layers(numbers, grown.ends, limit, cached, counts, extended, scratch)
    shapes: list[PassShape] = []
    before: list[int] = []
    for each in counts[:passes].tolist():
        if each == before:
            shapes.append(shapes[-1])
            continue
        context, batched, requests, again = before = each
        pairs = float(context + again + batched)
        shapes.append(PassShape(context, batched, pairs, 0, batched, requests, again))
    return Layers(shapes, extended[:many])


def numba_growth(blocks: Ints, ids: Ints, target: Ints, draft: Ints, block_tokens: int, sizes: tuple[int, int]) -> Ints:
    """See `specsim.kernels.blocks.numpy_growth`, which answers all but rows of whole numbers of requests that exist."""
    if not (_rows(target, ids) and _rows(draft, ids)):
        return numpy_growth(blocks, ids, target, draft, block_tokens, sizes)
    more, columns = np.empty(len(ids), dtype=np.int64), (np.ascontiguousarray(each) for each in (ids, target, draft))
    found = block_loops.growth(blocks, *columns, block_tokens, *sizes, more)
    return more if found else numpy_growth(blocks, ids, target, draft, block_tokens, sizes)


def _rows(tokens: Any, ids: Ints) -> bool:
    arrays = isinstance(tokens, np.ndarray) and isinstance(ids, np.ndarray) and ids.ndim == 1
    return arrays and tokens.dtype == ids.dtype == np.int64 and tokens.shape == ids.shape


def numba_reserve(books: Books, ids: Ints, chunks: Ints, numbers: Ints, room: Room) -> Taken:
    """See `specsim.kernels.books.numpy_reserve`."""
    tree, cached = np.empty((2, len(ids)), dtype=np.int64)
    told = book_loops.reserve(*books, ids, chunks, numbers, *room, tree, cached)
    return _taken(told, tree if numbers.shape[1] > len(ids) else tree[:0])


def numba_reserve_draft(
    books: Books, ids: Ints, chunks: Ints, numbers: Ints, fresh: int, leaves: Ints, room: Room
) -> Taken:
    """See `specsim.kernels.books.numpy_reserve_draft`."""
    extended, scratch = np.empty(len(leaves), dtype=np.int64), np.empty((3, len(ids)), dtype=np.int64)
    leaves = np.ascontiguousarray(leaves)
    return _taken(
        book_loops.reserve_draft(*books, ids, chunks, numbers, fresh, leaves, *room, extended, scratch), extended
    )


def _taken(told: tuple[Any, ...], rows: Ints) -> Taken:
    blocks, *counts = told
    return Taken(0, None, rows[:0]) if blocks == book_loops.ILLEGAL else Taken(blocks, PassShape(*counts), rows)


def numba_deepen(books: Books, ids: Ints, chunks: Ints, numbers: Ints, extended: Ints, room: Room) -> int:
    """See `specsim.kernels.books.numpy_deepen`, which answers where nodes are named that are not there."""
    scratch, nodes = np.empty((2, len(ids)), dtype=np.int64), np.ascontiguousarray(extended, dtype=np.int64)
    more: int = book_loops.deepen(*books, ids, chunks, numbers, nodes, *room, scratch)
    return more if more != book_loops.ILLEGAL else numpy_deepen(books, ids, chunks, numbers, extended, room)


def numba_commit(
    books: Books,
    tally: Tally,
    ids: Ints,
    chunks: Ints,
    tree: Ints,
    answer: Answer,
    drafted: bool,
    feeds: bool,
    now_s: float,
    block_tokens: int,
) -> Left:
    """See `specsim.kernels.books.numpy_commit`."""
    # A backend of one's own may count in other integers.
    tokens, accepted, matched = (np.ascontiguousarray(each, dtype=np.int64) for each in answer[:3])
    who, gaps_s = np.empty((2, len(ids)), dtype=np.int64), np.empty(len(ids))
    asked = ids, chunks, tree, tokens, accepted, matched, drafted, feeds, now_s
    more, more_draft, later, first = book_loops.commit(*books, *tally, *asked, block_tokens, who, gaps_s)
    return Left(more, more_draft, who[0, :later], gaps_s[:later], who[1, :first])
