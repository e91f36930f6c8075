"""Growth of draft trees and the tokens that a target chooses, as functions of arrays."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from specsim.kernels import compiled_loops
from specsim.rng import STRIDE, Words, mix

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


Answer = tuple[Ints, Ints, Ints, Bools]
"""Tokens emitted, draft tokens accepted, draft tokens that were right, rows that finish; (n,) each."""


class Texts(NamedTuple):
    """Columns of all requests, (N,) each: how far each is read and emitted, and how long its output will be."""

    prompt_tokens: Ints
    emitted_tokens: Ints
    target_cached: Ints
    output_tokens: Ints


def answer(texts: Texts, ids: Ints, scheduled: Ints, numbers: Ints, rank: Ints) -> Answer:
    """Return what a verification emits of requests `ids` (n,), `scheduled` (n,) pending tokens and a forest.

    A row that is scheduled all its pending tokens emits its right tokens and one more, up to its end.

    Parameters
    ----------
    numbers : (5, nodes) of a forest; a parent stands before its children, which are right only where it is.
    rank : (slots,) the token that is right in each slot.

    Raises
    ------
    IndexError
        When a node is of a row or a slot that does not exist.
    """
    told, finished = np.empty((3, len(ids)), dtype=np.int64), np.empty(len(ids), dtype=np.bool_)
    if not compiled_loops().answer(numbers, rank, *texts, ids, scheduled, told, finished):
        raise IndexError(f"a forest has nodes of other rows than its {len(ids)}, or of other slots than {len(rank)}")
    tokens, accepted, matched = told
    return tokens, accepted, matched, finished


def rounds(text: Pooled, key: Words, depth: int, left: Ints, room: Ints, most: int) -> Ints:
    """Return how many tokens of each row's chain are right, (rounds, n), one chain of `depth` behind the other.

    The rounds end with the first that ends a row, before one that is no longer to begin, or after `most`, at least 1.

    Parameters
    ----------
    text : of the rows, (n,). key : (n,) of the text behind each row.
    left : (n,) tokens that each row emits until its end. room : (n,) no round begins once a row has emitted as many.
    """
    matched = np.empty((most, len(key)), dtype=np.int64)
    pools = text.start, text.mask, text.depths
    count: int = compiled_loops().rounds(text.rank, *pools, key, depth, left, room, matched)
    return matched[:count]


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
    """The acceptance trace as `grow` reads it."""

    @property
    def confidence(self) -> Floats:
        """The drafter's top-K probabilities, (rows, K)."""

    @property
    def rank(self) -> Ints:
        """The rank of the target's token among them, (rows,)."""

    @property
    def silent(self) -> bool:
        """Whether any row proposes nothing."""

    def at(self, member: Ints, keys: Words, hashed: Words, on: Bools, depth: Ints) -> Ints:
        """Return the row of each key, (n,), at a draft position; `member` are places in the front."""


def pool_of(depth: Ints, depths: int) -> Ints | int:
    """Return which of `depths` pools each draft position has, (n,): the last one stands for all deeper ones."""
    return np.minimum(depth, depths - 1) if depths > 1 else 0


class Pooled(NamedTuple):
    """A `Text` whose rows a hash picks from pools.

    Attributes
    ----------
    start, off_start : (m,) first row of the pools of each node of the front, on and off the target's path.
    mask : one less than the rows of a pool, a power of two. depths : pools, one a draft position.
    """

    confidence: Floats
    rank: Ints
    silent: bool
    start: Ints
    off_start: Ints
    mask: int
    depths: int = 1

    def at(self, member: Ints, keys: Words, hashed: Words, on: Bools, depth: Ints) -> Ints:
        """Return the row that each key's hash picks; see `Text`."""
        starts = self.start[member]
        if self.off_start is not self.start:
            starts = np.where(on, starts, self.off_start[member])
        pool = pool_of(depth, self.depths) * (self.mask + 1)
        return starts + pool + (hashed & np.uint64(self.mask)).view(np.int64)


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
    words : (2, read) the key and the hashed key. rows : (2, read) the row of the acceptance trace and the rank of the
        target's token in it, `OFF_PATH` off the path.
    ends : (levels,) new nodes by the end of each level.
    refused : the proposals of the level that was wider than `most`; 0 where none was, else the rest is void.
    """

    numbers: Ints
    odds: Floats
    words: Words
    rows: Ints
    ends: Ints
    refused: int = 0


def grow(text: Text, front: Front, growth: Growth) -> Grown:
    """Return the nodes grown behind a front, level by level."""
    most = _most_nodes(len(front.node), growth)
    if isinstance(text, Pooled) and most is not None:
        return _grown(text, front, growth, most)
    return _by_level(text, front, growth)


def _most_nodes(level: int, growth: Growth) -> int | None:
    """Return how many nodes there are at most, the front's `level` included; None where a level may be refused."""
    nodes = level
    for _ in range(growth.levels):
        proposed = level * growth.width
        level = min(proposed, growth.beam * len(growth.limit)) if growth.beam else proposed
        nodes += level
        if max(proposed, nodes) > growth.most:
            return None
    return nodes


def _grown(text: Pooled, front: Front, growth: Growth, room: int) -> Grown:
    numbers, odds = np.empty((5, room), dtype=np.int64), np.empty((2, room))
    words, rows = np.empty((2, room), dtype=np.uint64), np.empty((2, room), dtype=np.int64)
    ends, scratch = np.empty(growth.levels, dtype=np.int64), np.empty((4, room), dtype=np.int64)
    keys, ahead = np.empty(room, dtype=np.uint64), np.empty(room * growth.width)
    read = compiled_loops().grow(*text, *front, *growth[:-1], numbers, odds, words, rows, ends, scratch, keys, ahead)
    new = slice(len(front.node), len(front.node) + int(ends[-1]))
    return Grown(numbers[:, new], odds[:, new], words[:, :read], rows[:, :read], ends)


def _by_level(text: Text, front: Front, growth: Growth) -> Grown:
    """Grow level by level: the text is read by code of its own, or the levels may have too many nodes."""
    member, first, read, levels, ends = np.arange(len(front.node)), growth.first, 0, [], []
    for _ in range(growth.levels):
        going = (front.depth < growth.limit[front.row]).nonzero()[0]
        member, front = member[going], Front._make(column[going] for column in front)
        if len(going) * growth.width > growth.most:
            return Grown._make((*(np.empty(0),) * 5, len(going) * growth.width))
        rows = text.at(member, front.key, mix(front.key), front.on, front.depth)
        # A pool of one row is the row that was found.
        found = Pooled(text.confidence, text.rank, text.silent, rows, rows, 0)
        level = _grown(found, front, growth._replace(levels=1, first=first), len(going) * (1 + growth.width))
        row, _, depth, token, behind = level.numbers
        on, words = level.rows[1][behind] == token, level.words[:, behind]
        key = next_keys(words[0], words[1], on, token)
        member = member[behind]
        front = Front(first + np.arange(len(row)), row, depth, level.odds[PATH], key, on)
        level.numbers[SLOT] += read
        levels.append(level[:4])
        first, read = first + len(row), read + len(rows)
        ends.append(first - growth.first)
        if not len(row):
            break
    ends += [ends[-1]] * (growth.levels - len(ends))
    joined = [np.concatenate(columns, axis=1) for columns in zip(*levels, strict=True)]
    return Grown._make((*joined, np.array(ends), 0))


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
