"""The rows of one recorded text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from specsim.acceptance.recorded import ON_PATH
from specsim.core.request import Floats, Ints

MOST_WRONG = 3
"""The wrong tokens that are tried in place of the target's: those of ranks 1 to this."""


class TapeRows(NamedTuple):
    """Rows of one text, sorted by (path, position); columns as in `profiler.acceptance.tape_file.Recorded`.

    Attributes
    ----------
    position, path, rank, match : (n,); `match` is the length of a lookup's match, 0 for a model.
    confidence, target_probability : (n, K). overlap : (n,).
    """

    position: Ints
    path: Ints
    confidence: Floats
    rank: Ints
    target_probability: Floats
    overlap: Floats
    match: Ints


def joined(parts: Sequence[TapeRows]) -> TapeRows:
    """Return the rows of all parts, one after the other."""
    return TapeRows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def off_path(position: Ints, path: Ints, confidence: Floats, match: Ints | None = None) -> TapeRows:
    """Return rows behind a wrong token, where no proposal is right and the target has no probabilities."""
    count, proposals = confidence.shape
    return TapeRows(
        position,
        path,
        confidence,
        np.full(count, proposals),
        np.zeros((count, proposals)),
        np.full(count, np.nan),
        np.zeros(count, dtype=np.int64) if match is None else match,
    )


def on_path(confidence: Floats, rank: Ints, truth: Floats, overlap: Floats, match: Ints | None = None) -> TapeRows:
    """Return the rows of a text's positions 0, 1, ..."""
    count = len(rank)
    none = np.zeros(count, dtype=np.int64)
    return TapeRows(
        np.arange(count),
        np.full(count, ON_PATH),
        confidence,
        rank,
        truth,
        overlap,
        none if match is None else match,
    )
