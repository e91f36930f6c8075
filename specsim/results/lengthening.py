"""How long runs have to be before they are believed: a search makes those longer that do not say enough."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

from specsim.results.capacity import Asked
from specsim.results.found import Line
from specsim.results.judged import Judged

GROWTH = 2
"""The least factor by which a run gets longer."""


def longer(asked: Asked, line: Line, rate: float) -> int | None:
    """Return how many requests the runs of a line at a rate should have; None if they say enough, or cannot be longer.

    Runs that keep the target say enough when each is long enough to judge and neither overloaded nor near saturation,
    since a longer run would attain less. Runs that miss it do when their mean misses it by more than they are known to.
    """
    requests, runs, shares = line.requests.get(rate), line.judged[rate], line.tested[rate]
    if requests is None or requests >= asked.longest or len(runs) < len(shares):
        return None
    short = [run for run in runs if run.too_short]
    mean = float(np.mean(shares))
    if mean >= asked.target:
        doubtful = bool(short) or any(run.depends_on_length for run in runs)
    else:
        doubtful = bool(short) and mean + _half_width(runs) >= asked.target
    if not doubtful:
        return None
    needed = max((run.needed_requests or 0 for run in short), default=0)
    return min(asked.longest, max(GROWTH * requests, needed))


def _half_width(runs: Sequence[Judged]) -> float:
    """Return half the 95% interval of the mean of runs' attainments; each run is known as well as it says."""
    return sqrt(sum(run.half_width**2 for run in runs)) / len(runs)
