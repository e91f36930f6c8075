"""SLO-customised speculative decoding.

Paper: AdaServe (EuroSys '26), Algorithm 2, Eq. 5, 7, 8, 9.
Idea: draft a candidate tree for every request, then spend one verification budget first on the nodes that requests
need to keep their TPOT objective, next on the likeliest nodes of all.
Deviations:
- c1, c2, n_max and t_spec have no values in the paper. c1 = c2 = 0 and n_max = 1.2 B / n are those of the authors'
  scripts. t_spec is the estimated verification time x `time_margin`. The step's drafting is over when nodes are
  selected, so it is part of l.
- Algorithm 2 as printed overspends the budget by one and adds a conditional probability: see `selection.select`.
- The paper does not say how prompts are read. Here chunks of at most `prefill_tokens` are part of the verification
  (`prefill: mixed`), or passes of their own go first (`prefill: first`). By default the chunk follows the profile and
  the TTFT objectives (`prefill_tokens: auto`, `due_chunk.DueChunk`).
- The paper takes B from the hardware by profiling. By default chains are profiled, batch by batch
  (`verify_tokens: auto`, `tree_shape.profiled_budget`), and bring the depth, in place of Eq. 8.
- n > B cannot happen: of a constant B at most `max_num_seqs` <= B requests are admitted.
- When memory is short, the candidate trees are made narrower, then shallower, until they fit both caches.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from specsim.core.protocols import View
from specsim.core.request import Bools, Floats, Ids
from specsim.core.trees import Forest
from specsim.schedulers.parts.growth import estimated_verify_s, fitting_shape, grow_trees
from specsim.schedulers.parts.protocols import Growing, OraclePart, Sequences, Speculation, at_least
from specsim.schedulers.parts.selection import Cap, Order, likeliest_each, select
from specsim.schedulers.parts.tree_shape import BatchBudget, ShapeRule, TreeShape, budget_of


@dataclass(frozen=True, slots=True)
class CandidateTrees(Speculation):
    """A speculation part of AdaServe or of its ablations: candidate trees, and a budget for verifying them.

    Parameters
    ----------
    verify_tokens : B, the most tokens of a verification, roots included, or what follows the batch.
    shape : depth and width of the candidate trees (Eq. 8, 9).
    """

    verify_tokens: int | BatchBudget
    shape: ShapeRule

    def __post_init__(self) -> None:
        at_least(1, verify_tokens=self.budget(1))

    @property
    def drafts(self) -> bool:
        """Whether it drafts: always, unless the trees have depth 0."""
        return self.shape.depth_max > 0

    @property
    def max_width(self) -> int:
        """The most children that a draft pass may give a node."""
        return self.shape.width_max

    def draft_tokens(self, requests: int) -> int:
        """Return an equal share of the budget, root excluded."""
        return max(self.budget(requests) // max(requests, 1) - 1, 0)

    def budget(self, decoding: int) -> int:
        """Return B for a batch of `decoding` requests."""
        return budget_of(self.verify_tokens, decoding)

    def spare(self, decoding: int) -> int:
        """Return how many nodes fit the budget beside the roots of `decoding` requests."""
        return self.budget(decoding) - decoding

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Yield d draft passes and return the selected trees; no pass if the budget has no room for a node."""
        depth, width = TreeShape(0, 1)
        if self.spare(sequences.decoding) > 0:
            depth, width = fitting_shape(view, sequences, self.shape(sequences.decoding))
        forest = yield from grow_trees(view, sequences.requests, sequences.catch_up, sequences.decoding, depth, width)
        return forest.subset(self.chosen(view, sequences, forest)) if forest.draft_nodes else forest

    @abstractmethod
    def chosen(self, view: View, sequences: Sequences, forest: Forest) -> Bools:
        """Return which nodes of the candidate trees are verified, (nodes,)."""


@dataclass(frozen=True, slots=True)
class SloTrees(CandidateTrees):
    """AdaServe's speculation part: first nodes for objectives, then the likeliest nodes of all requests.

    Parameters
    ----------
    order : which request selects first. cap : A_cap(r) from A(r).
    slo_share : n_max as a multiple of B / n. time_margin : factor on the estimated t_spec.
    slo_below : only requests with a TPOT objective below so many baseline latencies select nodes for it; null: all.
    fill : whether the rest of the budget is spent on the likeliest nodes of all requests.
    """

    order: Order
    cap: Cap
    slo_share: float
    slo_below: float | None
    fill: bool
    time_margin: float

    def __post_init__(self) -> None:
        CandidateTrees.__post_init__(self)
        at_least(0, slo_share=self.slo_share, time_margin=self.time_margin)
        at_least(0, slo_below=self.slo_below or 0)

    def chosen(self, view: View, sequences: Sequences, forest: Forest) -> Bools:
        """Return which nodes of the candidate trees are verified, (nodes,)."""
        n, budget = sequences.decoding, self.budget(sequences.decoding)
        tree_tokens = min(budget - n, forest.draft_nodes)
        step_s = self.time_margin * estimated_verify_s(view, sequences, tree_tokens)
        need = tokens_needed(view, sequences.requests[:n], step_s)
        capped = self.cap(need, int(forest.depth[-1]))
        if self.slo_below is not None:
            loose = view.tpot_slo_s[sequences.requests[:n]] >= self.slo_below * view.cost_model.baseline_s
            capped = np.where(loose, 0.0, capped)
        most_nodes = int(self.slo_share * budget / n)
        return select(forest, capped, self.order(need), most_nodes, budget, fill=self.fill)


def tokens_needed(view: View, requests: Ids, step_s: float) -> Floats:
    """Return A(r) = (l + t_spec) / t_TPOT - o for each decoding request, (n,), -inf without an objective (Eq. 5).

    l is the time since the first decoding step began, o the tokens decoded since, `step_s` (t_spec) the rest of this
    step.
    """
    first_s = view.first_decode_s[requests]
    elapsed_s = view.now_s - np.where(np.isnan(first_s), view.now_s, first_s)
    need = (elapsed_s + step_s) / view.tpot_slo_s[requests] - (view.emitted_tokens[requests] - 1)
    return np.where(np.isnan(need), -np.inf, need)


Sight = Literal["tokens", "probabilities"]
"""Knowledge of a bound of its candidates: which are right, or the target's probability of each."""


@dataclass(frozen=True, slots=True)
class EqualTrees(CandidateTrees):
    """A speculation part: every request verifies its B // n - 1 likeliest candidates."""

    def spare(self, decoding: int) -> int:
        """Return how many nodes fit beside the root of each of `decoding` requests."""
        return self.budget(decoding) // max(decoding, 1) - 1

    def chosen(self, view: View, sequences: Sequences, forest: Forest) -> Bools:
        """Return each request's likeliest nodes, (nodes,)."""
        return likeliest_each(forest, self.spare(sequences.decoding))


@dataclass(frozen=True, slots=True)
class OracleTrees(OraclePart, SloTrees):
    """A speculation part: AdaServe's trees, selected by what will be accepted, or by the target's own probabilities.

    With ``tokens`` it verifies only what is right. Without an oracle it verifies every candidate.
    """

    sees: Sight

    def chosen(self, view: View, sequences: Sequences, forest: Forest) -> Bools:
        """Return which nodes are verified with that knowledge, (nodes,)."""
        if self._oracle is None:
            return np.ones(len(forest), dtype=np.bool_)
        if self.sees == "probabilities":
            known = forest.with_path(along_paths(forest, self.oracle.target_probability(forest)))
            return SloTrees.chosen(self, view, sequences, known)
        right = self.oracle.right(forest)
        return SloTrees.chosen(self, view, sequences, forest.with_path(right.astype(np.float64))) & right


def along_paths(forest: Forest, probability: Floats) -> Floats:
    """Return the product of each node's `probability` (nodes,) and those of its ancestors, (nodes,).

    Nodes are in the order of their layers, as passes grow them.
    """
    path = probability.copy()
    borders = np.searchsorted(forest.depth, np.arange(2, int(forest.depth[-1]) + 2)).tolist()
    for first, last in pairwise(borders):
        path[first:last] *= path[forest.parent[first:last]]
    return path
