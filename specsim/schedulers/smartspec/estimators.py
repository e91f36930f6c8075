"""SmartSpec with another guess at the accepted length: the truth, and luck.

Paper: SmartSpec (Liu et al. 2024), section 7.2.1, Fig. 14.
Idea: how much of the gain is due to the moving average: between "random all" and the oracle.
Deviations, beside those of chains.py:
- The oracle knows before drafting how many tokens of each request will be accepted, and gives no request more; with
  that, one k for all is the argmax. Every token it verifies is right.
- "Random all": each request's length is uniform in 0..V, drawn from (seed, request, position); no goodput is asked.
  All that have a slot run.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from specsim.replica.protocols import Foresight, View
from specsim.replica.request import Ints
from specsim.rng import STRIDE, stream_keys, uniforms
from specsim.schedulers.parts.parameters import at_least, draft_length
from specsim.schedulers.smartspec.goodput import Batch, best, fitting, goodput, lengths_of, longest_fitting
from specsim.schedulers.smartspec.serving import Proposer, Proposing, propose_chains


@dataclass(slots=True)
class ForeseenChains(Proposer):
    """A proposal of chains as long as each request's drafts will be right, where goodput wants them.

    Parameters
    ----------
    num_speculative_tokens : V, the most draft tokens a request.
    """

    num_speculative_tokens: int
    _foresight: Foresight | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        draft_length(num_speculative_tokens=self.num_speculative_tokens)

    @property
    def deepest(self) -> int:
        """The most draft tokens of a chain."""
        return self.num_speculative_tokens

    def foresee(self, foresight: Foresight) -> None:
        """Take the foresight that tells right drafts from wrong ones."""
        self._foresight = foresight

    def propose(self, view: View, batch: Batch) -> Proposing:
        """Yield draft passes and return the right chains of the best prefix."""
        batch = batch._replace(longest=np.minimum(batch.longest, self._ahead(batch)))
        lengths = lengths_of(batch, self.num_speculative_tokens)
        table = goodput(view.belief, batch, np.ones(len(batch.requests)), self.num_speculative_tokens)
        prefix, k = best(table, fitting(view, batch, lengths))
        return (yield from propose_chains(batch, prefix, lengths[k, :prefix]))

    def _ahead(self, batch: Batch) -> Ints:
        """Return how many drafted tokens of each will be right, (n,)."""
        if self._foresight is None:
            raise ValueError("which drafts are right is known from the future: use a clairvoyant scheduler")
        if not self.num_speculative_tokens:
            return batch.longest
        return self._foresight.right_ahead(batch.requests, self.num_speculative_tokens)


@dataclass(slots=True)
class RandomChains(Proposer):
    """A proposal of chains of random length.

    Parameters
    ----------
    num_speculative_tokens : V; lengths are uniform in 0..V. seed : of the lengths.
    """

    num_speculative_tokens: int
    seed: int

    def __post_init__(self) -> None:
        draft_length(num_speculative_tokens=self.num_speculative_tokens)
        at_least(0, seed=self.seed)

    @property
    def deepest(self) -> int:
        """The most draft tokens of a chain."""
        return self.num_speculative_tokens

    def propose(self, view: View, batch: Batch) -> Proposing:
        """Yield draft passes and return chains of random length."""
        keys = stream_keys(self.seed, "smartspec_random", batch.requests)
        luck = uniforms(keys + STRIDE * view.emitted_tokens[batch.requests].astype(np.uint64))
        lengths = np.minimum((luck * (self.num_speculative_tokens + 1)).astype(np.int64), batch.longest)
        cuts = np.minimum(np.arange(self.num_speculative_tokens + 1)[:, None], lengths)
        prefix, most = longest_fitting(fitting(view, batch, cuts))
        return (yield from propose_chains(batch, prefix, cuts[most, :prefix]))
