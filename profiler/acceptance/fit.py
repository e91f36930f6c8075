"""Curves fitted to a recording: a `specsim.world.curves.Curve` for each category."""

from __future__ import annotations

import numpy as np

from profiler.acceptance.curves import OnPath, on_path
from profiler.acceptance.tape_file import Recorded
from specsim.replica.request import Bools, Floats
from specsim.world.curves import Acceptance, Curve, draw_tape

LEVELS = 16
LEAST, MOST = 1e-3, 1 - 1e-3
NEXT_RANKS = 2
"""The tail is fitted to so many ranks after the first: those of the widest beams compared."""


def fit_curves(tape: Recorded) -> Acceptance:
    """Return the curves of every recorded category."""
    curves = {name: fit_curve(tape, name) for name in tape.categories}
    return Acceptance(curves, tape.width, LEVELS)


def fit_curve(tape: Recorded, category: str) -> Curve:
    """Return one category's curve by the method of moments.

    - ``agreement`` is the share right.
    - ``spread`` gives the variance between texts: the covariance of their halves, which chance within a text does not
      raise.
    - ``concentration`` gives calibrated confidences their remaining variance. Calibrated ones are the recorded ones
      through the best rising curve of acceptance.
    - ``tail`` gives the next ranks their share of the misses.
    """
    rows = on_path(tape, category)
    agreement = float(np.clip(rows.right.mean(), LEAST, MOST))
    between = min(between_texts(rows), 0.9 * agreement * (1 - agreement))
    spread = spread_of(agreement, between)
    inner = agreement * (1 - agreement) - between
    within = max(float(np.var(calibrated(rows.confidence, rows.right))) - between, 1e-6)
    concentration = float(np.clip(inner / within - 1, 0.01, 1e6))
    tail = tail_of(tape, rows, agreement, concentration, spread)
    return Curve(agreement, concentration, spread, tail)


def calibrated(confidence: Floats, right: Bools) -> Floats:
    """Return the rising function of confidence that fits acceptance best (isotonic regression), (n,)."""
    from scipy.optimize import isotonic_regression

    which = np.unique(confidence, return_inverse=True)[1]
    rows = np.bincount(which)
    share = np.bincount(which, weights=right) / rows
    risen: Floats = isotonic_regression(share, weights=rows.astype(np.float64)).x
    return risen[which]


def between_texts(rows: OnPath, least: int = 16) -> float:
    """Return the variance between texts of the share right: the covariance of their halves, at least 0."""
    halves = []
    for text in range(int(rows.text.max()) + 1):
        right = rows.right[rows.text == text]
        if len(right) >= least:
            middle = len(right) // 2
            halves.append((right[:middle].mean(), right[middle:].mean()))
    if len(halves) < 3:
        return 0.0
    return max(float(np.cov(np.array(halves).T)[0, 1]), 0.0)


def spread_of(agreement: float, variance: float) -> float:
    """Return the standard deviation in logits with which levels of mean `agreement` have this variance."""
    from scipy.optimize import brentq
    from scipy.special import expit, ndtri

    if variance < 1e-6:
        return 0.0
    normal = ndtri((np.arange(LEVELS) + 0.5) / LEVELS)

    def surplus(spread: float) -> float:
        centre = brentq(lambda x: expit(x + spread * normal).mean() - agreement, -60.0, 60.0)
        return float(np.var(expit(centre + spread * normal))) - variance

    return float(brentq(surplus, 0.0, 19.0)) if surplus(19.0) > 0 else 19.0


def tail_of(tape: Recorded, rows: OnPath, agreement: float, concentration: float, spread: float) -> float:
    """Return the tail with which drawn misses are on the next ranks as often as recorded ones."""
    from scipy.optimize import brentq

    ranks = min(NEXT_RANKS, tape.width - 1)
    missed = tape.rank[rows.row][~rows.right]
    if not ranks or not len(missed):
        return 0.5
    wanted = float((missed <= ranks).mean())

    def surplus(tail: float) -> float:
        curve = Curve(agreement, concentration, spread, tail)
        drawn = draw_tape(Acceptance({"x": curve}, 1 + ranks, 4), ["x"], np.zeros(1, np.int64), np.arange(1), 0)
        wrong = drawn.rank[drawn.rank > 0]
        return float((wrong <= ranks).mean()) - wanted

    low, high = surplus(LEAST), surplus(MOST)
    if low * high >= 0:
        return LEAST if low > 0 else MOST
    return float(brentq(surplus, LEAST, MOST, xtol=1e-3))
