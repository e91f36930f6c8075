"""SmartSpec's estimators of acceptance and of confidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from specsim.core.protocols import View
from specsim.core.request import Floats, Ids, Ints
from specsim.core.trees import Forest
from specsim.rng import STRIDE, stream_keys, uniforms
from specsim.schedulers.parts.growth import grow
from specsim.schedulers.parts.protocols import OraclePart, at_least, probability
from specsim.schedulers.smartspec.goodput import (
    Batch,
    best,
    fitting,
    goodput,
    lengths_of,
    longest_fitting,
    target_seconds,
)
from specsim.schedulers.smartspec.serving import ChainProposer, Proposal, Proposing, propose_chains

Granularity = Literal["global", "per_request"]


@dataclass
class AcceptanceAverage:
    """Conditional acceptance over past steps (Algorithm 1, line 3): tokens that were right / tokens that were tried.

    A token is tried where all before it in its chain were right. Both are summed over the window first: the mean of the
    steps' own ratios is too low, since a step that fails early tries few tokens and counts as much as one that tries
    many (0.67 for 0.84 at batch 1 and chains of 8).

    Parameters
    ----------
    window : past steps that are summed; with `per_request` those of the request itself.
    first : acceptance before any step. A step that the window still lacks counts as one tried token of that acceptance,
        for a request's own window of the average of all. Else one unlucky first step would end all speculation, since
        nothing is learnt without.
    """

    granularity: Granularity
    window: int
    first: float

    def __post_init__(self) -> None:
        at_least(1, window=self.window)
        probability(first_acceptance=self.first)

    def begin(self, requests: int) -> None:
        """Make a row for all requests together and, where each has its own, one for each of so many."""
        rows = requests + 1 if self.granularity == "per_request" else 1
        self._tokens = np.zeros((2, rows, self.window), dtype=np.int64)
        self._sums, self._seen = np.zeros((2, rows), dtype=np.int64), np.zeros(rows, dtype=np.int64)

    def of(self, requests: Ids) -> Floats:
        """Return the acceptance to expect of each request, (n,)."""
        right, tried = self._sums[:, 0].tolist()
        overall = _filled(right, tried, max(self.window - int(self._seen[0]), 0), self.first)
        if len(self._seen) == 1 or not self._seen[0]:
            return np.full(len(requests), overall)
        rows = requests + 1
        right_each, tried_each = self._sums[:, rows]
        each: Floats = _filled(right_each, tried_each, np.maximum(self.window - self._seen[rows], 0), overall)
        return each

    def on_verified(self, requests: Ids, drafted: Ints, matched: Ints) -> None:
        """Note a step: `drafted` (n,) tokens of each chain, of which the first `matched` (n,) were right."""
        tried = np.minimum(matched + 1, drafted)
        if not tried.any():
            return
        self._note(0, np.array((matched.sum(), tried.sum())))
        if self.granularity == "per_request":
            own = tried > 0
            self._note(requests[own] + 1, np.stack((matched[own], tried[own])))

    def _note(self, rows: Ints | int, tokens: Ints) -> None:
        """Note a step of each row, or of one: `tokens` (2, rows) that were right, and that were tried."""
        place = self._seen[rows] % self.window
        self._sums[:, rows] += tokens - self._tokens[:, rows, place]
        self._tokens[:, rows, place] = tokens
        self._seen[rows] += 1


def _filled(right: Any, tried: Any, lacking: Any, before: Any) -> Any:
    """Return the share of tokens that were right, with as many more as are lacking, right with `before`."""
    return (right + before * lacking) / (tried + lacking)


@dataclass(slots=True)
class OracleChains(OraclePart, ChainProposer):
    """A proposal of chains as long as each request's drafts will be right, where goodput wants them.

    Parameters
    ----------
    num_speculative_tokens : V, the most draft tokens a request.
    """

    num_speculative_tokens: int

    def propose(self, view: View, batch: Batch) -> Proposing:
        """Yield draft passes and return the right chains of the best prefix."""
        if self.num_speculative_tokens:
            ahead = self.oracle.right_ahead(batch.requests, self.num_speculative_tokens)
            batch = batch._replace(longest=np.minimum(batch.longest, ahead))
        lengths = lengths_of(batch, self.num_speculative_tokens)
        table = goodput(view.cost_model, batch, np.ones(len(batch.requests)), self.num_speculative_tokens)
        prefix, k = best(table, fitting(view, batch, lengths))
        return (yield from propose_chains(batch, prefix, lengths[k, :prefix]))


@dataclass(slots=True)
class RandomChains(ChainProposer):
    """A proposal of chains of random length.

    Parameters
    ----------
    num_speculative_tokens : V; lengths are uniform in 0..V. seed : of the lengths.
    """

    num_speculative_tokens: int
    seed: int

    def __post_init__(self) -> None:
        ChainProposer.__post_init__(self)
        at_least(0, seed=self.seed)

    def propose(self, view: View, batch: Batch) -> Proposing:
        """Yield draft passes and return chains of random length."""
        keys = stream_keys(self.seed, "smartspec_random", batch.requests)
        draws = uniforms(keys + STRIDE * view.emitted_tokens[batch.requests].astype(np.uint64))
        lengths = np.minimum((draws * (self.num_speculative_tokens + 1)).astype(np.int64), batch.longest)
        cuts = np.minimum(np.arange(self.num_speculative_tokens + 1)[:, None], lengths)
        prefix, most = longest_fitting(fitting(view, batch, cuts))
        return (yield from propose_chains(batch, prefix, cuts[most, :prefix]))


@dataclass(slots=True)
class ConfidentChains(ChainProposer):
    """A proposal of chains that are drafted while confident and cut by goodput.

    Parameters
    ----------
    num_speculative_tokens : P, the most draft tokens a request, hence draft passes of a step.
    threshold : T; a request drafts on while its last token's confidence exceeds it.
    """

    num_speculative_tokens: int
    threshold: float

    def __post_init__(self) -> None:
        ChainProposer.__post_init__(self)
        at_least(0, threshold=self.threshold)

    def propose(self, view: View, batch: Batch) -> Proposing:
        """Yield at most P draft passes and return the chains, cut at the length with the best goodput."""
        start_s = view.now_s
        prefix, most = longest_fitting(fitting(view, batch, lengths_of(batch, self.num_speculative_tokens)))
        batch = batch.prefix(prefix)
        catch_up = np.where(batch.longest > 0, batch.catch_up, 0)
        forest = yield from grow(batch.requests, catch_up, batch.longest, (1,) * most, going_on=self._sure)
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
        seconds = spent_s + target_seconds(view.cost_model.target, batch, drafted)[:, -1]
        return int(np.argmax(tokens / seconds))
