"""Outputs that end before a cap: at each token with the same chance, which a mean length tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from specsim.rng import stream_keys, uniforms
from specsim.workload.trace import Trace


def ended_early(trace: Trace, mean_tokens: Mapping[str, float], seed: int) -> Trace:
    """Return the trace with outputs drawn anew: a constant hazard, cut at the length that the trace gives.

    Parameters
    ----------
    mean_tokens : after the cut, by class; an output of another class stays as it is.
    """
    assert trace.slo_class is not None
    output = trace.output_tokens.copy()
    luck = np.log1p(-uniforms(stream_keys(seed, "output ends", trace.row)))
    for code, name in enumerate(trace.slo_names):
        if name not in mean_tokens:
            continue
        for cap in np.unique(output[trace.slo_class == code]).tolist():
            mine = (trace.slo_class == code) & (trace.output_tokens == cap)
            hazard = hazard_of(mean_tokens[name], cap)
            if hazard:
                drawn = 1 + np.floor(luck[mine] / np.log1p(-hazard)) if hazard < 1 else np.ones(mine.sum())
                output[mine] = np.minimum(drawn, cap).astype(np.int64)
    return replace(trace, output_tokens=output)


@lru_cache(maxsize=64)
def hazard_of(mean_tokens: float, cap: int) -> float:
    """Return the chance to end at each token with which outputs cut at `cap` have this mean; 0 if none is so long."""
    from scipy.optimize import brentq

    if mean_tokens >= cap:
        return 0.0
    if mean_tokens <= 1:
        return 1.0
    return float(brentq(lambda hazard: -np.expm1(cap * np.log1p(-hazard)) / hazard - mean_tokens, 1e-12, 1 - 1e-12))
