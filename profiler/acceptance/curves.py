"""What a recording says of its drafter: pure functions from rows to a few numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from profiler.acceptance.tape_file import Recorded
from specsim.errors import SpecsimError, nearest
from specsim.replica.request import Bools, Floats, Ints

BINS = 10
FEWEST_TOKENS = 16
"""Texts of fewer have no share right of their own."""


class OnPath(NamedTuple):
    """One category's rows on the target's own text, text after text.

    Attributes
    ----------
    row : (n,) rows of the recording. text : (n,) which text, from 0. position : (n,).
    confidence : (n,) of the first proposal, right : (n,) whether it is the target's token.
    proposed : (n,) whether there is one: a lookup finds nothing at some positions, which are not right.
    """

    row: Ints
    text: Ints
    position: Ints
    confidence: Floats
    right: Bools
    proposed: Bools


class ByConfidence(NamedTuple):
    """Acceptance against confidence, (BINS,) each: rows, mean confidence and share right; NaN in empty bins."""

    rows: Ints
    confidence: Floats
    accepted: Floats


def on_path(tape: Recorded, category: str) -> OnPath:
    """Return one category's rows on the path.

    Raises
    ------
    SpecsimError
        When the category was not recorded.
    """
    if category not in tape.categories:
        raise SpecsimError(f"category {category!r} was not recorded{nearest(category, tape.categories)}")
    row = np.flatnonzero(tape.on_path & (tape.category == tape.categories.index(category)))
    _, text = np.unique(tape.sequence[row], return_inverse=True)
    confidence = tape.confidence[row, 0]
    # Where a lookup found nothing both are zero; a match of a length that was never right has no confidence alone.
    proposed = (confidence > 0) | (tape.target_probability[row, 0] > 0)
    return OnPath(row, text, tape.position[row], confidence, tape.rank[row] == 0, proposed)


def by_confidence(confidence: Floats, right: Bools) -> ByConfidence:
    """Return acceptance in ten equal bins of confidence (SpecServe Fig. 7)."""
    which = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    rows = np.bincount(which, minlength=BINS)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(which, weights=confidence, minlength=BINS) / rows
        accepted = np.bincount(which, weights=right, minlength=BINS) / rows
    return ByConfidence(rows, mean, accepted)


def calibration_error(bins: ByConfidence) -> float:
    """Return the mean over bins, weighted by rows, of |mean confidence - acceptance| (Guo et al. 2017, Eq. 3)."""
    gap = np.abs(bins.confidence - bins.accepted)
    return float(np.nansum(bins.rows * gap) / bins.rows.sum())


def at_depth(rows: OnPath, depth: int) -> Bools:
    """Return which rows a chain reaches as its `depth`-th token from some start: the `depth` - 1 before are right.

    Depth 1 is every row; a chain starts anywhere in a text.
    """
    return np.greater_equal(run_before(rows), depth - 1)


def run_before(rows: OnPath) -> Ints:
    """Return how many right tokens stand right before each row in its text, (n,)."""
    index = np.arange(len(rows.right))
    begins = np.flatnonzero(np.diff(rows.text, prepend=-1))
    wrong = np.where(rows.right, 0, index + 1)
    last = np.maximum(np.concatenate(([0], np.maximum.accumulate(wrong)[:-1])), begins[rows.text])
    return np.asarray(index - last)


def runs(rows: OnPath) -> Ints:
    """Return the length of every run of right tokens that a wrong one ends, zeros included, (wrong tokens,)."""
    return run_before(rows)[~rows.right]


def request_rates(rows: OnPath, least: int = FEWEST_TOKENS) -> Floats:
    """Return the share right in each text of at least `least` tokens, (texts,)."""
    tokens = np.bincount(rows.text)
    rate: Floats = (np.bincount(rows.text, weights=rows.right) / tokens)[tokens >= least]
    return rate


class Settling(NamedTuple):
    """How fast a text's share right settles (LAPS-SD Fig. 3).

    Attributes
    ----------
    texts : how many go on for at least `least` tokens, twice the last mark; shorter ones are left out.
    distance : (marks,) |share right after so many tokens - the text's share in all|, the mean over those texts, NaN
        where there is none.
    """

    texts: int
    least: int
    distance: Floats


def settling(rows: OnPath, marks: Ints) -> Settling:
    """Return how far texts' shares right after `marks` tokens lie from their shares in all."""
    least, distances = 2 * int(marks[-1]), []
    for text in range(int(rows.text.max()) + 1):
        right = rows.right[rows.text == text]
        if len(right) >= least:
            rate = np.cumsum(right)[marks - 1] / marks
            distances.append(np.abs(rate - right.mean()))
    distance = np.mean(distances, axis=0) if distances else np.full(len(marks), np.nan)
    return Settling(len(distances), least, distance)


def running_rates(rows: OnPath, text: int, step: int = 10) -> tuple[Ints, Floats]:
    """Return the share right so far, noted whenever `step` more tokens were accepted, and where (LAPS-SD Fig. 3)."""
    accepted = np.cumsum(rows.right[rows.text == text])
    at = np.searchsorted(accepted, np.arange(step, accepted[-1] + 1, step))
    return at + 1, accepted[at] / (at + 1)
