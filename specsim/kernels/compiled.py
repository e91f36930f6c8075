"""The kernels in numba, with the signatures of their twins in numpy."""

from __future__ import annotations

import numpy as np

from specsim.kernels.arrays import Bools, Floats, Ints
from specsim.kernels.compiling import told
from specsim.kernels.growth import Front, Grown, Growth, Pooled, Text, numpy_grow
from specsim.kernels.selection import Bounds
from specsim.rng import Words

with told():
    from specsim.kernels import loops


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
    """See `specsim.kernels.selection.numpy_select`."""
    needs, turns = np.ascontiguousarray(need, dtype=np.float64), np.ascontiguousarray(order, dtype=np.int64)
    chosen: Bools = loops.select(row, path, needs, turns, *bounds)
    return chosen


def numba_walk(numbers: Ints, rows: int, rank: Ints) -> Ints:
    """See `specsim.kernels.acceptance.numpy_walk`."""
    matched: Ints = loops.walk(numbers, rows, rank)
    return matched


def numba_rounds(text: Pooled, key: Words, depth: int, left: Ints, room: Ints, most: int) -> Ints:
    """See `specsim.kernels.acceptance.numpy_rounds`."""
    matched = np.empty((most, len(key)), dtype=np.int64)
    count: int = loops.rounds(text.rank, text.start, text.mask, key, depth, left, room, matched)
    return matched[:count]


def numba_hold(held: Ints, ids: Ints, tokens: Ints, block_tokens: int, most: int) -> int:
    """See `specsim.kernels.blocks.numpy_hold`."""
    more: int = loops.hold(held, ids, tokens, block_tokens, most)
    return more
