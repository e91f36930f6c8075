"""SmartSpec as its authors released it: one length for all, decided now and then.

Paper: SmartSpec (Liu et al. 2024); the code is branch `dsd` of LiuXiaoxuanPKU/vllm (commit b427a13, December 2024).
Commit 647244ce of it differs: it counts a question before it tests whether to decide, so its first 19 find length 0.
Idea: at the first question and every 20th after it, take the length k = 0, 1, ... before goodput first falls. In
between the last length holds. Plain decoding counts 1.1 times its goodput, so speculation has to win by 10%.
Differences from the paper's scheduler (chains.py), all of them the release's:
- One rate for all requests starts at 0.7. Each step that drafts moves it by 0.15 towards accepted / drafted of all
  steps so far.
- All decoding requests run; no prefix is chosen, and no feedback ends the reading of prompts.
- Length 0 switches speculation off. The policy is then asked again when fewer requests run than when it was switched
  off, or once after 100 steps. Only each 20th question is a decision, so a load that never falls stays off for 2,000
  steps.
- A length whose tokens x 1.1 exceed the cache has no goodput.
Deviations:
- vLLM's sampler counts every draft token that agrees, also behind a rejected one, which a scheduler here does not see.
  Here the tokens behind a rejected one count neither as accepted nor as drafted: on average the same ratio.
- Pass times are the cost model's, tokens the batch's own. The release fits polynomials to a profile of its own, and
  counts each context as the mean, rounded down to a profiled length of at most 2,048 (dsd.py, `_get_bucket_seq_len`).
- The release lets a drafter that missed tokens draft on from a cache with gaps. Here it first reads what it lacks. Of
  prompts that are read while speculation is off, the same. As in the release, that is in no decision.
- The longest k is the server's setting there; 8 here. A step without memory for the length decodes without drafts.
- The release's prompt lookup (8 tokens, of which a length by goodput is verified) is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.core.passes import Emitted
from specsim.core.protocols import View
from specsim.core.request import Floats, Ints
from specsim.core.trees import Forest
from specsim.schedulers.parts.growth import grow_trees, sequences_fit
from specsim.schedulers.parts.protocols import Chains, Growing, Sequences, at_least, probability
from specsim.schedulers.smartspec.goodput import Batch, goodput


@dataclass
class ReleasedLengths(Chains):
    """A speculation part: chains of one length for all, by goodput, as released.

    Parameters
    ----------
    num_speculative_tokens : the longest chain.
    first_rate : the rate before any step. weight : by which a step moves the rate.
    decision_steps : questions from one decision to the next. plain_factor : by which the goodput of length 0 counts.
    retry_steps : steps without speculation after which the policy is asked again.
    memory_factor : by which the tokens of a length count when they are held against the cache.
    """

    num_speculative_tokens: int
    first_rate: float
    weight: float
    decision_steps: int
    plain_factor: float
    retry_steps: int
    memory_factor: float

    def __post_init__(self) -> None:
        Chains.__post_init__(self)
        at_least(0, plain_factor=self.plain_factor)
        at_least(0, memory_factor=self.memory_factor)
        at_least(1, decision_steps=self.decision_steps, retry_steps=self.retry_steps)
        probability(first_rate=self.first_rate, weight=self.weight)
        self.rate = self.first_rate
        self._asked = self._length = self._idle = self._matched = self._tried = 0
        self._off_at: int | None = None  # The requests of the batch that switched speculation off.

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Yield a draft pass per token of the length in force and return the chains; none if they do not all fit."""
        running = len(np.union1d(view.running, sequences.requests))
        depth = 0 if self._off(running) else self._asked_length(view, sequences, running)
        if sequences.decoding and not sequences_fit(view, sequences, depth):
            depth = 0
        return grow_trees(view, sequences.requests, sequences.catch_up, sequences.decoding, depth, width=1)

    def on_verified(self, view: View, sequences: Sequences, forest: Forest, answer: Emitted) -> None:
        """Move the rate towards the acceptance of all steps so far, if this one drafted."""
        drafted = forest.tree_tokens()
        if not drafted.any():
            return
        self._matched += int(answer.matched.sum())
        self._tried += int(np.minimum(answer.matched + 1, drafted).sum())
        self.rate += self.weight * (self._matched / self._tried - self.rate)

    def _off(self, running: int) -> bool:
        """Count a step; return whether it runs without asking: as many requests run as when length 0 was chosen."""
        if self._off_at is None:
            return False
        if running < self._off_at:
            self._off_at = self._off_at if self._idle else None
            return False
        self._idle += 1
        if self._idle < self.retry_steps:
            return True
        self._off_at, self._idle = None, 0
        return False

    def _asked_length(self, view: View, sequences: Sequences, running: int) -> int:
        """Return the length in force when the policy is asked; a step that only reads prompts feeds the drafter."""
        if not sequences.decoding:
            return 1
        if self._asked % self.decision_steps == 0:
            self._length = self._decided(view, sequences)
        self._asked += 1
        if not self._length:
            self._off_at = running
        return self._length

    def _decided(self, view: View, sequences: Sequences) -> int:
        """Return the last length before goodput first falls."""
        best, most = 0, -1.0
        for k, value in enumerate(self._goodput(view, sequences).tolist()):
            if value <= most:
                break
            best, most = k, value
        return best

    def _goodput(self, view: View, sequences: Sequences) -> Floats:
        """Return the tokens per estimated second of each length, as they are compared, (longest + 1,)."""
        n, longest = sequences.decoding, min(self.num_speculative_tokens, view.cost_model.draft.max_depth)
        requests = sequences.requests[:n]
        cached, ones = view.target_cached[requests], np.ones(n, dtype=np.int64)
        batch = Batch(requests, cached, cached, ones, np.full(n, longest))
        tokens_per_s = goodput(view.cost_model, batch, np.full(n, self.rate), longest)[:, -1]
        tokens_per_s[0] *= self.plain_factor
        needed = np.array([_held_bytes(view, batch, k) for k in range(longest + 1)])
        return np.where(self.memory_factor * needed > view.capacity_bytes, 0.0, tokens_per_s)


def _held_bytes(view: View, batch: Batch, length: int) -> int:
    """Return the bytes of cache that the batch holds when each of its requests has drafted `length` tokens."""
    drafted: Ints = view.draft_cached[batch.requests] + (view.draft_pending(batch.requests) + length if length else 0)
    growth = view.growth_bytes(batch.requests, batch.target_cached + 1 + length, drafted)
    return int((view.held_bytes(batch.requests) + growth).sum())
