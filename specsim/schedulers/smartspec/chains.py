"""Speculation as long as goodput says, step by step.

Paper: SmartSpec, "Optimizing Speculative Decoding for Serving LLMs Using Goodput" (Liu et al. 2024), Algorithms 1, 2.
Version 3 of it (July 2025) is named TurboSpec; this is version 1.
Idea: before each step, run the first-come prefix and the proposed length k = 0..V with the most generated tokens
(accepted and bonus) per estimated second among those that the cache has slots for.
Deviations:
- Slips of the text, built as meant: Algorithm 1 multiplies by n once, a verification batches sum k_i + 1 tokens,
  Algorithm 2 remembers which prefix won (see goodput.py).
- The step time is that of the cost model, whatever its form; `profile.form=linear` is the paper's Eq. 7. The first
  draft pass is charged for all that the drafter's cache lacks: it falls behind while nothing is proposed and catches up
  when something is, where vLLM keeps it in step.
- The paper has no word on how steps are averaged, nor on what goes before the first. Here tokens are summed over the
  window, accepted / (accepted + those that failed), which is unbiased at any batch size; the window starts full of one
  token a step at `first_acceptance`, a request's own at the global average. While k = 0 nothing is learnt, as there.
- The paper calls the window insensitive and names none. It is, unless it is short: then an unlucky stretch ends all
  speculation for good, as acceptance is low. 20 steps lock at 0.4 and 0.5, 50 steps rarely, 100 steps only where
  speculation hardly pays, as prompt lookup at 0.35 (docs/claims.md), so 100 it is.
- With `acceptance: per_request` lengths follow the survival ranking of `goodput.longest_by_survival`; the paper names
  this granularity and gives no method.
- No request is given more tokens than its `max_tokens` leaves room for. Where not even the oldest request has a slot,
  the youngest are preempted, as many as let all others decode; the others choose among what that leaves.
- Draft and target take equal slots for drafted tokens, but share one pool instead of halves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.core.passes import DraftPass, Emitted
from specsim.core.protocols import View
from specsim.core.request import Floats
from specsim.core.trees import Forest
from specsim.schedulers.parts.growth import grow, sequences_fit, useful_depth
from specsim.schedulers.parts.protocols import Chains, Growing, Sequences
from specsim.schedulers.smartspec.estimators import AcceptanceAverage, Granularity
from specsim.schedulers.smartspec.goodput import Batch, best, fitting, goodput, lengths_of, longest_by_survival
from specsim.schedulers.smartspec.serving import ChainProposer, Proposing, propose_chains


@dataclass
class GoodputChains(Chains, ChainProposer):
    """A proposal of the prefix and the length of its chains with the best goodput; a speculation part of the length.

    As a speculation part it runs all rows and chooses k alone; the drafter then reads every prompt, and prompt chunks
    beside the decodes are not priced.

    Parameters
    ----------
    num_speculative_tokens : V, the most draft tokens a request, below 10 in the paper.
    acceptance : one average for all ("global"), or one each with a length each ("per_request").
    window : past steps whose tokens are summed. first_acceptance : what it starts full of, a token a step.
    """

    num_speculative_tokens: int
    acceptance: Granularity
    window: int
    first_acceptance: float

    def __post_init__(self) -> None:
        Chains.__post_init__(self)
        self.average = AcceptanceAverage(self.acceptance, self.window, self.first_acceptance)

    def begin(self, requests: int) -> None:
        """Make the state of so many requests."""
        self.average.begin(requests)

    def propose(self, view: View, batch: Batch) -> Proposing:
        """Yield k draft passes and return the chains of the best prefix."""
        batch, table = self._table(view, batch)
        lengths = lengths_of(batch, self.num_speculative_tokens)
        prefix, k = best(table, fitting(view, batch, lengths))
        return (yield from propose_chains(batch, prefix, lengths[k, :prefix]))

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Yield draft passes and return chains of the best length that fits for the rows that decode."""
        n, requests = sequences.decoding, sequences.requests
        depths = np.zeros(len(requests), dtype=np.int64)
        if n:
            decoding = requests[:n]
            cached = view.target_cached[decoding], view.draft_cached[decoding]
            most = np.clip(useful_depth(view, decoding), 0, self.num_speculative_tokens)
            batch, table = self._table(view, Batch(decoding, *cached, sequences.catch_up[:n], most))
            for k in np.argsort(-table[:, -1], kind="stable").tolist():
                if sequences_fit(view, sequences, k):
                    depths[:n] = np.minimum(batch.longest, k)
                    break
        catch_up = np.where((depths > 0) | (np.arange(len(requests)) >= n), sequences.catch_up, 0)
        if not depths.any() and catch_up.any() and sequences_fit(view, sequences._replace(catch_up=catch_up), 0):
            yield DraftPass(requests, catch_up, Forest.roots(len(requests)))
        return (yield from grow(requests, catch_up, depths, (1,) * int(depths.max(initial=0))))

    def on_verified(self, view: View, sequences: Sequences, forest: Forest, answer: Emitted) -> None:
        """Note the acceptance of this step."""
        self.average.on_verified(sequences.requests, forest.tree_tokens(), answer.matched)

    def _table(self, view: View, batch: Batch) -> tuple[Batch, Floats]:
        """Return the batch, its lengths bounded where each has its own, and the goodput of each (k, prefix)."""
        acceptance = self.average.of(batch.requests)
        if self.acceptance == "per_request":
            most = longest_by_survival(view.cost_model, batch, acceptance, self.num_speculative_tokens)
            batch = batch._replace(longest=most)
        return batch, goodput(view.cost_model, batch, acceptance, self.num_speculative_tokens)
