"""What AdaServe's selection is worth: an ablation below it and bounds above it.

Paper: AdaServe (EuroSys '26), section 6 (ablation: equal shares); the bound is ours.
Idea: the same candidate trees, selected without looking at objectives, or with knowledge of the target.
Deviations: EqualGreedy gives each request B // n nodes, its root among them; what the division leaves over is unspent.
The bounds know the future of a step only, and still draft with the confidences they have: one verifies the accepted
path of every tree and nothing else; the other selects by the path probabilities that the target itself will give, which
are the drafter's own where an acceptance is drawn, being calibrated by construction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np

from specsim.forest import Forest, likeliest
from specsim.protocols import Foresight, Step, View
from specsim.request import Bools, Floats
from specsim.schedulers.adaserve import SloTrees
from specsim.schedulers.composed import Composed
from specsim.schedulers.parameters import at_least
from specsim.schedulers.parts import Batching, Growing, Rows, Speculation
from specsim.schedulers.speculation import fitting_shape, grow_trees
from specsim.schedulers.tree_shape import ShapeRule, TreeShape

Sight = Literal["tokens", "probabilities"]
"""What of the future a bound sees of its candidates: which are right, or what the target gives each."""


@dataclass(frozen=True, slots=True)
class EqualTrees(Speculation):
    """A speculation part: every request verifies its B // n - 1 likeliest candidates; parameters as in `SloTrees`."""

    verify_tokens: int
    shape: ShapeRule

    def __post_init__(self) -> None:
        at_least(1, verify_tokens=self.verify_tokens)

    @property
    def drafts(self) -> bool:
        """Unless trees have no depth."""
        return self.shape.deepest > 0

    @property
    def widest(self) -> int:
        """The most children of one node that a draft pass is ever asked for."""
        return self.shape.widest

    def grow(self, view: View, rows: Rows) -> Growing:
        """Yield d draft passes and return each request's likeliest nodes."""
        most = self.verify_tokens // max(rows.decoding, 1) - 1
        depth, width = fitting_shape(view, rows, self.shape(rows.decoding)) if most > 0 else TreeShape(0, 1)
        forest = yield from grow_trees(view, rows.requests, rows.fed, rows.decoding, depth, width)
        return forest.subset(_likeliest_each(forest, most)) if forest.draft_nodes else forest


def _likeliest_each(forest: Forest, most: int) -> Bools:
    by_row = forest.rows + np.argsort(forest.row[forest.rows :], kind="stable")
    best = likeliest(forest.row[by_row], forest.path_probability[by_row, None], most)
    chosen = np.arange(len(forest)) < forest.rows
    chosen[by_row[best]] = True
    return chosen


@dataclass(slots=True)
class ForeseenTrees(Speculation):
    """A speculation part: `trees` that selects by what will be accepted, or by the target's own probabilities.

    Who sees tokens verifies nothing but what is right.
    """

    trees: SloTrees
    sees: Sight
    foresight: Foresight | None = None

    @property
    def drafts(self) -> bool:
        """As `trees`."""
        return self.trees.drafts

    @property
    def widest(self) -> int:
        """As `trees`."""
        return self.trees.widest

    def grow(self, view: View, rows: Rows) -> Growing:
        """Yield the draft passes of `trees` and return what its selection reaches."""
        forest = yield from self.trees.candidates(view, rows)
        if not forest.draft_nodes or self.foresight is None:
            return forest
        if self.sees == "probabilities":
            foreseen = forest.with_path(along_paths(forest, self.foresight.target_probability(forest)))
            return forest.subset(self.trees.chosen(view, rows, foreseen))
        right = self.foresight.right(forest)
        foreseen = forest.with_path(right.astype(np.float64))
        return forest.subset(self.trees.chosen(view, rows, foreseen) & right)


def along_paths(forest: Forest, probability: Floats) -> Floats:
    """Return the product of each node's `probability` (nodes,) and those of its ancestors, (nodes,).

    Layers stand one behind the other, as passes grow them.
    """
    path = probability.copy()
    borders = np.searchsorted(forest.depth, np.arange(2, int(forest.depth[-1]) + 2)).tolist()
    for first, last in pairwise(borders):
        path[first:last] *= path[forest.parent[first:last]]
    return path


@dataclass(slots=True)
class Clairvoyant:
    """Any batching part with AdaServe's trees, selected by the target's own tokens, or its probabilities of ours."""

    batching: Batching
    trees: SloTrees
    sees: Sight
    _parts: Composed = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._parts = Composed(self.batching, ForeseenTrees(self.trees, self.sees))

    @property
    def widest(self) -> int:
        """The most children of one node that a draft pass is ever asked for."""
        return self.trees.widest

    def foresee(self, foresight: Foresight) -> None:
        """Take what only the future knows."""
        self._parts = Composed(self.batching, ForeseenTrees(self.trees, self.sees, foresight))

    def step(self, view: View) -> Step:
        """Yield d draft passes and one verification."""
        return self._parts.step(view)
