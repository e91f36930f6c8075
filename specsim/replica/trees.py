"""The token trees of a whole batch as one struct of arrays, so that a beam step is a handful of array operations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from specsim.replica.request import Bools, Floats, Ids, Ints

_ROW, _PARENT, _DEPTH, _TOKEN, _SLOT = range(5)
_PROBABILITY, _PATH = range(2)
ROOTS: Ids = np.zeros(0, dtype=np.int64)
"""The origin of forests that hold only roots: such a forest may be used for any requests."""
ROOTS.flags.writeable = False


class Layer(NamedTuple):
    """Nodes that one draft pass brings, (new,) each; the columns of a `Forest`, whose parents stand before them."""

    row: Ints
    parent: Ints
    depth: Ints
    token: Ints
    slot: Ints
    probability: Floats
    path: Floats


class Forest:
    """One token tree per row of a batch; nodes 0..rows-1 are the roots, and a parent stands before its children.

    A root is the last token that the target has not seen yet (AdaServe, section 4.3). Forests never change:
    `with_layers` and `subset` return new ones, and what says which nodes there are is read-only.

    Attributes
    ----------
    rows : number of trees. draft_nodes : number of nodes that are not roots.
    row, parent, depth, token, slot : (nodes,) int64. `parent` is a node, -1 at roots; `token` is what the drafter
        calls it (simulated: its rank among the drafter's proposals); `slot` is the backend's own mark of the node.
    probability, path_probability : (nodes,) float64, the drafter's confidence in the token given its path, and the
        product of confidences along the path (AdaServe Eq. 7); 1 at roots.
    origin : the rows that a draft pass of this step answered it for, the ledger's own mark; `ROOTS` where nothing is
        drafted, None for nodes that no draft pass has answered. `subset` and `with_path` keep it, `with_layers` drops
        it.
    fresh : no node from this one on has children.
    """

    __slots__ = (
        "_numbers",
        "_odds",
        "depth",
        "draft_nodes",
        "fresh",
        "origin",
        "parent",
        "path_probability",
        "probability",
        "row",
        "rows",
        "slot",
        "token",
    )

    rows: int
    draft_nodes: int
    _numbers: Ints
    _odds: Floats
    row: Ints
    parent: Ints
    depth: Ints
    token: Ints
    slot: Ints
    probability: Floats
    path_probability: Floats
    origin: Ids | None
    fresh: int

    def __init__(self, rows: int, numbers: Ints, odds: Floats) -> None:
        _fill(self, rows, numbers, odds, None, 0)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse: what a forest says is what was drafted."""
        raise AttributeError(f"a forest cannot be written to: {name}")

    @staticmethod
    @lru_cache(maxsize=1024)
    def roots(rows: int) -> Forest:
        """Return a forest of `rows` trees that hold nothing but their roots."""
        numbers = np.full((5, rows), -1, dtype=np.int64)
        numbers[_ROW] = np.arange(rows)
        numbers[_DEPTH] = 0
        odds = np.ones((2, rows))
        odds.setflags(write=False)
        return _fill(_NEW(Forest), rows, numbers, odds, ROOTS, 0)

    def __len__(self) -> int:
        return len(self.row)

    def tree_tokens(self) -> Ints:
        """Return the number of drafted nodes of each tree, (rows,)."""
        if not self.draft_nodes:
            return np.zeros(self.rows, dtype=np.int64)
        return np.bincount(self.row[self.rows :], minlength=self.rows)

    def with_layers(self, layers: Sequence[Layer]) -> Forest:
        """Return this forest with the nodes of at least one layer behind the old ones, in order."""
        old = len(self.row)
        nodes = old + sum(len(layer.row) for layer in layers)
        numbers, odds = np.empty((5, nodes), dtype=np.int64), np.empty((2, nodes))
        numbers[:, :old], odds[:, :old] = self._numbers, self._odds
        first = last = old
        for layer in layers:
            first, last = last, last + len(layer.row)
            new, likely = numbers[:, first:last], odds[:, first:last]
            new[_ROW], new[_PARENT], new[_DEPTH], new[_TOKEN], new[_SLOT] = layer[:5]
            likely[_PROBABILITY], likely[_PATH] = layer[5:]
        return _fill(_NEW(Forest), self.rows, numbers, odds, None, first)

    def with_path(self, path: Floats) -> Forest:
        """Return the same trees with other path probabilities (nodes,)."""
        odds = np.stack((self.probability, path))
        return _fill(_NEW(Forest), self.rows, self._numbers, odds, self.origin, self.fresh)

    def subset(self, keep: Bools) -> Forest:
        """Return the forest of the roots and of the drafted nodes that `keep` (nodes,) marks.

        Raises
        ------
        ValueError
            When `keep` is no mark a node, or a kept node's parent is not kept.
        """
        if keep.dtype != np.bool_ or keep.shape != self.row.shape:
            raise ValueError(f"keep is {keep.shape} {keep.dtype}; expected a bool for each of {len(self)} nodes")
        keep = keep.copy()
        keep[: self.rows] = True
        kept = keep.nonzero()[0]
        numbers = self._numbers.take(kept, axis=1)
        parents = numbers[_PARENT, self.rows :]
        if np.count_nonzero(keep[parents]) < len(parents):
            raise ValueError("a kept node's parent is not kept: the choice is not a tree")
        renamed = np.empty_like(self.row)
        renamed[kept] = np.arange(len(kept))
        numbers[_PARENT, self.rows :] = renamed[parents]
        return _fill(_NEW(Forest), self.rows, numbers, self._odds.take(kept, axis=1), self.origin, len(kept))


_PUT, _NEW = object.__setattr__, object.__new__


def _fill(forest: Forest, rows: int, numbers: Ints, odds: Floats, origin: Ids | None, fresh: int) -> Forest:
    numbers.setflags(write=False)
    _PUT(forest, "rows", rows)
    _PUT(forest, "draft_nodes", numbers.shape[1] - rows)
    _PUT(forest, "origin", origin)
    _PUT(forest, "fresh", fresh)
    _PUT(forest, "_numbers", numbers)
    _PUT(forest, "_odds", odds)
    row, parent, depth, token, slot = numbers
    _PUT(forest, "row", row)
    _PUT(forest, "parent", parent)
    _PUT(forest, "depth", depth)
    _PUT(forest, "token", token)
    _PUT(forest, "slot", slot)
    probability, path = odds
    _PUT(forest, "probability", probability)
    _PUT(forest, "path_probability", path)
    return forest


def give(forest: Forest, rows: Ids) -> None:
    """Mark a forest as what a draft pass has answered for these rows; for the ledger alone."""
    _PUT(forest, "origin", rows)


def likeliest(row: Ints, score: Floats, count: int) -> Ints:
    """Return the flat indices into `score` of each row's `count` highest, ties to the earlier entry, rows in order.

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
