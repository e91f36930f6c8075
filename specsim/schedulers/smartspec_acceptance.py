"""What SmartSpec learns: moving averages of acceptance, of everybody and of each request.

Paper: SmartSpec (Liu et al. 2024), section 4.4 and Algorithm 1, lines 3 and 7.
Idea: the drafter will be as right as it was in the last steps.
Deviations: see smartspec.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from specsim.protocols import View
from specsim.request import Floats, Ids, Ints
from specsim.schedulers.parameters import at_least, probability

Granularity = Literal["global", "per_request"]


@dataclass(slots=True)
class AcceptanceAverage:
    """The moving average of past steps' conditional acceptance rates (Algorithm 1, line 3).

    Parameters
    ----------
    window : past steps that are averaged; with `per_request` those of the request itself.
    first : what a window holds before any step; a request's own holds the average of all. Else one unlucky first step
        would end all speculation, since nothing is learnt without.
    """

    granularity: Granularity
    window: int
    first: float
    _rates: Floats = field(init=False, repr=False)
    _seen: Ints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        at_least(1, window=self.window)
        probability(first_acceptance=self.first)
        self._room(0)

    def of(self, requests: Ids) -> Floats:
        """Return the acceptance to expect of each request, (n,)."""
        overall = self._mean(np.zeros(1, dtype=np.int64), self.first)
        known = requests < len(self._seen) - 1
        return np.where(known, self._mean(np.where(known, requests + 1, 0), overall), overall)

    def learn(self, view: View, requests: Ids, drafted: Ints, matched: Ints) -> None:
        """Note a step: `drafted` (n,) tokens of each chain, of which the first `matched` (n,) were right."""
        tried = np.minimum(matched + 1, drafted)
        if not tried.any():
            return
        self._note(np.zeros(1, dtype=np.int64), np.array([matched.sum() / tried.sum()]))
        if self.granularity == "per_request":
            if len(self._seen) == 1:
                self._room(len(view.arrival_s))
            own = tried > 0
            self._note(requests[own] + 1, matched[own] / tried[own])

    def _room(self, requests: int) -> None:
        """Make a row for everybody, which is kept, and one for each of so many requests."""
        rates, seen = np.zeros((requests + 1, self.window)), np.zeros(requests + 1, dtype=np.int64)
        if requests:
            rates[0], seen[0] = self._rates[0], self._seen[0]
        self._rates, self._seen = rates, seen

    def _note(self, rows: Ints, rates: Floats) -> None:
        self._rates[rows, self._seen[rows] % self.window] = rates
        self._seen[rows] += 1

    def _mean(self, rows: Ints, before: float | Floats) -> Floats:
        """Return each row's average, (rows,); what its window still lacks counts as `before`."""
        mean: Floats = (
            self._rates[rows].sum(axis=1) + before * np.maximum(self.window - self._seen[rows], 0)
        ) / self.window
        return mean
