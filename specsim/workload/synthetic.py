"""Traces drawn at random: Poisson, gamma and on-off arrivals with drawn lengths.

Every process is drawn at a rate of 1 and divided by ``rps`` at the end, so that a rate only rescales time. Every
column has a generator of its own, read in order of rows, so that a longer trace begins with the shorter one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from specsim.errors import SpecsimError
from specsim.files.checked_mapping import CheckedMapping
from specsim.rng import stream_keys, uniforms
from specsim.workload import entry as keys
from specsim.workload.entry import Lengths
from specsim.workload.trace import Floats, Ints, Trace, TraceSource, check_span


@dataclass(frozen=True, slots=True)
class DrawnTrace:
    """A trace of ``kind: synthetic``, by its checked keys."""

    node: CheckedMapping

    @property
    def drawn(self) -> tuple[str, ...]:
        """Arrivals; and lengths, unless both are fixed."""
        drawn = (keys.lengths(self.node, name) for name in ("prompt_tokens", "output_tokens"))
        varied = any(each.distribution != "fixed" and (each.low is None or each.low != each.high) for each in drawn)
        return ("arrivals", "lengths") if varied else ("arrivals",)

    def read(self, seed: int, requests: int | None) -> Trace:
        """Return the first `requests`; by default ``trace.n``."""
        node = self.node
        n = node.whole("n") if requests is None else requests
        if n < 1:
            raise SpecsimError(f"requests={n}: expected a whole number, at least 1")
        rps = node.number("rps", above=0)
        # One random stream per column: a column must not change when another draws more numbers.
        arrival, prompt, output = (
            np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(column,))) for column in range(3)
        )
        process = node.values["process"]
        if process == "poisson":
            arrival_s = poisson(rps, n, arrival)
        elif process == "gamma":
            arrival_s = gamma(rps, n, arrival, cv=node.number("cv", above=0.01, most=100))
        else:
            on_share = node.number("on_share", above=0, below=1)
            ratio = node.number("off_rate_ratio", most=1)
            arrival_s = on_off(rps, n, arrival, node.number("burst_requests", above=0.1), on_share, ratio)
        check_span(float(arrival_s[-1]), f"trace.rps={rps:g}")
        return Trace(
            arrival_s,
            lengths(keys.lengths(node, "prompt_tokens"), n, prompt),
            lengths(keys.lengths(node, "output_tokens"), n, output),
            np.arange(n, dtype=np.int64),
            TraceSource(node.text("name"), "synthetic"),
        )


def poisson(rps: float, n: int, rng: np.random.Generator) -> Floats:
    """Return ``n`` Poisson arrivals (n,) in seconds at a mean rate ``rps``, the first at 0."""
    return _from_gaps(rng.standard_exponential(n), rps)


def gamma(rps: float, n: int, rng: np.random.Generator, *, cv: float) -> Floats:
    """Return ``n`` arrivals (n,) whose gaps are gamma with coefficient of variation ``cv``; 1 is Poisson."""
    shape = 1 / cv**2
    return _from_gaps(rng.standard_gamma(shape, n) / shape, rps)


def on_off(
    rps: float,
    n: int,
    rng: np.random.Generator,
    burst_requests: float,
    on_share: float,
    off_rate_ratio: float,
) -> Floats:
    """Return ``n`` arrivals (n,) of a two-state Markov-modulated Poisson process, the first at 0.

    ``burst_requests`` is the mean number of requests of an on-period, ``on_share`` the share of time in on-periods, and
    ``off_rate_ratio`` the off-rate over the on-rate (0: silence between bursts). Periods are exponential, and the
    process starts in its steady state. Bursts are given in requests, since a burst in seconds would change with the
    rate.
    """
    work_rng, state_rng = rng.spawn(2)
    on_rate = 1 / (on_share + (1 - on_share) * off_rate_ratio)
    rates = np.array([on_rate, on_rate * off_rate_ratio])
    periods = burst_requests / on_rate * np.array([1.0, (1 - on_share) / on_share])
    work = np.cumsum(work_rng.standard_exponential(n))
    start = 0 if state_rng.random() < on_share else 1
    clock, done = [np.zeros(1)], [np.zeros(1)]
    while done[-1][-1] < work[-1]:
        # Chunks are even, so that each begins in the state of the trace's beginning.
        state = (start + np.arange(256)) % 2
        period = state_rng.standard_exponential(256) * periods[state]
        clock.append(clock[-1][-1] + np.cumsum(period))
        done.append(done[-1][-1] + np.cumsum(period * rates[state]))
    arrival = np.interp(work, np.concatenate(done), np.concatenate(clock))
    return np.asarray((arrival - arrival[0]) / rps, np.float64)


def lengths(spec: Lengths, n: int, rng: np.random.Generator) -> Ints:
    """Return ``n`` token counts (n,) of the distribution, each at least 1."""
    low, high = spec.low or 1, spec.high or np.iinfo(np.int64).max
    if spec.distribution == "fixed":
        return np.full(n, round(spec.mean or 0), np.int64)
    if spec.distribution == "uniform":
        return np.asarray(rng.integers(low, high, n, endpoint=True), np.int64)
    assert spec.mean is not None
    assert spec.cv is not None
    variance = np.log1p(spec.cv**2)
    drawn = np.exp(np.log(spec.mean) - variance / 2 + np.sqrt(variance) * rng.standard_normal(n))
    return np.asarray(np.clip(np.rint(drawn), low, high), np.int64)


def _from_gaps(gaps: Floats, rps: float) -> Floats:
    gaps[0] = 0.0
    return np.asarray(np.cumsum(gaps) / rps, np.float64)


def ended_early(trace: Trace, mean_tokens: Mapping[str, float], seed: int) -> Trace:
    """Return the trace with outputs drawn anew: a constant hazard, cut at the length that the trace gives.

    Parameters
    ----------
    mean_tokens : after the cut, by class; an output of another class stays as it is.
    """
    assert trace.slo_class is not None
    output = trace.output_tokens.copy()
    log_uniform = np.log1p(-uniforms(stream_keys(seed, "output ends", trace.row)))
    for code, name in enumerate(trace.slo_names):
        if name not in mean_tokens:
            continue
        for cap in np.unique(output[trace.slo_class == code]).tolist():
            mine = (trace.slo_class == code) & (trace.output_tokens == cap)
            hazard = hazard_of(mean_tokens[name], cap)
            if hazard:
                drawn = 1 + np.floor(log_uniform[mine] / np.log1p(-hazard)) if hazard < 1 else np.ones(mine.sum())
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
