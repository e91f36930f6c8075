"""Statistics of a trace: burstiness of arrivals, quantiles of lengths, dispersion of prefill work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from specsim.workload.trace import Floats, Ints, Trace

QUANTILES = (0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class TraceShape:
    """Statistics of a trace; bins start at the first arrival, variances are those of the population.

    Attributes
    ----------
    requests : count
    interarrival_cv : standard deviation / mean of the gaps between arrivals
    gap_quantiles_s : at ``QUANTILES``, seconds
    fano_100ms, fano_1s, fano_10s : variance / mean of the counts per bin
    prompt_quantiles, output_quantiles : at ``QUANTILES``, tokens
    prompt_mean, output_mean : tokens
    prefill_dispersion_10s : variance / mean of the prompt tokens per 10 s, tokens
    prefill_cv_10s : standard deviation / mean of the prompt tokens per 10 s
    decode_dispersion_10s : variance / mean of the output tokens of the requests that arrive per 10 s, tokens
    prompt_output_rank_correlation : Spearman's, of prompt and output lengths
    prompt_rank_lag1, output_rank_lag1 : rank correlation of neighbours in order of arrival
    """

    requests: int
    interarrival_cv: float
    gap_quantiles_s: tuple[float, ...]
    fano_100ms: float
    fano_1s: float
    fano_10s: float
    prompt_quantiles: tuple[float, ...]
    output_quantiles: tuple[float, ...]
    prompt_mean: float
    output_mean: float
    prefill_dispersion_10s: float
    prefill_cv_10s: float
    decode_dispersion_10s: float
    prompt_output_rank_correlation: float
    prompt_rank_lag1: float
    output_rank_lag1: float


def describe(trace: Trace) -> TraceShape:
    """Return the statistics of a trace of at least three requests."""
    gaps_s = np.diff(trace.arrival_s)
    work = per_bin(trace.arrival_s, 10, trace.prompt_tokens)
    decode = per_bin(trace.arrival_s, 10, trace.output_tokens)
    prompt, output = rankdata(trace.prompt_tokens), rankdata(trace.output_tokens)
    return TraceShape(
        requests=len(trace),
        interarrival_cv=float(gaps_s.std() / gaps_s.mean()),
        gap_quantiles_s=_quantiles(gaps_s),
        fano_100ms=fano(trace.arrival_s, 0.1),
        fano_1s=fano(trace.arrival_s, 1),
        fano_10s=fano(trace.arrival_s, 10),
        prompt_quantiles=_quantiles(trace.prompt_tokens),
        output_quantiles=_quantiles(trace.output_tokens),
        prompt_mean=float(trace.prompt_tokens.mean()),
        output_mean=float(trace.output_tokens.mean()),
        prefill_dispersion_10s=float(work.var() / work.mean()),
        prefill_cv_10s=float(work.std() / work.mean()),
        decode_dispersion_10s=float(decode.var() / decode.mean()),
        prompt_output_rank_correlation=_correlation(prompt, output),
        prompt_rank_lag1=_correlation(prompt[:-1], prompt[1:]),
        output_rank_lag1=_correlation(output[:-1], output[1:]),
    )


def per_bin(arrival_s: Floats, width_s: float, weights: Ints | None = None) -> Floats:
    """Return the requests (or summed weights) per bin of ``width_s``, from time 0 to the last arrival."""
    return np.bincount((arrival_s / width_s).astype(np.int64), weights=weights).astype(np.float64)


def fano(arrival_s: Floats, width_s: float) -> float:
    """Return variance / mean of the counts per bin: 1 for Poisson arrivals, more for bursts."""
    counts = per_bin(arrival_s, width_s)
    return float(counts.var() / counts.mean())


def _quantiles(values: Ints | Floats) -> tuple[float, ...]:
    return tuple(float(value) for value in np.quantile(values, QUANTILES))


def _correlation(a: Floats, b: Floats) -> float:
    if a.std() == 0 or b.std() == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])
