"""Estimates of whether a draft token is accepted, given that the tokens before it are."""

from __future__ import annotations

from typing import Literal

import numpy as np

from specsim.core.request import Bools, Floats, Ints

Survival = Literal["confidence", "logistic", "statistics"]
"""Names of the estimators."""


class Estimator:
    """Estimates acceptance from the drafter's confidence and the draft position, from 0.

    This one takes the confidences as the drafter reports them, as of a trained confidence head; others derive from it.
    """

    def estimate(self, confidence: Floats, position: Ints) -> Floats:
        """Return the probability that each draft token is accepted, (m,)."""
        return confidence

    def note(self, confidence: Floats, position: Ints, right: Bools) -> None:
        """Take note of a step's verified tokens whose predecessors were accepted, (m,) each; `right` were, too."""


class PositionRates(Estimator):
    """The share of accepted tokens at each draft position, (accepted + 1) / (observed + 2); older steps fade."""

    HALF_LIFE_STEPS = 1024

    def __init__(self, positions: int) -> None:
        self.accepted, self.observed = np.zeros((2, positions))
        self._steps = 0

    def estimate(self, confidence: Floats, position: Ints) -> Floats:
        """Return the rate of each position."""
        rates: Floats = (self.accepted + 1) / (self.observed + 2)
        return rates[position]

    def note(self, confidence: Floats, position: Ints, right: Bools) -> None:
        """Count a step."""
        self.accepted += np.bincount(position[right], minlength=len(self.accepted))
        self.observed += np.bincount(position, minlength=len(self.observed))
        self._steps += 1
        if self._steps % self.HALF_LIFE_STEPS == 0:
            self.accepted //= 2
            self.observed //= 2


class OnlineLogistic(Estimator):
    """A logistic regression on the logit of the confidence: one slope, an intercept a position.

    Each `REFIT_STEPS` steps it takes a Newton step from those steps alone, damped by n / (n + `DAMPING`) at n
    observations. Its constants are those of vLLM's `OnlineAcceptanceEstimator`, as PR 52228 was merged: no warm-up.
    """

    REFIT_STEPS = 100
    DAMPING, RIDGE, MOST_LOGIT = 50.0, 1e-3, 40.0

    def __init__(self, positions: int) -> None:
        self.slope = 0.5
        self.intercept = np.full(positions, -0.2)
        self._steps = 0
        self._clear()

    def estimate(self, confidence: Floats, position: Ints) -> Floats:
        """Return the fitted probabilities."""
        return self._fitted(self._logit(confidence), position)

    def note(self, confidence: Floats, position: Ints, right: Bools) -> None:
        """Add a step to the sums of the next Newton step, and take that when it is due."""
        logit = self._logit(confidence)
        fitted = self._fitted(logit, position)
        weight, missed = fitted * (1 - fitted), right - fitted
        self._slopes += (weight * logit**2).sum(), (missed * logit).sum()
        columns = weight * logit, weight, missed, np.ones_like(logit)
        size = len(self.intercept)
        self._sums += [np.bincount(position, weights=each, minlength=size) for each in columns]
        self._steps += 1
        if self._steps % self.REFIT_STEPS == 0:
            self._refit()

    def _refit(self) -> None:
        """Take the Newton step; the slope's has the intercepts eliminated (Schur complement)."""
        (curve, score), (mixed, weight, missed, count) = self._slopes, self._sums
        weight = weight + self.RIDGE
        slope = float((score - mixed @ (missed / weight)) / (curve + self.RIDGE - mixed @ (mixed / weight)))
        slope *= count.sum() / (count.sum() + self.DAMPING)
        if self.slope + slope < 0:
            slope = 0.0
        self.slope += slope
        self.intercept += (missed - mixed * slope) / weight * count / (count + self.DAMPING)
        self._clear()

    def _clear(self) -> None:
        self._slopes = np.zeros(2)
        self._sums = np.zeros((4, len(self.intercept)))

    def _logit(self, confidence: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            logit: Floats = np.log(confidence) - np.log1p(-confidence)
        return logit.clip(-self.MOST_LOGIT, self.MOST_LOGIT)

    def _fitted(self, logit: Floats, position: Ints) -> Floats:
        fitted: Floats = np.exp(-np.logaddexp(0.0, -self.slope * logit - self.intercept[position]))
        return fitted


def estimator_of(survival: Survival, positions: int) -> Estimator:
    """Return the estimator of that name for so many draft positions."""
    if survival == "confidence":
        return Estimator()
    return OnlineLogistic(positions) if survival == "logistic" else PositionRates(positions)
