"""Queues whose load is known because it is chosen: arrivals, finishes and services in seconds, one server or many."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from specsim.workload.synthetic import on_off

Floats = npt.NDArray[np.float64]


class Queue(NamedTuple):
    """Customers in order of arrival, (N,) seconds each."""

    arrival_s: Floats
    finish_s: Floats
    service_s: Floats


def queue(load: float, n: int, seed: int, *, servers: int = 1, cv: float = 0.0, bursts: bool = False) -> Queue:
    """Return a queue served first come, first served, whose services last 1 s in the mean.

    Parameters
    ----------
    load : arrivals over what the servers can do. cv : of log-normal services; 0: all alike.
    bursts : of 40 customers, on for a fifth of the time; else Poisson.
    """
    rng = np.random.default_rng([seed, n])
    rate_per_s = load * servers
    if bursts:
        arrival_s = on_off(rate_per_s, n, rng, burst_requests=40, on_share=0.2, off_rate_ratio=0.1)
    else:
        arrival_s = np.cumsum(rng.exponential(1 / rate_per_s, n))
        arrival_s -= arrival_s[0]
    spread = np.log1p(cv**2)
    service_s = np.exp(np.sqrt(spread) * rng.standard_normal(n) - spread / 2)
    return Queue(arrival_s, served(arrival_s, service_s, servers), service_s)


def served(arrival_s: Floats, service_s: Floats, servers: int = 1) -> Floats:
    """Return when each customer ends, (N,)."""
    free_s, finish_s = [0.0] * servers, []
    for arrived_s, takes_s in zip(arrival_s.tolist(), service_s.tolist(), strict=True):
        finish_s.append(max(arrived_s, free_s[0]) + takes_s)
        heapq.heapreplace(free_s, finish_s[-1])
    return np.array(finish_s)
