"""What the seed of a run draws anew, and what stays as it was recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DRAWN = ("arrivals", "lengths", "classes", "acceptance")


def varies_with_seed(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which of `DRAWN` change with the seed of a composed configuration, in that order.

    A recorded trace keeps its arrivals and lengths under every seed, unless ``trace.resample`` draws it anew.
    ``acceptance`` is named whether or not the scheduler drafts.
    """
    trace, resampled = config["trace"], config["trace"].get("resample") is not None
    synthetic = trace["kind"] == "synthetic"
    classes = config["slo"].get("classes")
    varies = {
        "arrivals": synthetic or resampled,
        "lengths": resampled or (synthetic and any(_drawn(trace[each]) for each in ("prompt_tokens", "output_tokens"))),
        # Without classes of its own a mix takes the trace's, which resampling moves with their requests.
        "classes": len(classes) > 1 if classes else resampled,
        "acceptance": True,
    }
    return tuple(each for each in DRAWN if varies[each])


def _drawn(lengths: Mapping[str, Any]) -> bool:
    """Return whether a distribution of lengths holds more than one value."""
    low, high = lengths["low"], lengths["high"]
    return bool(lengths["distribution"] != "fixed" and (low is None or low != high))
