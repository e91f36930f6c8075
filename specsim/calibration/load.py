"""A measured load: how long its requests are, and when they are sent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Load(NamedTuple):
    """`requests` of `isl` prompt tokens and `osl` output tokens each, from `concurrency` clients or at a `rate`.

    A closed loop has clients that each wait for their answer. An open loop has `concurrency` 0 and `rate` requests a
    second in a Poisson process. With a `shortest_share` below 1, each length is drawn evenly between this share of it
    and itself, as the option ``--random-range-ratio`` of InferenceMAX's client draws it.
    """

    isl: int
    osl: int
    concurrency: int
    requests: int
    shortest_share: float = 1.0
    rate: float = 0.0

    def lengths(self) -> tuple[Ints, Ints]:
        """Return the prompt and the output tokens of each request."""
        if self.shortest_share == 1:
            return np.full(self.requests, self.isl), np.full(self.requests, self.osl)
        draw = np.random.default_rng(self[:4])
        isl, osl = (draw.integers(int(self.shortest_share * most), most + 1, self.requests) for most in self[:2])
        return isl, np.maximum(osl, 2)

    def arrival_s(self) -> Floats:
        """Return when each request of an open loop is sent; the last at `requests` / `rate`, as vLLM's client does."""
        ends = np.cumsum(np.random.default_rng([*self[:4], 1]).exponential(size=self.requests))
        scaled: Floats = ends * (self.requests / self.rate / ends[-1])
        return scaled

    @property
    def sent(self) -> str:
        """Who sends how much: the clients or the rate."""
        return f"rate {self.rate:g}" if self.rate else f"concurrency {self.concurrency}"
