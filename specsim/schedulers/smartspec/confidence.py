"""Speculation while the drafter is confident, then a verified length by goodput.

Paper: SmartSpec (Liu et al. 2024), appendix, Algorithm 3.
Idea: a request drafts on while its last token's confidence exceeds T; afterwards all verify the one length that has
the most generated tokens per believed second.
Deviations, beside those of chains.py:
- The loop as printed runs P + 1 passes and overwrites R with those who are still drafting; here it runs P, and all of
  R are verified.
- The appendix names no expected length for its argmax: a token above T counts as accepted, one below as rejected, as
  its text predicts. The seconds already spent on drafting stand in the denominator.
- Everybody always drafts once, so for the feedback on draft prefills a step that verifies no draft proposed nothing.
- All requests that have a slot are run: the argmax comes after the drafting, too late to choose a prefix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.replica.protocols import View
from specsim.replica.request import Ints
from specsim.replica.trees import Forest
from specsim.schedulers.parts.growth import grow
from specsim.schedulers.parts.parameters import at_least, draft_length
from specsim.schedulers.smartspec.goodput import Batch, fitting, lengths_of, longest_fitting, target_seconds
from specsim.schedulers.smartspec.serving import Proposal, Proposer, Proposing


@dataclass(slots=True)
class ConfidentChains(Proposer):
    """A proposal of chains that are drafted while confident and cut by goodput.

    Parameters
    ----------
    num_speculative_tokens : P, the most draft tokens a request, hence draft passes of a step.
    threshold : T; a request drafts on while its last token's confidence exceeds it.
    """

    num_speculative_tokens: int
    threshold: float

    def __post_init__(self) -> None:
        draft_length(num_speculative_tokens=self.num_speculative_tokens)
        at_least(0, threshold=self.threshold)

    @property
    def deepest(self) -> int:
        """The most draft tokens of a chain."""
        return self.num_speculative_tokens

    def propose(self, view: View, batch: Batch) -> Proposing:
        """Yield at most P draft passes and return the chains, cut at the length with the best goodput."""
        start_s = view.now_s
        prefix, most = longest_fitting(fitting(view, batch, lengths_of(batch, self.num_speculative_tokens)))
        batch = batch.prefix(prefix)
        fed = np.where(batch.longest > 0, batch.fed, 0)
        forest = yield from grow(batch.requests, fed, batch.longest, (1,) * most, going_on=self._sure)
        if forest.draft_nodes:
            k = self.verified_length(view, batch, forest, view.now_s - start_s)
            forest = forest.subset(forest.depth <= k)
        return Proposal(forest, forest.draft_nodes)

    def _sure(self, forest: Forest, leaves: Ints) -> Ints:
        # A root is a token of the target, not a guess: the first token is drafted whatever the threshold.
        return leaves[(leaves < forest.rows) | (forest.probability[leaves] > self.threshold)]

    def verified_length(self, view: View, batch: Batch, forest: Forest, spent_s: float) -> int:
        """Return the length at which to cut all chains; of equal ones the shortest."""
        lengths = np.arange(int(forest.depth[-1]) + 1)[:, None]
        drafted = np.minimum(lengths, forest.tree_tokens())
        sure = (forest.probability > self.threshold) & (forest.depth > 0)
        confident: Ints = np.bincount(forest.row[sure], minlength=forest.rows)
        tokens = (1 + np.minimum(lengths, confident)).sum(axis=1)
        seconds = spent_s + target_seconds(view.belief.target, batch, drafted)[:, -1]
        return int(np.argmax(tokens / seconds))
