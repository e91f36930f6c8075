"""Chains of a fixed length that note how many tokens were expected of a verification, and how many came.

Paper: SpecServe (arXiv 2025), Eq. 7 to 9 and Fig. 8.
Idea: the sum of path probabilities, the bonus token's 1 included, is what confidences promise of a verification.
Deviations: tokens that would come behind the output's end are counted on both sides, as the paper's model has no end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from specsim.core.passes import Emitted
from specsim.core.protocols import View
from specsim.core.request import Floats
from specsim.core.trees import Forest
from specsim.schedulers.parts.growth import grow_chains
from specsim.schedulers.parts.protocols import Chains, Growing, Sequences


@dataclass
class EstimatedChains(Chains):
    """A speculation part: chains of one length, with what was estimated and found of each request's verifications."""

    num_speculative_tokens: int

    def begin(self, requests: int) -> None:
        """Make the state of so many requests."""
        self._sums = np.zeros((3, requests))

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Yield a draft pass per token and return the chains; none if they do not all fit."""
        return grow_chains(view, sequences, self.num_speculative_tokens)

    def on_verified(self, view: View, sequences: Sequences, forest: Forest, answer: Emitted) -> None:
        """Add a verification to the sums of its decoding rows."""
        count = sequences.decoding
        ids = sequences.requests[:count]
        if not count:
            return
        estimated = np.bincount(forest.row, weights=forest.path_probability, minlength=forest.rows)[:count]
        self._sums[:, ids] += np.array((np.ones(count), estimated, answer.matched[:count] + 1))

    def noted(self, requests: int) -> Mapping[str, Floats]:
        """Return the means over a request's verifications, (requests,), NaN without any; see `Noting`."""
        count, estimated, matched = self._sums
        verifications = np.where(count > 0, count, np.nan)
        return {
            "estimated_tokens_per_verification": estimated / verifications,
            "matched_tokens_per_verification": matched / verifications,
        }
