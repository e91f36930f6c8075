"""What SmartSpec learns: acceptance over the last steps, of all requests and of each.

Paper: SmartSpec (Liu et al. 2024), section 4.4 and Algorithm 1, lines 3 and 7.
Idea: the drafter will be as right as it was in the last steps.
Deviations: see chains.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from specsim.replica.request import Floats, Ids, Ints
from specsim.schedulers.parts.parameters import at_least, probability

Granularity = Literal["global", "per_request"]


@dataclass(slots=True)
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
    _tokens: Ints = field(init=False, repr=False)
    _sums: Ints = field(init=False, repr=False)
    _seen: Ints = field(init=False, repr=False)

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
        each: Floats = self._rate(requests + 1, overall)
        return each

    def learn(self, requests: Ids, drafted: Ints, matched: Ints) -> None:
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

    def _rate(self, rows: Ints | int, before: Any) -> Any:
        """Return each row's acceptance, (rows,); a step that its window lacks tried one token, right with `before`."""
        right, tried = self._sums[:, rows]
        return _filled(right, tried, np.maximum(self.window - self._seen[rows], 0), before)


def _filled(right: Any, tried: Any, lacking: Any, before: Any) -> Any:
    """Return the share of tokens that were right, with as many more as are lacking, right with `before`."""
    return (right + before * lacking) / (tried + lacking)
