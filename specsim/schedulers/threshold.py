"""Chains that grow while the drafter is sure.

Paper: none; the dynamic length of transformers' assisted generation, with which SpecServe compares (section 7.1).
Idea: a request's chain ends with the first token whose confidence is below a threshold, or at a maximum length.
Deviations:
- transformers speculates for one request at a time. Here each request of a batch stops on its own, and the next pass
  has the others.
- The token below the threshold is verified too, as in transformers.
- `num_speculative_tokens` is the 8 of SpecServe's section 7.4. transformers' default is 20, its threshold 0.4.
- `BatchThreshold` is the baseline that SpecServe's authors released (AdaSpec's "dynamic-spec"): the mean over the batch
  of a pass's confidences, below 0.6, stops all chains after that pass.
- When memory is short, all chains are shortened until they fit.
"""

from __future__ import annotations

from dataclasses import dataclass

from specsim.core.passes import NOBODY
from specsim.core.protocols import View
from specsim.core.request import Ints
from specsim.core.trees import Forest
from specsim.schedulers.parts.growth import grow_fitting
from specsim.schedulers.parts.protocols import Chains, Growing, Sequences, at_least


@dataclass(frozen=True, slots=True)
class Threshold(Chains):
    """A speculation part: chains of at most `num_speculative_tokens` that end with a confidence below `threshold`."""

    threshold: float
    num_speculative_tokens: int

    def __post_init__(self) -> None:
        Chains.__post_init__(self)
        at_least(0, threshold=self.threshold)

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Yield draft passes until no chain grows, and return the chains."""
        return grow_fitting(view, sequences, self.num_speculative_tokens, self._sure)

    def _sure(self, forest: Forest, leaves: Ints) -> Ints:
        # A root is a token of the target, so the first token is drafted whatever the threshold.
        return leaves[(leaves < forest.rows) | (forest.probability[leaves] >= self.threshold)]


@dataclass(frozen=True, slots=True)
class BatchThreshold(Threshold):
    """A speculation part: chains of one length, which end with a pass whose mean confidence is below `threshold`."""

    def _sure(self, forest: Forest, leaves: Ints) -> Ints:
        depth = forest.depth[-1]
        sure = depth == 0 or forest.probability[forest.depth == depth].mean() >= self.threshold
        return leaves if sure else NOBODY
