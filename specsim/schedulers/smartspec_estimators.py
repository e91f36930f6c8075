"""SmartSpec with another guess at the accepted length: the truth, and luck.

Paper: SmartSpec (Liu et al. 2024), section 7.2.1, Fig. 14.
Idea: how much of the gain is due to the moving average: between "random all" and the oracle.
Deviations, beside those of smartspec.py:
- The paper's oracle knows before drafting how many tokens will be accepted. `Foresight` shows what was drafted, so
  ours learns the truth of a token as soon as it is drafted: a chain stops at its first wrong token, which is never
  verified, and the next passes are weighed with the moving average. It is a bound on what a chain may learn of itself,
  not on drafting.
- "Random all": each request's length is uniform in 0..V, drawn from (seed, request, position); no goodput is asked.
  All that have a slot run.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from specsim.forest import Forest
from specsim.protocols import Foresight, Step, View
from specsim.request import Bools, Ints
from specsim.rng import STRIDE, stream_keys, uniforms
from specsim.schedulers.goodput import (
    Batch,
    draft_seconds,
    expected_length,
    fitting,
    lengths_of,
    longest_fitting,
    target_seconds,
)
from specsim.schedulers.parameters import at_least
from specsim.schedulers.parts import Rows
from specsim.schedulers.smartspec import GoodputChains, propose_chains
from specsim.schedulers.smartspec_serving import Proposal, Proposing, Serving
from specsim.work import NOBODY, Draft, Emitted


@dataclass(slots=True)
class SeeingChains:
    """The variant behind `SmartSpecOracle`: chains that stop where they are wrong."""

    longest: int
    window: int
    first_acceptance: float
    foresight: Foresight | None = field(default=None, init=False)
    _chains: GoodputChains = field(init=False, repr=False)
    _drafted: Ints = field(default_factory=lambda: NOBODY, init=False)

    def __post_init__(self) -> None:
        self._chains = GoodputChains(self.longest, "global", self.window, self.first_acceptance)

    def propose(self, view: View, batch: Batch) -> Proposing:
        """Yield draft passes while another one pays, and return the right tokens alone."""
        start_s = view.now_s
        fits = fitting(view, batch, lengths_of(batch, self.longest))
        prefix, _ = self._chains.choose(view, batch)
        most = int(np.count_nonzero(fits[:, prefix - 1])) - 1 if prefix else 0
        batch = Batch(*(column[:prefix] for column in batch))
        batch = batch._replace(longest=np.minimum(batch.longest, most))
        forest, right = Forest.roots(prefix), np.ones(prefix, dtype=np.bool_)
        leaves, chunks = np.flatnonzero(batch.longest > 0), np.where(batch.longest > 0, batch.fed, 0)
        level = 0
        while len(leaves):
            known = np.bincount(forest.row[right], minlength=prefix) - 1
            if not self._pays(view, _behind(batch, forest.row[leaves], level), known, view.now_s - start_s):
                break
            forest, before = (yield Draft(batch.requests, chunks, forest, leaves, width=1)), len(forest)
            right, level = self._right(forest), level + 1
            leaves, chunks = np.arange(before, len(forest)), NOBODY
            leaves = leaves[right[leaves] & (batch.longest[forest.row[leaves]] > level)]
        self._drafted = forest.tree_tokens()
        return Proposal(forest.subset(right), forest.draft_nodes)

    def _right(self, forest: Forest) -> Bools:
        """Return which nodes are right; all, where nobody handed over the future."""
        return np.ones(len(forest), dtype=np.bool_) if self.foresight is None else self.foresight.right(forest)

    def _pays(self, view: View, rest: Batch, known: Ints, spent_s: float) -> bool:
        """Return whether any number of further passes is believed to raise the step's goodput.

        `rest` is the batch with the lengths still open, `known` (n,) the tokens found right so far.
        """
        most = int(rest.longest.max())
        more = expected_length(self._chains.average.of(rest.requests), lengths_of(rest, most)) - 1
        seconds = draft_seconds(view.belief.draft, rest, most)[:, -1]
        seconds = seconds + target_seconds(view.belief.target, rest, known + more)[:, -1]
        return bool(np.argmax((1 + known + more).sum(axis=1) / (spent_s + seconds)))

    def learn(self, view: View, rows: Rows, forest: Forest, answer: Emitted) -> None:
        """Note what was drafted, right and wrong."""
        self._chains.average.learn(view, rows.requests, self._drafted, answer.matched)


def _behind(batch: Batch, growing: Ints, level: int) -> Batch:
    """Return the batch as it stands `level` passes into its step, with only the rows `growing` to go on."""
    left = np.zeros_like(batch.longest)
    left[growing] = batch.longest[growing] - level
    if not level:
        return batch._replace(longest=left)
    read = batch.draft_cached + batch.fed + level - 1
    return batch._replace(longest=left, draft_cached=read, fed=np.ones_like(batch.fed))


@dataclass(slots=True)
class SmartSpecOracle:
    """SmartSpec that sees at once whether a drafted token is right.

    Parameters
    ----------
    longest, window, first_acceptance : as in `SmartSpec`, for the tokens not yet drafted.
    prefill_threshold, max_requests, prefill_tokens, watermark : as in `SmartSpec`.
    """

    longest: int
    window: int
    first_acceptance: float
    prefill_threshold: float
    max_requests: int
    prefill_tokens: int
    watermark: float
    _chains: SeeingChains = field(init=False, repr=False)
    _serving: Serving = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._chains = SeeingChains(self.longest, self.window, self.first_acceptance)
        room = self.prefill_threshold, self.max_requests, self.prefill_tokens, self.watermark
        self._serving = Serving(self._chains, *room)

    def foresee(self, foresight: Foresight) -> None:
        """Take what tells right drafts from wrong ones."""
        self._chains.foresight = foresight

    def step(self, view: View) -> Step:
        """Yield a prefill, or draft passes and one verification of right tokens."""
        return self._serving.step(view)


@dataclass(slots=True)
class RandomChains:
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

    def learn(self, view: View, rows: Rows, forest: Forest, answer: Emitted) -> None:
        """Keep nothing."""


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
