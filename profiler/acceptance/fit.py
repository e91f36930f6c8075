"""Curves fitted to a recording: a `specsim.acceptance.curves.Curve` for each category."""

from __future__ import annotations

import numpy as np

from profiler.acceptance.curves import FEWEST_TOKENS, OnPath, on_path
from profiler.acceptance.tape_file import Recorded
from specsim.acceptance.curves import Acceptance, Curve, draw_tape, level_means
from specsim.core.request import Bools, Floats

LEVELS = 16
LAGS = np.arange(1, 65)
ERRORS = 3
"""Standard errors by which the variance between stretches must exceed 0."""
STRETCH_TOKENS = (2, 4, 8, 16, 32, 64, 128, 256)
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
    - ``stretch_tokens`` and ``stretch_spread`` give the covariance of positions of a text the fall with their distance
      that the recording has, near ones above all.
    - ``concentration`` gives calibrated confidences their remaining variance. Calibrated ones are the recorded ones
      through the best rising curve of acceptance.
    - ``tail`` gives the next ranks their share of the misses.
    """
    rows = on_path(tape, category)
    agreement = float(np.clip(rows.right.mean(), LEAST, MOST))
    most = 0.9 * agreement * (1 - agreement)
    between = min(between_texts(rows), most)
    stretch_tokens, along = stretches_of(rows, between)
    along = min(along, most - between)
    spread = spread_of(agreement, between)
    inner = agreement * (1 - agreement) - between - along
    within = max(float(np.var(calibrated(rows.confidence, rows.right))) - between - along, 1e-6)
    concentration = float(np.clip(inner / within - 1, 0.01, 1e6))
    tail = tail_of(tape, rows, agreement, concentration, spread)
    stretch_spread = spread_of(agreement, along, spread)
    return Curve(agreement, concentration, spread, tail, stretch_tokens if stretch_spread else 0, stretch_spread)


def calibrated(confidence: Floats, right: Bools) -> Floats:
    """Return the rising function of confidence that fits acceptance best (isotonic regression), (n,)."""
    from scipy.optimize import isotonic_regression

    which = np.unique(confidence, return_inverse=True)[1]
    rows = np.bincount(which)
    share = np.bincount(which, weights=right) / rows
    risen: Floats = isotonic_regression(share, weights=rows.astype(np.float64)).x
    return risen[which]


def between_texts(rows: OnPath) -> float:
    """Return the variance between texts of the share right: the covariance of their halves, at least 0."""
    halves = []
    for text in range(int(rows.text.max()) + 1):
        right = rows.right[rows.text == text]
        if len(right) >= FEWEST_TOKENS:
            middle = len(right) // 2
            halves.append((right[:middle].mean(), right[middle:].mean()))
    if len(halves) < 3:
        return 0.0
    return max(float(np.cov(np.array(halves).T)[0, 1]), 0.0)


def stretches_of(rows: OnPath, between: float) -> tuple[int, float]:
    """Return the positions of a stretch and the variance between a text's stretches.

    With stretches of L positions that begin anywhere, the covariance of two positions of a text is the variance
    `between` texts, and that between stretches times 1 - distance / L, down to 0. Both are 0 where chance may be all.
    """
    right = rows.right - rows.right.mean()
    apart = [(right[lag:] * right[:-lag])[rows.text[lag:] == rows.text[:-lag]] for lag in LAGS[len(right) > LAGS]]
    pairs = np.array([len(each) for each in apart])
    lags, pairs = LAGS[: len(apart)][pairs > 0], pairs[pairs > 0]
    covariance = np.array([each.mean() for each in apart if len(each)]) - between
    error = right.var() / np.sqrt(pairs)
    weight = 1 / lags
    best = (np.inf, 0, 0.0)
    for tokens in STRETCH_TOKENS:
        shared = np.maximum(1 - lags / tokens, 0.0)
        of_each = weight * shared / ((weight * shared) @ shared)
        variance = float(of_each @ covariance)
        if variance > ERRORS * np.linalg.norm(of_each * error):
            loss = float(weight @ (covariance - variance * shared) ** 2)
            best = min(best, (loss, tokens, variance))
    return best[1:]


def spread_of(agreement: float, variance: float, around: float = 0.0) -> float:
    """Return the standard deviation in logits with which levels of mean `agreement` have this variance.

    With a spread `around`, the levels are those within each of as many levels with that spread, and the variance is
    the mean one.
    """
    from scipy.optimize import brentq

    if variance < 1e-6:
        return 0.0
    means = level_means(agreement, around, LEVELS)

    def surplus(spread: float) -> float:
        return float(np.mean([np.var(level_means(mean, spread, LEVELS)) for mean in means])) - variance

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
