"""Whether a run was offered more than it could serve."""

from __future__ import annotations

from typing import Any

import numpy as np

from specsim.metrics.schema import FloatArray

MOST_MAKESPAN_RATIO = 1.1


def load(arrival_s: FloatArray, finish_s: FloatArray) -> dict[str, Any]:
    """Return `makespan_ratio`, last finish over last arrival, and whether it tells of overload; None if undefined.

    Parameters
    ----------
    arrival_s, finish_s : (N,) seconds; a rejected request finishes at NaN.
    """
    span_s = float(arrival_s.max() - arrival_s.min())
    makespan_s = np.fmax.reduce(finish_s, initial=np.nan) - arrival_s.min()
    ratio = None if span_s == 0 or np.isnan(makespan_s) else float(makespan_s / span_s)
    return {"makespan_ratio": ratio, "overloaded": ratio is not None and ratio > MOST_MAKESPAN_RATIO}
