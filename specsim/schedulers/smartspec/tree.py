"""Token trees whose shape goodput chooses: how many of the likeliest tokens at each level.

Paper: SmartSpec (Liu et al. 2024), sections 4.3, 4.4 (Eq. 10), 7.2.2, on trees like Medusa's.
Idea: as chains.py, but the argmax runs over the top-k of each head instead of the length of a chain.
Deviations, beside those of chains.py:
- Eq. 10 as printed forgets that nothing may be accepted, and takes head i + 1 to fail with 1 - a where its k tokens
  fail with (1 - a)^k; `tree_length` is exact under the paper's own assumptions (1.776 printed, 2.176 exact at 0.6 and
  one token a head).
- The `drafter` proposes: Medusa's heads, which the YAML suggests, propose all levels in one pass; a draft model
  takes a pass a level. Either is priced, so "no draft at all" is among the shapes, and a head may be left out from the
  end.
- Every shape of at most `tree_tokens` nodes is tried. The rate of a head is the one at which as many trials succeed as
  did in the window, each with the k of its step; a head that was never reached counts as good as
  `first_acceptance`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from specsim.core.passes import Emitted
from specsim.core.protocols import View
from specsim.core.request import Floats, Ints
from specsim.core.trees import Forest
from specsim.pass_shape import PassShapes
from specsim.schedulers.parts.growth import grow
from specsim.schedulers.parts.protocols import Sequences, at_least, probability
from specsim.schedulers.smartspec.goodput import Batch, best, fitting, target_seconds
from specsim.schedulers.smartspec.serving import Proposal, Proposer, Proposing

NEWTON_STEPS = 50
ROUNDING = 1e-12


def shapes(heads: int, width: int, tree_tokens: int) -> Ints:
    """Return every choice of top-k per head with at most `tree_tokens` nodes, (shapes, heads), 0 behind the last."""
    found = [
        top + (0,) * (heads - depth)
        for depth in range(heads + 1)
        for top in product(range(1, width + 1), repeat=depth)
        if np.cumprod(top).sum() <= tree_tokens
    ]
    return np.array(found, dtype=np.int64).reshape(-1, heads)


def tree_length(acceptance: Floats, top: Ints) -> Floats:
    """Return 1 + sum_i prod_{j<=i} (1 - (1 - a_j)^k_j) for each depth cut, (shapes, heads + 1), bonus included.

    Column d is the expected length of the first d heads; `acceptance` (heads,), `top` (shapes, heads).
    """
    reached = np.cumprod(1.0 - (1.0 - acceptance) ** top, axis=1)
    length: Floats = 1.0 + _behind_zero(np.cumsum(reached, axis=1))
    return length


def tree_nodes(top: Ints) -> Ints:
    """Return the nodes of each full tree, sum_h prod_{i<=h} k_i, cut at each depth, (shapes, heads + 1) (4.3)."""
    nodes: Ints = _behind_zero(np.cumsum(np.cumprod(top, axis=1), axis=1))
    return nodes


def _behind_zero(columns: Any) -> Any:
    return np.concatenate((np.zeros_like(columns[:, :1]), columns), axis=1)


def tree_goodput(view: View, batch: Batch, acceptance: Floats, top: Ints) -> Floats:
    """Return generated tokens per estimated second of each (shape, prefix), (shapes, n)."""
    depth = np.minimum(np.count_nonzero(top, axis=1)[:, None], batch.longest)
    nodes = np.take_along_axis(tree_nodes(top), depth, axis=1)
    tokens = np.take_along_axis(tree_length(acceptance, top), depth, axis=1).cumsum(axis=1)
    model = view.cost_model.draft
    seconds = target_seconds(view.cost_model.target, batch, nodes)
    leaves = np.cumprod(top, axis=1)
    passes = int(depth.max(initial=0))
    for level in range(min(passes, 1) if model.one_pass else passes):
        # Leaves that are extended: the roots first, which come with what the drafter lacks, then a whole level.
        if level:
            shapes = PassShapes.each(batch.draft_cached + batch.catch_up, 0, leaves[:, level - 1, None])
        else:
            shapes = PassShapes.each(batch.draft_cached, batch.catch_up)
        seconds += shapes.only(depth > level).cumulated(axis=1).seconds(model)
    return tokens / seconds


@dataclass
class HeadAverage:
    """Acceptance of one token at each head, (heads,), from the last `window` steps that reached the head."""

    heads: int
    window: int
    first: float

    def __post_init__(self) -> None:
        at_least(1, heads=self.heads, window=self.window)
        probability(first_acceptance=self.first)
        self._steps = np.zeros((3, self.heads, self.window))
        self._seen = np.zeros(self.heads, dtype=np.int64)

    def rates(self) -> Floats:
        """Return the acceptance a of each head, (heads,): trials of k tokens failed (1 - a)^k of the time."""
        right, tried, top = self._steps
        return np.where(tried.any(axis=1), 1.0 - failing_rate(tried, top, (tried - right).sum(axis=1)), self.first)

    def on_verified(self, top: Ints, depths: Ints, matched: Ints) -> None:
        """Note a step with `top` (heads,) tokens a head: trees `depths` (n,) deep, `matched` (n,) levels right."""
        head = np.arange(self.heads)[:, None]
        tried = ((matched >= head) & (depths > head)).sum(axis=1)
        right = ((matched > head) & (depths > head)).sum(axis=1)
        some = np.flatnonzero(tried)
        place = self._seen[some] % self.window
        self._steps[:, some, place] = np.stack((right, tried, top))[:, some]
        self._seen[some] += 1


def failing_rate(tried: Floats, top: Floats, failed: Floats) -> Floats:
    """Return the q of each head at which sum_s tried_s q^top_s = failed, (heads,); `tried`, `top` (heads, steps).

    The rate at the mean of `top` is not below it (Jensen), and from there Newton's steps fall to it, since the sum is
    convex in q.
    """
    trials = np.maximum(tried.sum(axis=1), 1.0)
    rate: Floats = (failed / trials) ** (trials / np.maximum((tried * top).sum(axis=1), 1.0))
    for _ in range(NEWTON_STEPS):
        powers = tried * rate[:, None] ** np.maximum(top - 1.0, 0.0)
        slope = (powers * top).sum(axis=1)
        step = (powers.sum(axis=1) * rate - failed) / np.where(slope > 0, slope, 1.0)
        rate = np.clip(rate - step, 0.0, 1.0)
        if np.abs(step).max() < ROUNDING:
            break
    return rate


@dataclass
class GoodputTrees(Proposer):
    """A proposal of the prefix and the top-k per head with the best goodput.

    Parameters
    ----------
    heads : most levels of a tree. width : largest top-k of a head. tree_tokens : most nodes of a tree.
    window, first_acceptance : as in `GoodputChains`.
    """

    heads: int
    width: int
    tree_tokens: int
    window: int
    first_acceptance: float

    def __post_init__(self) -> None:
        at_least(1, width=self.width, tree_tokens=self.tree_tokens)
        self.average = HeadAverage(self.heads, self.window, self.first_acceptance)
        self._shapes = shapes(self.heads, self.width, self.tree_tokens)
        self._top = self._shapes[0]

    @property
    def max_depth(self) -> int:
        """The most levels of a tree."""
        return self.heads

    @property
    def max_width(self) -> int:
        """The most children of one node that a draft pass is ever asked for."""
        return self.width

    def propose(self, view: View, batch: Batch) -> Proposing:
        """Yield draft passes and return the trees of the best prefix."""
        depth = np.minimum(np.count_nonzero(self._shapes, axis=1)[:, None], batch.longest)
        nodes = np.take_along_axis(tree_nodes(self._shapes), depth, axis=1)
        table = tree_goodput(view, batch, self.average.rates(), self._shapes)
        prefix, shape = best(table, fitting(view, batch, nodes))
        self._top = self._shapes[shape]
        depths = depth[shape, :prefix]
        catch_up = np.where(depths > 0, batch.catch_up[:prefix], 0)
        widths = self._top[: depths.max(initial=0)].tolist()
        forest = yield from grow(batch.requests[:prefix], catch_up, depths, widths)
        return Proposal(forest, forest.draft_nodes)

    def on_verified(self, view: View, sequences: Sequences, forest: Forest, answer: Emitted) -> None:
        """Note how far each tree was right."""
        depths = np.zeros(forest.rows, dtype=np.int64)
        np.maximum.at(depths, forest.row, forest.depth)
        self.average.on_verified(self._top, depths, answer.matched)
