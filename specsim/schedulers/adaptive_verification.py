"""Verification of the likeliest draft tokens of all requests, as many as estimates one step old say pay.

Paper: DSpark (arXiv 2607.05147), Algorithm 1, as vLLM ships it (enable_adaptive_verification; PR 47808 and 52228,
documentation of 0.32, features/speculative_decoding/adaptive_verification).
Idea: a token survives with the product of the estimates along its path. The budget of the batch is the number of tokens
at which (requests that sample + sum of survival) / seconds is highest, by the estimates of each request's last draft
and a table of seconds measured at the start at one context. The likeliest tokens of this step spend it.
Deviations:
- The table holds the cost model's seconds at each token count, the engine's host time included; vLLM's holds medians of
  five GPU times at captured sizes, forced to rise. Shapes are vLLM's: t tokens are of min(t, max_num_seqs) requests.
- vLLM takes `confidence` for a DSpark checkpoint with a head, `statistics` for suffix decoding and `logistic` for all
  other drafters; here the parameter says. Its statistics are by source and length of the match too, here by position.
- vLLM refuses engines without full CUDA graphs of varying length, LoRA and pipelines; here any engine runs.
- vLLM sizes the budget while the GPU works and selects on the GPU: `selection_s=0 selection_token_s=0`. By default the
  server's selection time is charged, as of every scheduler that selects.
- When memory is short, all chains are shortened until they fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.core.passes import Emitted
from specsim.core.protocols import View
from specsim.core.request import Floats
from specsim.core.trees import Forest
from specsim.pass_shape import PassShape, PassShapes
from specsim.schedulers.parts.growth import grow_fitting, plain_shape
from specsim.schedulers.parts.protocols import Chains, Growing, Sequences, at_least
from specsim.schedulers.parts.survival import Survival, estimator_of
from specsim.schedulers.specserve import first_kept


@dataclass
class AdaptiveVerification(Chains):
    """A speculation part: chains of `num_speculative_tokens` for all requests; their best tokens are verified.

    Parameters
    ----------
    num_speculative_tokens : draft tokens of each chain.
    max_num_seqs : the most requests of a batch in the table.
    survival : the estimator of acceptance.
    fresh : whether the budget is of this step's estimates; false is vLLM's: of each request's draft before, 1 before
        the first and after a preemption.
    table_context : tokens of context of each request in the table; null: the cost model prices each step as it is.
    """

    num_speculative_tokens: int
    max_num_seqs: int
    survival: Survival
    fresh: bool
    table_context: int | None

    def __post_init__(self) -> None:
        Chains.__post_init__(self)
        at_least(1, max_num_seqs=self.max_num_seqs)
        at_least(0, table_context=self.table_context or 0)
        self._estimator = estimator_of(self.survival, self.num_speculative_tokens)

    def begin(self, requests: int) -> None:
        """Make the state of so many requests."""
        self._last = np.ones((requests, self.num_speculative_tokens))

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Yield a draft pass per token and return the likeliest tokens of all requests, within the budget."""
        start_s = view.now_s
        self._last[sequences.evicted] = 1.0
        forest = yield from grow_fitting(view, sequences, self.num_speculative_tokens)
        if not forest.draft_nodes:
            return forest
        row, position = forest.row[forest.rows :], forest.depth[forest.rows :] - 1
        before = self._last[sequences.requests]
        now = before.copy()
        now[row, position] = self._estimator.estimate(forest.probability[forest.rows :], position)
        self._last[sequences.requests] = now
        estimated, survival = (np.cumprod(each, axis=1)[row, position] for each in (now if self.fresh else before, now))
        # A row that reads a part of its prompt samples nothing.
        sampling = np.count_nonzero(view.pending(sequences.requests) == sequences.scheduled_tokens)
        tokens = sampling + np.concatenate(((0.0,), np.cumsum(np.sort(estimated)[::-1])))
        budget = int(np.argmax(tokens / self._seconds(view, sequences, start_s, len(row))))
        ranked = forest.rows + np.lexsort((position, -survival))
        return forest.subset(first_kept(forest, ranked, budget))

    def _seconds(self, view: View, sequences: Sequences, start_s: float, most: int) -> Floats:
        """Return the seconds of a step that verifies 0, 1, ..., `most` draft tokens, (most + 1,)."""
        drafts, cost_model, context = np.arange(most + 1), view.cost_model, self.table_context
        if context is None:
            plain, seen = plain_shape(view, sequences), view.target_cached[sequences.requests[: sequences.decoding]] + 2
            verify_s = cost_model.target.seconds_array(PassShapes.with_nodes(plain, drafts, drafts * seen.mean()))
            return view.now_s - start_s + verify_s
        tokens = int(sequences.scheduled_tokens.sum()) + drafts
        requests = np.minimum(tokens, self.max_num_seqs)
        roots, further = PassShapes.decode(requests * context, requests), tokens - requests
        verify_s = cost_model.target.seconds_array(PassShapes.with_nodes(roots, further, further * (context + 2)))
        passes = 1 if cost_model.draft.one_pass else min(self.num_speculative_tokens, cost_model.draft.max_depth)
        batch = len(sequences.requests)
        return verify_s + passes * cost_model.draft.seconds(PassShape.decode(batch * context, batch))

    def on_verified(self, view: View, sequences: Sequences, forest: Forest, answer: Emitted) -> None:
        """Have the estimator note each token that was verified behind accepted ones."""
        row, depth = forest.row[forest.rows :], forest.depth[forest.rows :]
        matched = answer.matched[row]
        seen = depth <= matched + 1
        confidence = forest.probability[forest.rows :][seen]
        self._estimator.note(confidence, depth[seen] - 1, (depth <= matched)[seen])
