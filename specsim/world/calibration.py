"""How well a tape's confidences match its acceptance; every run reports it."""

from __future__ import annotations

import numpy as np

from specsim.replica.request import Ints
from specsim.world.tape import Pools, Tape, known_of

BINS = 10
MOST_KEPT = 100
"""Classes of a pool whose figures are kept."""


def calibration(tape: Tape, slo_class: Ints, names: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Return for each class's on-path pools the top-1 agreement, mean confidence and expected calibration error.

    The expected calibration error is the distance between mean confidence and acceptance, averaged over ten equal
    bins of confidence with their rows as weights (Guo et al. 2017, Eq. 3).
    """
    members = ((name, np.flatnonzero(slo_class == code)) for code, name in enumerate(names))
    return {name: _of_class(tape, requests) for name, requests in members if len(requests)}


def _of_class(tape: Tape, requests: Ints) -> dict[str, float]:
    """Return the figures of a class; those of pools that nobody writes are counted once for all tapes of them."""
    if not isinstance(tape.layout, Pools) or tape.rank.flags.writeable:
        return _of_rows(tape, tape.text_rows(requests))
    known = known_of(tape.confidence).setdefault("calibration", {})
    pools = tape.layout.pool_rows, np.unique(tape.layout.start[requests]).tobytes()
    rank, found = known.get(pools, (None, {}))
    if rank is not tape.rank:
        if len(known) >= MOST_KEPT:
            known.clear()
        found = _of_rows(tape, tape.text_rows(requests))
        known[pools] = tape.rank, found
    return dict(found)


def _of_rows(tape: Tape, rows: Ints) -> dict[str, float]:
    confidence, right = tape.confidence[rows, 0], tape.rank[rows] == 0
    which = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    gap = np.bincount(which, weights=confidence - right, minlength=BINS)
    return {
        "top1_agreement": float(right.mean()),
        "mean_confidence": float(confidence.mean()),
        "calibration_error": float(np.abs(gap).sum() / len(rows)),
    }
