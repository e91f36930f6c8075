"""Verification of the likeliest draft tokens of all requests, as many as give the most accepted tokens per second.

Paper: none; vLLM documents it (features/speculative_decoding/adaptive_verification, vllm-project/vllm PR 47808).
Idea: a token survives with the product of its path's confidences. Tokens of all requests are in one ranking. The budget
is the number of tokens at which (requests + sum of survival) / (seconds of drafting + verification) is highest.
Deviations:
- vLLM sizes the budget by the confidences of the step before, so as not to wait for the GPU, and spends it by those of
  this step; here both are this step's. vLLM smooths or calibrates confidences; here they are the drafter's own.
- vLLM prices a step by tables over captured graph sizes at one context length; here the belief prices the real one.
- The budget is the global maximum, as by vLLM's argmax, not the first peak. They differ if the cost is a staircase.
- When memory is short, all chains are shortened until they fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.core.protocols import View
from specsim.schedulers.parts.growth import grow_rows
from specsim.schedulers.parts.protocols import Growing, Rows
from specsim.schedulers.specserve import estimate_of, first_kept
from specsim.schedulers.threshold import fitting_chain
from specsim.schedulers.vllm_spec import FixedChains


@dataclass(frozen=True, slots=True)
class AdaptiveVerification(FixedChains):
    """A speculation part: chains of `num_speculative_tokens` for all requests; their best tokens are verified."""

    def grow(self, view: View, rows: Rows) -> Growing:
        """Yield a draft pass per token and return the likeliest tokens of all requests, within the best budget."""
        estimate = estimate_of(view, rows)
        forest = yield from grow_rows(view, rows, fitting_chain(view, rows, self.num_speculative_tokens))
        if not forest.draft_nodes:
            return forest
        ranked, throughput = estimate.by_kept(forest)
        return forest.subset(first_kept(forest, ranked, int(np.argmax(throughput))))
