"""What the seed of a run draws anew, and what stays as it was recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from specsim.workload.load import load_trace

DRAWN = ("arrivals", "lengths", "classes", "acceptance")


def varies_with_seed(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which of `DRAWN` change with the seed of a composed configuration, in that order.

    A recorded trace keeps its arrivals and lengths under every seed, unless ``trace.resample`` draws it anew.
    ``acceptance`` is named whether or not the scheduler drafts. A user's file is asked whether it names classes; one
    that is gone by now is taken to name none.
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
    if slo.get("classes_from") == "trace" or not slo.get("classes"):
        return True
    if slo.get("redraw_classes"):
        return False
    if trace["kind"] == "file":
        file = Path(trace["path"]).expanduser()
        return file.exists() and _names_classes(json.dumps(trace), file.stat().st_mtime_ns)
    return bool(trace["kind"] == "adaserve")


@lru_cache(maxsize=8)
def _names_classes(trace: str, changed_ns: int) -> bool:
    """Return whether a user's trace, its entry as JSON, names the class of each request; read again once changed."""
    return load_trace(json.loads(trace), seed=0).slo_class is not None


def _drawn(lengths: Mapping[str, Any]) -> bool:
    """Return whether a distribution of lengths holds more than one value."""
    low, high = lengths["low"], lengths["high"]
    return bool(lengths["distribution"] != "fixed" and (low is None or low != high))
