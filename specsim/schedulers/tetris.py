"""Longer chains than are verified: the likeliest tokens of the batch fill the verification's capacity.

Paper: TETRIS (Wu et al., ACL 2025, arXiv 2502.15197): greedy selection by cumulative confidence under a capacity.
Idea: every request drafts some tokens more than it would verify. Of all tokens those of highest cumulative confidence
are verified, as many as the capacity has room for: more of requests that are easy to draft for, fewer of others.
Deviations:
- The capacity is the release's k x batch size where it is null. A fixed one is the paper's limit of a server.
- A batch of one decoding request drafts no extra token, as in the release's benchmarks (`tetris_turn_on_batch_size` 2).
- Confidences are the drafter's own, as in the release.
- When memory is short, all chains are shortened until they fit.
"""

from __future__ import annotations

from dataclasses import dataclass

from specsim.core.passes import MAX_DEPTH
from specsim.core.protocols import View
from specsim.schedulers.parts.growth import grow_fitting
from specsim.schedulers.parts.protocols import Growing, Sequences, Speculation, at_least, draft_length
from specsim.schedulers.parts.selection import likeliest_of_all


@dataclass(frozen=True, slots=True)
class Tetris(Speculation):
    """A speculation part: chains with extra draft tokens, of which the likeliest of the batch are verified.

    Parameters
    ----------
    num_speculative_tokens : k, the tokens of a chain without extra ones.
    extra_draft_tokens : how many more each request drafts.
    capacity : most draft tokens of a verification; null: k for each decoding request.
    """

    num_speculative_tokens: int
    extra_draft_tokens: int
    capacity: int | None

    def __post_init__(self) -> None:
        at_least(0, capacity=self.capacity or 0)
        draft_length(num_speculative_tokens=self.num_speculative_tokens, extra_draft_tokens=self.extra_draft_tokens)

    @property
    def drafts(self) -> bool:
        """Whether it drafts: always, unless k or the capacity is 0."""
        return self.draft_tokens(1) > 0

    def draft_tokens(self, requests: int) -> int:
        """Return an equal share of the capacity, rounded up."""
        k = self.num_speculative_tokens
        if self.capacity is None:
            return k
        longest = k + self.extra_draft_tokens if k else 0
        return min(-(-self.capacity // max(requests, 1)), longest)

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Yield a draft pass per token and return the likeliest tokens of all requests within the capacity."""
        n, longest = sequences.decoding, self.num_speculative_tokens
        if n > 1:
            longest = min(longest + self.extra_draft_tokens, MAX_DEPTH)
        forest = yield from grow_fitting(view, sequences, longest)
        # A token budget may have left out some of the running requests, and has room for the shares of the others.
        capacity = n * self.draft_tokens(max(n, len(view.running)))
        if self.capacity is not None:
            capacity = min(capacity, self.capacity)
        return forest.subset(likeliest_of_all(forest, capacity)) if forest.draft_nodes else forest
