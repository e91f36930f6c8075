"""An ablation of AdaServe's selection, and bounds above it.

Paper: AdaServe (EuroSys '26), section 6 (ablation: equal shares); the bound is ours.
Idea: the same candidate trees, selected without regard to objectives, or with knowledge of the target.
Deviations: EqualGreedy gives each request B // n nodes, root included; the remainder of the division is unspent. The
bounds know the future of one step, and draft by the drafter's confidences. One bound verifies exactly the accepted path
of every tree. The other selects by the target's own path probabilities. On a drawn acceptance these equal the
drafter's, which are calibrated by construction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np

from specsim.kernels.growth import likeliest
from specsim.replica.protocols import Foresight, View
from specsim.replica.request import Bools, Floats
from specsim.replica.trees import Forest
from specsim.schedulers.adaserve import CandidateTrees, SloTrees
from specsim.schedulers.parts.protocols import Rows

Sight = Literal["tokens", "probabilities"]
"""What a bound knows of its candidates: which are right, or the target's probability of each."""


@dataclass(frozen=True, slots=True)
class EqualTrees(CandidateTrees):
    """A speculation part: every request verifies its B // n - 1 likeliest candidates."""

    def spare(self, decoding: int) -> int:
        """Return how many nodes fit beside the root of each of `decoding` requests."""
        return self.budget(decoding) // max(decoding, 1) - 1

    def chosen(self, view: View, rows: Rows, forest: Forest) -> Bools:
        """Return each request's likeliest nodes, (nodes,)."""
        return _likeliest_each(forest, self.spare(rows.decoding))


def _likeliest_each(forest: Forest, most: int) -> Bools:
    by_row = forest.rows + np.argsort(forest.row[forest.rows :], kind="stable")
    best = likeliest(forest.row[by_row], forest.path_probability[by_row, None], most)
    chosen = np.arange(len(forest)) < forest.rows
    chosen[by_row[best]] = True
    return chosen


@dataclass(frozen=True, slots=True)
class ForeseenTrees(SloTrees):
    """A speculation part: AdaServe's trees, selected by what will be accepted, or by the target's own probabilities.

    With ``tokens`` it verifies only what is right. Without foresight it verifies every candidate.
    """

    sees: Sight
    _foresight: Foresight | None = field(init=False, repr=False, default=None)

    def foresee(self, foresight: Foresight) -> None:
        """Take the foresight of the target's tokens and probabilities."""
        object.__setattr__(self, "_foresight", foresight)

    def chosen(self, view: View, rows: Rows, forest: Forest) -> Bools:
        """Return which nodes are verified with that knowledge, (nodes,)."""
        if self._foresight is None:
            return np.ones(len(forest), dtype=np.bool_)
        if self.sees == "probabilities":
            foreseen = forest.with_path(along_paths(forest, self._foresight.target_probability(forest)))
            return SloTrees.chosen(self, view, rows, foreseen)
        right = self._foresight.right(forest)
        return SloTrees.chosen(self, view, rows, forest.with_path(right.astype(np.float64))) & right


def along_paths(forest: Forest, probability: Floats) -> Floats:
    """Return the product of each node's `probability` (nodes,) and those of its ancestors, (nodes,).

    Nodes are in the order of their layers, as passes grow them.
    """
    path = probability.copy()
    borders = np.searchsorted(forest.depth, np.arange(2, int(forest.depth[-1]) + 2)).tolist()
    for first, last in pairwise(borders):
        path[first:last] *= path[forest.parent[first:last]]
    return path
