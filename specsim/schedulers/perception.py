"""Estimates of LAPS-SD about a request: its acceptance rate once steady, and its predicted output length.

Paper: LAPS-SD, section 4.3; deviations are listed in `laps_sd`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from specsim.core.request import Floats, Ids, Ints
from specsim.core.trees import Forest
from specsim.rng import stream_keys, uniforms
from specsim.schedulers.parts.protocols import OraclePart, at_least


@dataclass
class LengthPredictor(OraclePart):
    """Predict output lengths: the true ones x a lognormal error whose logarithm has `prediction_error` as sigma.

    The error of a request depends only on the request and on `prediction_seed`.
    """

    prediction_error: float
    prediction_seed: int

    def __post_init__(self) -> None:
        at_least(0, prediction_error=self.prediction_error, prediction_seed=self.prediction_seed)

    def tokens(self, ids: Ids) -> Floats:
        """Return the predicted output lengths in tokens, (n,)."""
        true = self.oracle.output_tokens(ids).astype(np.float64)
        return true * np.exp(self.prediction_error * self._normal(ids)) if self.prediction_error else true

    def noted(self, requests: int) -> Mapping[str, Floats]:
        """Return the predicted lengths of all requests, (requests,); see `Noting`."""
        return {"predicted_output_tokens": self.tokens(np.arange(requests))}

    def _normal(self, ids: Ids) -> Floats:
        """Return a standard normal number for each request (Box-Muller)."""
        radius, angle = (uniforms(stream_keys(self.prediction_seed, f"length {part}", ids)) for part in ("r", "phi"))
        normal: Floats = np.sqrt(-2 * np.log1p(-radius)) * np.cos(2 * np.pi * angle)
        return normal


@dataclass
class AcceptanceMonitor:
    """Monitor accepted / drafted tokens of each request: steady when those of `window` rounds are within `spread`."""

    window: int
    spread: float

    def __post_init__(self) -> None:
        at_least(1, window=self.window)
        at_least(0, spread=self.spread)

    def begin(self, requests: int) -> None:
        """Allocate for N requests: `totals` (4, N) rounds, drafted, passes, accepted; `rate` (N,) A_i or NaN."""
        self.totals = np.zeros((4, requests))
        self.rate = np.full(requests, np.nan)
        self._recent = np.zeros((requests, self.window))

    def on_verified(self, ids: Ids, forest: Forest, accepted: Ints) -> None:
        """Note one round: the trees (n,) that were verified, and how many of their tokens were accepted (n,)."""
        drafted = forest.tree_tokens()
        depths = np.zeros(forest.rows, dtype=np.int64)
        # Nodes are in order of layers, so the last node of a row is among its deepest.
        depths[forest.row] = forest.depth
        told = drafted > 0
        if not told.all():
            ids, drafted, depths, accepted = ids[told], drafted[told], depths[told], accepted[told]
        totals = self.totals[:, ids] + np.array((np.ones_like(ids), drafted, depths, accepted), dtype=np.float64)
        self.totals[:, ids] = totals
        rounds, processed, _, right = totals
        self._recent[ids, rounds.astype(np.int64) % self.window] = right / processed
        due = ids[(rounds >= self.window) & np.isnan(self.rate[ids])]
        if len(due):
            recent = self._recent[due]
            steady = np.ptp(recent, axis=1) < self.spread
            self.rate[due[steady]] = recent[steady].mean(axis=1)
