"""Chains whose length, a request, follows how steady the drafter's divergence from the target is.

Paper: DSDE (Yang et al., arXiv 2509.01083), Eq. 1, 3, 4, 8 and 9 to 11.
Idea: a request speculates the less, the further the drafter was from the target in its last verification and the more
the divergence varies of late, compared with a longer past. The mean length of the batch caps all, against stragglers.
Deviations:
- Equations and constants are taken from a summary of version 1 and from the authors' code, not from the paper's text.
- The decay of 0.85 and the longest length, accepted x (1 + mean / max), are the summary's. The authors' code has 0.9
  and round(accepted x (1 + 0.5 mean / max)) (samsungsds-research-paper/DSDE, dynamic_scheduler.py, 4d571a2).
- The divergence of a token is KL(target || drafter). Distributions are not simulated, so the target's is taken as sure
  of its own token, as at temperature 0: -log c for a right token of confidence c, -log(1 - c) for a wrong one. For a
  wrong one that is the least that the divergence can be. Tokens behind a wrong one have none.
- The paper calibrates the longest length in a phase before the run. As in the authors' code, each request does so once
  30 of its tokens are judged, by the last 30, with a length that begins at the least and doubles when all was right.
- Requests that are still being calibrated have no part in the mean length and keep theirs above the cap.
- The ratio is 20 where the longer past does not vary, and lengths and cap are rounded up, as in that code.
- The least length is the paper's 2. Chains have at most `num_speculative_tokens`; the paper's static ones have 2 to 10.
- When memory is short, all chains are shortened until they fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from specsim.core.passes import Emitted
from specsim.core.protocols import View
from specsim.core.request import Floats, Ints
from specsim.core.trees import Forest
from specsim.schedulers.parts.growth import fitting_shape, grow, max_depths
from specsim.schedulers.parts.protocols import Chains, Growing, Sequences, draft_length
from specsim.schedulers.parts.tree_shape import TreeShape

SHORT, LONG = 10, 30
"""Tokens of the shorter and of the longer past."""
DECAY = 0.85
"""Weight of a token's divergence compared with that of the token after it."""
SCALE = 2.0
"""Times the mean divergence of the last verification, in the exponent of its factor."""
UNSTEADY = 20.0
"""The ratio of variances where the longer past does not vary."""
SURE = 1e-8
"""The confidence nearest to 0 and to 1 that a divergence is taken of."""


@dataclass
class DivergenceLengths(Chains):
    """A speculation part: chains whose length each request has for itself, capped by their mean.

    Parameters
    ----------
    num_speculative_tokens : most draft tokens of a chain.
    min_speculative_tokens : least draft tokens of a chain (SL_min).
    sl_cap : whether the mean length of a batch's calibrated requests caps them.
    """

    num_speculative_tokens: int
    min_speculative_tokens: int
    sl_cap: bool

    def __post_init__(self) -> None:
        Chains.__post_init__(self)
        draft_length(1, min_speculative_tokens=self.min_speculative_tokens)

    def begin(self, requests: int) -> None:
        """Make the state of so many requests: lengths, calibrated maxima (0 before), divergences of the last tokens."""
        least = min(self.min_speculative_tokens, self.num_speculative_tokens)
        self._lengths = np.full(requests, least)
        self._longest, self._accepted = np.zeros(requests), np.zeros(requests, dtype=np.int64)
        self._divergence, self._judged = np.zeros((requests, LONG)), np.zeros(requests, dtype=np.int64)

    def lengths(self, sequences: Sequences) -> Ints:
        """Return the draft tokens of each decoding row, (decoding,)."""
        requests = sequences.requests[: sequences.decoding]
        lengths, calibrated = self._lengths[requests], self._longest[requests] > 0
        if self.sl_cap and calibrated.any():
            cap = ceil(lengths[calibrated].mean())
            lengths[calibrated] = np.minimum(lengths[calibrated], cap)
        return lengths

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Yield draft passes and return each request's chain."""
        max_depth = max_depths(view, sequences.requests, sequences.decoding)
        max_depth[: sequences.decoding] = np.minimum(max_depth[: sequences.decoding], self.lengths(sequences))
        fitting = fitting_shape(view, sequences, TreeShape(max(int(max_depth.max(initial=1)), 1), 1))
        return grow(sequences.requests, sequences.catch_up, max_depth, (1,) * fitting.depth)

    def on_verified(self, view: View, sequences: Sequences, forest: Forest, answer: Emitted) -> None:
        """Note the divergence of each token that the target has judged, and set the next lengths."""
        drafted = forest.tree_tokens()
        here = drafted > 0
        if not here.any():
            return
        matched, drafted, requests = answer.matched[here], drafted[here], sequences.requests[here]
        judged = np.minimum(matched + 1, drafted)
        divergence = divergences(forest, answer.matched)[here]
        mean = divergence.sum(axis=1) / judged
        for depth in range(int(judged.max())):
            some = judged > depth
            ids = requests[some]
            self._divergence[ids, self._judged[ids] % LONG] = divergence[some, depth]
            self._judged[ids] += 1
        self._calibrate(requests, matched, matched == drafted)
        known = self._longest[requests] > 0
        self._lengths[requests[known]] = self._steadied(requests[known], mean[known])

    def _calibrate(self, requests: Ints, matched: Ints, all_right: Ints) -> None:
        """Double the lengths of uncalibrated requests where all was right; set the longest where enough is judged."""
        most, new = self.num_speculative_tokens, self._longest[requests] == 0
        self._accepted[requests] = np.maximum(self._accepted[requests], matched)
        doubling = requests[new & all_right]
        self._lengths[doubling] = np.minimum(2 * self._lengths[doubling], most)
        ready = requests[new & (self._judged[requests] >= LONG)]
        if len(ready):
            past = self._divergence[ready]
            longest = self._accepted[ready] * (1 + past.mean(axis=1) / (past.max(axis=1) + SURE))
            self._longest[ready] = np.clip(longest, min(self.min_speculative_tokens, most), most)

    def _steadied(self, requests: Ints, mean: Floats) -> Ints:
        """Return the lengths of Eq. 8 after a verification whose tokens diverged by `mean` (n,)."""
        least, longest = min(self.min_speculative_tokens, self.num_speculative_tokens), self._longest[requests]
        age = (self._judged[requests, None] - 1 - np.arange(LONG)) % LONG
        past = np.take_along_axis(self._divergence[requests], age, axis=1)
        penalty = np.expm1(SCALE * mean) * variance_ratio(past)
        lengths: Ints = np.ceil((1 - np.minimum(penalty, 1)) * (longest - least) + least).astype(np.int64)
        return lengths


def divergences(forest: Forest, matched: Ints) -> Floats:
    """Return the divergence of each draft token that the target has judged, (n, depth); 0 behind the first wrong one.

    `matched` (n,) are the right tokens of each chain.
    """
    nodes = slice(forest.rows, None)
    row, place = forest.row[nodes], forest.depth[nodes] - 1
    sure = np.clip(forest.probability[nodes], SURE, 1 - SURE)
    right, wrong = place < matched[row], place == matched[row]
    found = np.zeros((forest.rows, int(forest.depth.max(initial=0))))
    found[row, place] = np.where(right, -np.log(sure), np.where(wrong, -np.log1p(-sure), 0.0))
    return found


def variance_ratio(past: Floats) -> Floats:
    """Return Var(shorter past) / Var(longer past) of divergences (n, LONG), the latest first, both weighted (Eq. 4)."""
    short, long = _weighted_variance(past[:, :SHORT]), _weighted_variance(past)
    return np.where(long < 1e-6, UNSTEADY, short / np.maximum(long, 1e-6))


def _weighted_variance(values: Floats) -> Floats:
    weights = DECAY ** np.arange(values.shape[1])
    weights /= weights.sum()
    mean = values @ weights
    variance: Floats = (values - mean[:, None]) ** 2 @ weights
    return variance
