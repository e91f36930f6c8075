"""SmartSpec with another guess at the accepted length: the truth, and luck.

Paper: SmartSpec (Liu et al. 2024), section 7.2.1, Fig. 14.
Idea: how much of the gain is due to the moving average: between "random all" and the oracle.
Deviations, beside those of smartspec.py:
- The oracle knows before drafting how many tokens of each request will be accepted, and gives no request more; with
  that, one k for all is the argmax. Every token it verifies is right.
- "Random all": each request's length is uniform in 0..V, drawn from (seed, request, position); no goodput is asked.
  All that have a slot run.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from specsim.protocols import Foresight, Step, View
from specsim.request import Ints
from specsim.rng import STRIDE, stream_keys, uniforms
from specsim.schedulers.goodput import Batch, best, fitting, goodput, lengths_of, longest_fitting
from specsim.schedulers.parameters import at_least
from specsim.schedulers.smartspec import propose_chains
from specsim.schedulers.smartspec_serving import Proposing, Serving, Variant


@dataclass(slots=True)
class SeeingChains(Variant):
    """The variant behind `SmartSpecOracle`: chains as long as they will be right, where goodput wants them."""

    longest: int
    foresight: Foresight | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        at_least(0, longest=self.longest)

    def propose(self, view: View, batch: Batch) -> Proposing:
        """Yield draft passes and return the right chains of the best prefix."""
        batch = batch._replace(longest=np.minimum(batch.longest, self._ahead(batch)))
        lengths = lengths_of(batch, self.longest)
        table = goodput(view.belief, batch, np.ones(len(batch.requests)), self.longest)
        prefix, k = best(table, fitting(view, batch, lengths))
        return (yield from propose_chains(batch, prefix, lengths[k, :prefix]))

    def _ahead(self, batch: Batch) -> Ints:
        """Return how many drafted tokens of each will be right, (n,); all, where nobody handed over the future."""
        if self.foresight is None or not self.longest:
            return batch.longest
        return self.foresight.right_ahead(batch.requests, self.longest)


@dataclass(slots=True)
class SmartSpecOracle:
    """SmartSpec that knows how far each request's drafts will be right.

    Parameters
    ----------
    longest : V, as in `SmartSpec`.
    prefill_threshold, max_requests, prefill_tokens, watermark : as in `SmartSpec`.
    """

    longest: int
    prefill_threshold: float
    max_requests: int
    prefill_tokens: int
    watermark: float
    _chains: SeeingChains = field(init=False, repr=False)
    _serving: Serving = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._chains = SeeingChains(self.longest)
        room = self.prefill_threshold, self.max_requests, self.prefill_tokens, self.watermark
        self._serving = Serving(self._chains, *room)

    def foresee(self, foresight: Foresight) -> None:
        """Take what tells right drafts from wrong ones."""
        self._chains.foresight = foresight

    def step(self, view: View) -> Step:
        """Yield a prefill, or draft passes and one verification of right tokens."""
        return self._serving.step(view)


@dataclass(slots=True)
class RandomChains(Variant):
    """The variant behind `SmartSpecRandom`: lengths drawn at random."""

    longest: int
    seed: int

    def __post_init__(self) -> None:
        at_least(0, longest=self.longest, seed=self.seed)

    def propose(self, view: View, batch: Batch) -> Proposing:
        """Yield draft passes and return chains of random length."""
        keys = stream_keys(self.seed, "smartspec_random", batch.requests)
        luck = uniforms(keys + STRIDE * view.emitted_tokens[batch.requests].astype(np.uint64))
        lengths = np.minimum((luck * (self.longest + 1)).astype(np.int64), batch.longest)
        cuts = np.minimum(np.arange(self.longest + 1)[:, None], lengths)
        prefix, most = longest_fitting(fitting(view, batch, cuts))
        return (yield from propose_chains(batch, prefix, cuts[most, :prefix]))


@dataclass(slots=True)
class SmartSpecRandom:
    """SmartSpec that guesses.

    Parameters
    ----------
    longest : V; lengths are uniform in 0..V. seed : of the lengths.
    prefill_threshold, max_requests, prefill_tokens, watermark : as in `SmartSpec`.
    """

    longest: int
    seed: int
    prefill_threshold: float
    max_requests: int
    prefill_tokens: int
    watermark: float
    _serving: Serving = field(init=False, repr=False)

    def __post_init__(self) -> None:
        room = self.prefill_threshold, self.max_requests, self.prefill_tokens, self.watermark
        self._serving = Serving(RandomChains(self.longest, self.seed), *room)

    def step(self, view: View) -> Step:
        """Yield a prefill, or draft passes and one verification."""
        return self._serving.step(view)
