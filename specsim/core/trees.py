"""The token trees of a whole batch as one struct of arrays, so that a beam step is a handful of array operations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from specsim.core.request import Bools, Floats, Ids, Ints
from specsim.kernels.growth import DEPTH, PARENT, ROW

ROOTS: Ids = np.zeros(0, dtype=np.int64)
"""The origin of forests that hold only roots: such a forest may be used for any requests."""
ROOTS.flags.writeable = False


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class Forest:
    """One token tree per row of a batch; nodes 0..rows-1 are the roots, and a parent stands before its children.

    A root is the last token that the target has not seen yet (AdaServe, section 4.3). Forests never change:
    `with_nodes` and `subset` return new ones, and the arrays of the nodes are read-only.

    Attributes
    ----------
    rows : number of trees. draft_nodes : number of nodes that are not roots.
    row, parent, depth, token, slot : (nodes,) int64. `parent` is a node, -1 at roots; `token` is what the drafter
        calls it (simulated: its rank among the drafter's proposals); `slot` is the backend's own mark of the node.
    probability, path_probability : (nodes,) float64, the drafter's confidence in the token given its path, and the
        product of confidences along the path (AdaServe Eq. 7); 1 at roots.
    origin : the rows that a draft pass of this step answered it for, the ledger's own mark; `ROOTS` where nothing is
        drafted, None for nodes that no draft pass has answered. `subset` and `with_path` keep it, `with_nodes` drops
        it.
    fresh : no node from this one on has children.
    """

    rows: int
    draft_nodes: int
    numbers: Ints
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
        _fill(self, rows, np.ascontiguousarray(numbers), odds, None, numbers.shape[1])

    @staticmethod
    @lru_cache(maxsize=1024)
    def roots(rows: int) -> Forest:
        """Return a forest of `rows` trees that hold nothing but their roots."""
        numbers = np.full((5, rows), -1, dtype=np.int64)
        numbers[ROW] = np.arange(rows)
        numbers[DEPTH] = 0
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

    def with_nodes(self, numbers: Ints, odds: Floats, fresh: int) -> Forest:
        """Return this forest with new nodes behind the old ones, of which no node from `fresh` on has children.

        `numbers` (5, new) holds their row, parent, depth, token and slot, `odds` (2, new) their probability and that
        of their path.
        """
        numbers = np.concatenate((self.numbers, numbers), axis=1)
        return _fill(_NEW(Forest), self.rows, numbers, np.concatenate((self._odds, odds), axis=1), None, fresh)

    def with_path(self, path: Floats) -> Forest:
        """Return the same trees with other path probabilities (nodes,)."""
        odds = np.stack((self.probability, path))
        return _fill(_NEW(Forest), self.rows, self.numbers, odds, self.origin, self.fresh)

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
        some = self.numbers.take(kept, axis=1)
        parents = some[PARENT, self.rows :]
        if np.count_nonzero(keep[parents]) < len(parents):
            raise ValueError("a kept node's parent is not kept: the choice is not a tree")
        renamed = np.empty(len(keep), dtype=np.int64)
        renamed[kept] = np.arange(len(kept))
        some[PARENT, self.rows :] = renamed[parents]
        return _fill(_NEW(Forest), self.rows, some, self._odds.take(kept, axis=1), self.origin, len(kept))


_PUT, _NEW = object.__setattr__, object.__new__


def _fill(forest: Forest, rows: int, numbers: Ints, odds: Floats, origin: Ids | None, fresh: int) -> Forest:
    numbers.setflags(write=False)
    _PUT(forest, "rows", rows)
    _PUT(forest, "draft_nodes", numbers.shape[1] - rows)
    _PUT(forest, "origin", origin)
    _PUT(forest, "fresh", fresh)
    _PUT(forest, "numbers", numbers)
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
