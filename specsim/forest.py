"""The token trees of a whole batch as one struct of arrays, so that a beam step is a handful of array operations."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from specsim.request import Bools, Floats, Ints

_ROW, _PARENT, _DEPTH, _TOKEN, _SLOT = range(5)
_PROBABILITY, _PATH = range(2)


class Forest:
    """One token tree per row of a batch; nodes 0..rows-1 are the roots, and a parent stands before its children.

    A root is the last token that the target has not seen yet (AdaServe, section 4.3). Forests never change:
    `grow` and `subset` return new ones.

    Attributes
    ----------
    rows : number of trees.
    row, parent, depth, token, slot : (nodes,) int64. `parent` is a node, -1 at roots; `token` is what the drafter
        calls it (simulated: its rank among the drafter's proposals); `slot` is the backend's own mark of the node.
    probability, path_probability : (nodes,) float64, the drafter's confidence in the token given its path, and the
        product of confidences along the path (AdaServe Eq. 7); 1 at roots.
    """

    __slots__ = (
        "_numbers",
        "_odds",
        "depth",
        "parent",
        "path_probability",
        "probability",
        "row",
        "rows",
        "slot",
        "token",
    )

    rows: int
    row: Ints
    parent: Ints
    depth: Ints
    token: Ints
    slot: Ints
    probability: Floats
    path_probability: Floats

    def __init__(self, rows: int, numbers: Ints, odds: Floats) -> None:
        self.rows = rows
        self._numbers = numbers
        self._odds = odds
        self.row, self.parent, self.depth, self.token, self.slot = numbers
        self.probability, self.path_probability = odds

    @staticmethod
    @lru_cache(maxsize=1024)
    def roots(rows: int) -> Forest:
        """Return a forest of `rows` trees that hold nothing but their roots."""
        numbers = np.full((5, rows), -1, dtype=np.int64)
        numbers[_ROW] = np.arange(rows)
        numbers[_DEPTH] = 0
        odds = np.ones((2, rows))
        numbers.flags.writeable = odds.flags.writeable = False
        return Forest(rows, numbers, odds)

    def __len__(self) -> int:
        return len(self.row)

    @property
    def draft_nodes(self) -> int:
        """Number of nodes that are not roots."""
        return len(self) - self.rows

    def tree_tokens(self) -> Ints:
        """Return the number of drafted nodes of each tree, (rows,)."""
        if not self.draft_nodes:
            return np.zeros(self.rows, dtype=np.int64)
        return np.bincount(self.row[self.rows :], minlength=self.rows)

    def grow(self, parent: Ints, token: Ints, probability: Floats, path: Floats, slot: Ints) -> Forest:
        """Return this forest with new nodes, all arrays (new,), behind the old ones; `path` is theirs already."""
        old = len(self)
        numbers = np.empty((5, old + len(parent)), dtype=np.int64)
        numbers[:, :old] = self._numbers
        numbers[_ROW, old:] = self.row[parent]
        numbers[_PARENT, old:] = parent
        numbers[_DEPTH, old:] = self.depth[parent] + 1
        numbers[_TOKEN, old:] = token
        numbers[_SLOT, old:] = slot
        odds = np.empty((2, old + len(parent)))
        odds[:, :old] = self._odds
        odds[_PROBABILITY, old:] = probability
        odds[_PATH, old:] = path
        return Forest(self.rows, numbers, odds)

    def with_path(self, path: Floats) -> Forest:
        """Return the same trees with other path probabilities (nodes,)."""
        return Forest(self.rows, self._numbers, np.stack((self.probability, path)))

    def subset(self, keep: Bools) -> Forest:
        """Return the forest of the roots and of the drafted nodes that `keep` (nodes,) marks.

        Raises
        ------
        ValueError
            When a kept node's parent is not kept.
        """
        keep = keep.copy()
        keep[: self.rows] = True
        kept = np.flatnonzero(keep)
        renamed = np.cumsum(keep) - 1
        numbers = self._numbers.take(kept, axis=1)
        parents = numbers[_PARENT, self.rows :]
        if not keep[parents].all():
            raise ValueError("a kept node's parent is not kept: the choice is not a tree")
        numbers[_PARENT, self.rows :] = renamed[parents]
        return Forest(self.rows, numbers, self._odds.take(kept, axis=1))


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
