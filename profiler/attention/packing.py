"""Tokens of many requests as one ragged batch: the row, position and visible keys of each.

Every query of a row has a point and every key an interval. A query sees the keys whose interval holds its point. The
interval of a cached token holds every point, that of a chunk's token all points from its own on. Nodes of a tree are
numbered in preorder, so that a node's interval is its subtree. A chain is a tree. A prompt's chunk is a chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
EVERYWHERE = 2**30
LARGEST_CAPTURED = 512


@dataclass(frozen=True, slots=True)
class Work:
    """One pass over n rows, each with cached tokens, a chunk of new ones, and a tree behind the chunk's last token.

    Attributes
    ----------
    context : (n,) cached tokens of the row.
    chunk : (n,) tokens of the row's chunk, 0 if there is none.
    node_row : (m,) row of each tree node, ascending.
    node_parent : (m,) index of its parent among the m nodes, smaller than its own; -1: the chunk's last token.
    node_cached : (m,) whether an earlier pass has cached the node's keys, so that it is no query.
    """

    context: Ints
    chunk: Ints
    node_row: Ints
    node_parent: Ints
    node_cached: Bools

    @classmethod
    def of(
        cls,
        context: ArrayLike,
        chunk: ArrayLike,
        node_row: ArrayLike = (),
        node_parent: ArrayLike = (),
        node_cached: ArrayLike | None = None,
    ) -> Work:
        """Return the work of array-likes; without `node_cached` every node is a query."""
        row = np.asarray(node_row, dtype=np.int64)
        cached = np.zeros(len(row), np.bool_) if node_cached is None else np.asarray(node_cached, np.bool_)
        parent = np.asarray(node_parent, dtype=np.int64)
        return cls(np.asarray(context, np.int64), np.asarray(chunk, np.int64), row, parent, cached)

    @property
    def rows(self) -> int:
        """Number of requests."""
        return len(self.context)

    @property
    def new_tokens(self) -> Ints:
        """Query tokens of each row, (n,)."""
        queries = np.bincount(self.node_row[~self.node_cached], minlength=self.rows)
        return np.asarray(self.chunk + queries, dtype=np.int64)

    @property
    def key_tokens(self) -> Ints:
        """Keys of each row after the pass, (n,)."""
        nodes = np.bincount(self.node_row, minlength=self.rows)
        return np.asarray(self.context + self.chunk + nodes, dtype=np.int64)

    @property
    def context_tokens(self) -> int:
        """Cached tokens, once per row."""
        return int(self.context.sum())

    @property
    def batched_tokens(self) -> int:
        """All query tokens."""
        return int(self.new_tokens.sum())

    @property
    def attention_pairs(self) -> int:
        """Keys attended to, summed over queries; of its own tree a node counts only itself."""
        chunks = self.chunk * self.context + self.chunk * (self.chunk + 1) // 2
        row = self.node_row[~self.node_cached]
        return int(chunks.sum() + (self.context[row] + self.chunk[row] + 1).sum())

    @property
    def logit_tokens(self) -> int:
        """Queries whose logits are computed: nodes that are queries, and the last token of each chunk."""
        return int(np.count_nonzero(~self.node_cached) + np.count_nonzero(self.chunk))


class PackedRoom(NamedTuple):
    """The sizes of a captured pass: passes of one room have tensors of equal sizes, and their numbers stay below its.

    Attributes
    ----------
    rows, tokens, logits : to which a pass is padded. queries, keys : the most of a row.
    causal : whether the pass has no tree; see `is_causal`.
    """

    rows: int
    tokens: int
    logits: int
    queries: int
    keys: int
    causal: bool


@dataclass(frozen=True, slots=True)
class Packed:
    """The T query tokens of a `Work`, row after row, and the keys' intervals.

    Attributes
    ----------
    start : (n + 1,) first query of each row.
    row : (T,) row of each query.
    position : (T,) distance from the row's first token; of a node along the tree.
    key : (T,) index of the query's own key among its row's keys.
    point : (T,) number that the keys' intervals must hold.
    tail_start : (n + 1,) first entry of each row in `opens` and `closes`.
    opens, closes : (t,) interval [opens, closes) of each key after the cached context, row after row.
    logits : (l,) queries whose logits are computed: a chunk's last token and every node.
    """

    start: Ints
    row: Ints
    position: Ints
    key: Ints
    point: Ints
    tail_start: Ints
    opens: Ints
    closes: Ints
    logits: Ints


def pack(work: Work) -> Packed:
    """Return the packed tokens of a pass."""
    nodes = np.bincount(work.node_row, minlength=work.rows)
    tail = work.chunk + nodes
    tail_start = _starts(tail)
    row = np.repeat(np.arange(work.rows), tail)
    place = np.arange(len(row)) - tail_start[row]
    in_chunk = place < work.chunk[row]
    order, size, depth = _preorder(work)
    opens, closes, position = place.copy(), np.full(len(row), EVERYWHERE), work.context[row] + place
    behind = work.chunk[work.node_row]
    opens[~in_chunk] = behind + order
    closes[~in_chunk] = behind + order + size
    position[~in_chunk] = work.context[work.node_row] + behind + depth
    asked = in_chunk.copy()
    asked[~in_chunk] = ~work.node_cached
    wanted = ~in_chunk | (place == work.chunk[row] - 1)
    return Packed(
        start=_starts(work.new_tokens),
        row=row[asked],
        position=position[asked],
        key=work.context[row[asked]] + place[asked],
        point=opens[asked],
        tail_start=tail_start,
        opens=opens,
        closes=closes,
        logits=np.flatnonzero(wanted[asked]),
    )


def is_causal(work: Work, packed: Packed) -> bool:
    """Return whether no row has a tree: its queries are its last keys, and each sees all keys up to its own."""
    row = np.repeat(np.arange(work.rows), np.diff(packed.tail_start))
    place = np.arange(len(row)) - packed.tail_start[row]
    chains = (packed.opens == place) & (packed.closes >= np.diff(packed.tail_start)[row])
    after = packed.start[packed.row + 1] - np.arange(len(packed.row))
    return bool(chains.all() and (packed.key == work.key_tokens[packed.row] - after).all())


def captured_size(count: int) -> int:
    """Return the size of an engine's graph for so many tokens: 1, 2, 4, then every 8; above 512 there is none."""
    if count > LARGEST_CAPTURED:
        return count
    return next((size for size in (1, 2, 4) if size >= count), -(-count // 8) * 8)


def power_of_two(count: int) -> int:
    """Return the least power of two that is not smaller."""
    return 1 << max(count - 1, 0).bit_length()


def _starts(counts: Ints) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def _preorder(work: Work) -> tuple[Ints, Ints, Ints]:
    """Return each node's number in its tree's preorder, the size of its subtree, and its depth from 0.

    The loop is over levels, as many as the deepest tree has.
    """
    parent, count = work.node_parent, len(work.node_parent)
    levels: list[Ints] = []
    depth = np.zeros(count, np.int64)
    level = np.flatnonzero(parent < 0)
    is_level = np.zeros(count + 1, np.bool_)
    while len(level):
        depth[level] = len(levels)
        levels.append(level)
        is_level[:] = False
        is_level[level] = True
        level = np.flatnonzero(is_level[parent] & (parent >= 0))
    size = np.ones(count, np.int64)
    for level in reversed(levels[1:]):
        np.add.at(size, parent[level], size[level])
    order = np.zeros(count, np.int64)
    for number, level in enumerate(levels):
        owner = parent[level] if number else work.node_row[level]
        base = order[owner] + 1 if number else np.zeros(len(level), np.int64)
        order[level] = base + _sizes_before(owner, size[level])
    return order, size, depth


def _sizes_before(owner: Ints, size: Ints) -> Ints:
    """Return for each entry the sum of the sizes of earlier entries of the same owner."""
    sorted_by = np.argsort(owner, kind="stable")
    total = np.cumsum(size[sorted_by]) - size[sorted_by]
    first = np.r_[True, owner[sorted_by][1:] != owner[sorted_by][:-1]] if len(owner) else np.zeros(0, np.bool_)
    base = np.maximum.accumulate(np.where(first, total, 0))
    before = np.empty_like(size)
    before[sorted_by] = total - base
    return before
