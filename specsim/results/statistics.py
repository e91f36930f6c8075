"""Means, percentiles and ratios as ``metrics.json`` holds them: None where nothing was measured."""

from __future__ import annotations

import numpy as np

from specsim.replica.request import Floats
from specsim.results.distribution import Sketched

FEW = 1000
"""Values that are sorted sooner than numpy answers."""


def statistics_ms(name: str, values_s: Floats) -> dict[str, float | None]:
    """Return what ``vllm bench serve`` says of values (n,) in seconds, NaN left out, in milliseconds."""
    values_ms = 1000 * values_s[~np.isnan(values_s)]
    return {
        f"mean_{name}_ms": mean_of(values_ms),
        f"median_{name}_ms": percentile(values_ms, 50),
        f"std_{name}_ms": float(np.std(values_ms)) if len(values_ms) else None,
        f"p99_{name}_ms": percentile(values_ms, 99),
    }


def sketched_ms(name: str, values_s: Sketched) -> dict[str, float | None]:
    """Return the same of values that were only counted, since there were too many to keep."""
    return {
        f"mean_{name}_ms": 1000 * values_s.mean,
        f"median_{name}_ms": 1000 * values_s.median,
        f"std_{name}_ms": 1000 * values_s.std,
        f"p99_{name}_ms": 1000 * values_s.p99,
    }


def peak(start_s: Floats, end_s: Floats) -> int:
    """Return the most half-open intervals ``[start, end)`` that overlap at one time."""
    times = np.concatenate([end_s, start_s])
    change = np.repeat([-1, 1], [len(end_s), len(start_s)])
    order = np.argsort(times, kind="stable")
    return int(np.cumsum(change[order]).max(initial=0))


def mean_of(values: Floats) -> float | None:
    """Return the mean of values (n,), NaN left out."""
    values = values[~np.isnan(values)]
    return float(np.mean(values)) if len(values) else None


def percentile(values: Floats, percent: float) -> float | None:
    """Return a percentile of values (n,), NaN left out, as numpy interpolates it."""
    values = values[~np.isnan(values)]
    if not len(values):
        return None
    return _of_few(values, percent / 100) if len(values) <= FEW else float(np.percentile(values, percent))


def _of_few(values: Floats, share: float) -> float:
    """Return a quantile of values (n,), to the last bit that of numpy, which takes twenty times as long to ask."""
    ordered = np.sort(values)
    place = (len(ordered) - 1) * share
    below = int(place)
    beyond, low, high = place - below, float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    return low + (high - low) * beyond if beyond < 0.5 else high - (high - low) * (1 - beyond)


def ratio(part: float, whole: float | None) -> float | None:
    """Return the share; None of nothing."""
    return part / whole if whole else None


def plain(value: float) -> float | None:
    """Return the number; None for NaN."""
    return None if np.isnan(value) else float(value)
