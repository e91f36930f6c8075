"""Growing trees by all levels of a draft: what the tape proposes behind each node, and which proposals are kept."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from specsim.kernels.arrays import Bools, Floats, Ints
from specsim.rng import STRIDE, Words, mix

ROW, PARENT, DEPTH, TOKEN, SLOT = range(5)
PROBABILITY, PATH = range(2)
OFF_PATH = -1
"""The rank of the target's token off the target's path, where no proposal is right."""
ALL = 0
"""The beam that keeps every proposal."""
MOST_PROPOSALS = 64
_WRONG_TURN = STRIDE * (2 * np.arange(MOST_PROPOSALS, dtype=np.uint64) + np.uint64(3))


def next_keys(keys: Words, hashed: Words, right: Bools, tokens: Ints | int) -> Words:
    """Return the keys one token further: moved by a stride if the token is right, else a hash of (key, rank).

    All arguments (n,); `hashed` is ``mix(keys)``, `tokens` are ranks.
    """
    return np.where(right, keys + STRIDE, hashed + _WRONG_TURN[tokens])


class Text(Protocol):
    """The tape as `numpy_grow` reads it."""

    @property
    def confidence(self) -> Floats:
        """The drafter's top-K probabilities, (rows, K)."""
        ...

    @property
    def rank(self) -> Ints:
        """The rank of the target's token among them, (rows,)."""
        ...

    @property
    def silent(self) -> bool:
        """Whether any row proposes nothing."""
        ...

    def at(self, member: Ints, keys: Words, hashed: Words, on: Bools) -> Ints:
        """Return the row of each key, (n,), of the text of `member`, places in the front."""
        ...


class Pooled(NamedTuple):
    """A `Text` whose rows a hash picks from pools.

    Attributes
    ----------
    start, off_start : (m,) first row of the pools of each node of the front, on and off the target's path.
    mask : one less than the rows of a pool, a power of two.
    """

    confidence: Floats
    rank: Ints
    silent: bool
    start: Ints
    off_start: Ints
    mask: int

    def at(self, member: Ints, keys: Words, hashed: Words, on: Bools) -> Ints:
        """Return the row that each key's hash picks; see `Text`."""
        starts = self.start[member]
        if self.off_start is not self.start:
            starts = np.where(on, starts, self.off_start[member])
        return starts + (hashed & np.uint64(self.mask)).view(np.int64)


class Front(NamedTuple):
    """The nodes that are extended first, (m,) each, grouped by row: where they stand, and the text behind them.

    Attributes
    ----------
    node, row, depth, path : as in a forest. key : of the text behind the node. on : whether that is the target's own.
    """

    node: Ints
    row: Ints
    depth: Ints
    path: Floats
    key: Words
    on: Bools


class Growth(NamedTuple):
    """How far to grow.

    Attributes
    ----------
    limit : (rows,) a node of row r at depth `limit[r]` or below gets no children.
    levels : how often. width : proposals behind each node. beam : new nodes kept of each row a level; `ALL`.
    first : the number of the first new node. most : proposals of a level at which it is refused.
    """

    limit: Ints
    levels: int
    width: int
    beam: int
    first: int
    most: int


class Grown(NamedTuple):
    """New nodes, level by level, and what was read behind the extended ones.

    Attributes
    ----------
    numbers : (5, new) `ROW` to `SLOT`; the slot counts what was read from 0. odds : (2, new) `PROBABILITY`, `PATH`.
    words : (2, read) the key and the hashed key. rows : (2, read) the row of the tape and the rank of the target's
        token in it, `OFF_PATH` off the path.
    ends : (levels,) new nodes by the end of each level.
    refused : the proposals of the level that was wider than `most`; 0 where none was, else the rest is void.
    """

    numbers: Ints
    odds: Floats
    words: Words
    rows: Ints
    ends: Ints
    refused: int = 0


def numpy_grow(text: Text, front: Front, growth: Growth) -> Grown:
    """Return the nodes grown behind a front, level by level."""
    if growth.width == 1 and growth.beam == ALL and not text.silent:
        return _chains(text, front, growth)
    node, row, depth, path, key, on = front
    member, first, read = np.arange(len(node)), growth.first, 0
    numbers, odds, words, rows, ends = [], [], [], [], []
    deep = int(depth.max()) + growth.levels > int(growth.limit.min())
    for _ in range(growth.levels):
        if deep and not (going := depth < growth.limit[row]).all():
            node, row, depth, path = node[going], row[going], depth[going], path[going]
            key, on, member = key[going], on[going], member[going]
        if len(node) * growth.width > growth.most:
            return _NOTHING._replace(refused=len(node) * growth.width)
        hashed = mix(key)
        at = text.at(member, key, hashed, on)
        rank = text.rank[at]
        rank[~on] = OFF_PATH
        confidence = text.confidence.take(at, axis=0)[:, : growth.width]
        ahead = confidence * path[:, None]
        kept = likeliest(row, ahead, growth.beam) if growth.beam != ALL and len(row) else np.arange(ahead.size)
        if text.silent:
            kept = kept[ahead.take(kept) > 0]
        behind = kept // growth.width
        token = kept - behind * growth.width
        words.append((key, hashed))
        rows.append((at, rank))
        row, depth, path = row[behind], depth[behind] + 1, ahead.take(kept)
        numbers.append((row, node[behind], depth, token, behind + read))
        odds.append((confidence.take(kept), path))
        on = rank[behind] == token
        key = next_keys(key[behind], hashed[behind], on, token)
        member, node = member[behind], np.arange(first, first + len(kept))
        first, read = first + len(kept), read + len(at)
        ends.append(first - growth.first)
        if not len(kept):
            break
    ends += [ends[-1]] * (growth.levels - len(ends))
    return Grown(_joined(numbers), _joined(odds), _joined(words), _joined(rows), np.array(ends))


def _joined(levels: list[tuple[Any, ...]]) -> Any:
    """Return the columns of all levels side by side, (columns, n)."""
    first = levels[0]
    joined = np.empty((len(first), sum(len(columns[0]) for columns in levels)), dtype=first[0].dtype)
    low = high = 0
    for columns in levels:
        low, high = high, high + len(columns[0])
        for place, column in enumerate(columns):
            joined[place, low:high] = column
    return joined


def _chains(text: Text, front: Front, growth: Growth) -> Grown:
    """Return one new node behind each node, level by level: only the hashes are taken one by one."""
    nodes, levels = len(front.node), growth.levels
    member = np.arange(nodes)
    words, rows = np.empty((2, levels, nodes), dtype=np.uint64), np.empty((2, levels, nodes), dtype=np.int64)
    key, on = front.key, front.on
    for level in range(levels):
        hashed = mix(key)
        at = text.at(member, key, hashed, on)
        rank = text.rank[at]
        rank[~on] = OFF_PATH
        words[0, level], words[1, level], rows[0, level], rows[1, level] = key, hashed, at, rank
        on = rank == 0
        key = next_keys(key, hashed, on, 0)
    depth = front.depth + np.arange(levels)[:, None]
    numbers, odds = np.zeros((5, levels, nodes), dtype=np.int64), np.empty((2, levels, nodes))
    numbers[ROW], numbers[DEPTH] = front.row, depth + 1
    odds[PROBABILITY] = text.confidence[rows[0], 0]
    odds[PATH] = odds[PROBABILITY]
    odds[PATH, :1] *= front.path
    np.multiply.accumulate(odds[PATH], axis=0, out=odds[PATH])
    going = depth < growth.limit[front.row]
    if whole := np.count_nonzero(going) == going.size:
        order = np.arange(going.size).reshape(going.shape)
        ends = np.arange(nodes, going.size + 1, nodes)
    else:
        order = np.cumsum(going).reshape(going.shape) - 1
        ends = np.cumsum(np.count_nonzero(going, axis=1))
    numbers[SLOT] = order
    numbers[PARENT, 0], numbers[PARENT, 1:] = front.node, order[:-1] + growth.first

    def told(columns: Any) -> Any:
        flat = columns.reshape(len(columns), -1)
        return flat if whole else flat.compress(going.ravel(), axis=1)

    return Grown(told(numbers), told(odds), told(words), told(rows), ends)


_NOTHING = Grown(
    np.zeros((5, 0), dtype=np.int64),
    np.zeros((2, 0)),
    np.zeros((2, 0), dtype=np.uint64),
    np.zeros((2, 0), dtype=np.int64),
    np.zeros(0, dtype=np.int64),
)


def likeliest(row: Ints, score: Floats, count: int) -> Ints:
    """Return the flat indices into `score` of each row's `count` highest, ties to the earlier entry, rows in order.

    Where each row has as many and no more than `count`, they keep their order.

    Parameters
    ----------
    row : (leaves,) non-decreasing row of each leaf.
    score : (leaves, width) of what stands behind each leaf.
    """
    leaves, width = score.shape
    rows = int(row[-1]) + 1
    per_row, rest = divmod(leaves, rows)
    if rest or np.count_nonzero(row != _even_rows(rows, per_row)):
        return _likeliest_of_ragged(np.repeat(row, width), score.ravel(), count)
    if per_row * width <= count:
        return np.arange(leaves * width)
    best = np.argsort(-score.reshape(rows, per_row * width), axis=1, kind="stable")[:, :count]
    best += np.arange(0, leaves * width, per_row * width)[:, None]
    return best.ravel()


@lru_cache(maxsize=1024)
def _even_rows(rows: int, per_row: int) -> Ints:
    return np.repeat(np.arange(rows), per_row)


def _likeliest_of_ragged(row: Ints, score: Floats, count: int) -> Ints:
    order = np.lexsort((-score, row))
    sorted_rows = row[order]
    rank = np.arange(len(row)) - np.searchsorted(sorted_rows, sorted_rows, side="left")
    return order[rank < count]
