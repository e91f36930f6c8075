"""How long runs have to be before they are believed: a search makes those longer that do not say enough."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from specsim.results.capacity import Asked
from specsim.results.found import Line
from specsim.results.verdicts import depends_on_length

GROWTH = 2
"""The least factor by which a run gets longer."""


def longer(asked: Asked, line: Line, rate: float) -> int | None:
    """Return how many requests the runs of a line at a rate should have; None if they say enough, or cannot be longer.

    Runs that keep the target say enough when each is long enough to judge and neither overloaded nor near saturation,
    since a longer run would attain less. Runs that miss it do when their mean misses it by more than they are known to.
    That is told of the attainment of all requests; a class's is known less well.
    """
    requests, loads, shares = line.requests.get(rate), line.load[rate], line.tested[rate]
    if requests is None or requests >= asked.longest or len(loads) < len(shares):
        return None
    short = [load for load in loads if load["too_short"]]
    mean = float(np.mean(shares))
    if mean >= asked.target:
        doubtful = bool(short) or any(map(depends_on_length, loads))
    else:
        doubtful = bool(short) and mean + _half_width(loads) >= asked.target
    if not doubtful:
        return None
    needed = max((load["needed_requests"] or 0 for load in short), default=0)
    return min(asked.longest, max(GROWTH * requests, needed))


def _half_width(loads: list[Any]) -> float:
    """Return half the 95% interval of the mean of runs' attainments; each run is known as well as it says."""
    halves = [load["attainment_half_width"] or 1.0 for load in loads]
    return sqrt(sum(half**2 for half in halves)) / len(halves)
