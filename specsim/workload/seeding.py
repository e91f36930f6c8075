"""What the seed of a run draws anew, and what stays as it was recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specsim.workload.load import load_trace

DRAWN = ("arrivals", "lengths", "classes", "acceptance")


def varies_with_seed(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which of `DRAWN` change with the seed of a composed configuration, in that order.

    A recorded trace keeps its arrivals and lengths under every seed, unless ``trace.resample`` draws it anew.
    ``acceptance`` is named whether or not the scheduler drafts.

    Raises
    ------
    SpecsimError
        When the user's own trace, asked whether it names classes, cannot be read.
    """
    trace, resampled = config["trace"], config["trace"].get("resample") is not None
    synthetic = trace["kind"] == "synthetic"
    varies = {
        "arrivals": synthetic or resampled,
        "lengths": resampled or (synthetic and any(_drawn(trace[each]) for each in ("prompt_tokens", "output_tokens"))),
        "classes": resampled if _classes_stay(trace, config["slo"]) else len(config["slo"]["classes"]) > 1,
        "acceptance": True,
    }
    return tuple(each for each in DRAWN if varies[each])


def _classes_stay(trace: Mapping[str, Any], slo: Mapping[str, Any]) -> bool:
    """Return whether the classes are those that the trace names: they move with their requests alone."""
    if slo.get("classes_from") == "trace":
        return True
    if slo.get("redraw_classes"):
        return False
    if trace["kind"] == "file":
        return load_trace(trace, seed=0).slo_class is not None
    return bool(trace["kind"] == "adaserve")


def _drawn(lengths: Mapping[str, Any]) -> bool:
    """Return whether a distribution of lengths holds more than one value."""
    low, high = lengths["low"], lengths["high"]
    return bool(lengths["distribution"] != "fixed" and (low is None or low != high))
