"""The span of arrivals that the metrics of a run count (`metrics.window`)."""

from __future__ import annotations

from typing import TypeAlias

from specsim.replica.request import Bools, Floats

Window: TypeAlias = tuple[float, float]
"""First and last second of arrival, both included."""


def counts(window: Window, arrival_s: Floats) -> Bools:
    """Return which requests arrive within the window, (N,)."""
    inside: Bools = (arrival_s >= window[0]) & (arrival_s <= window[1])
    return inside
