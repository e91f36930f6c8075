"""The passes of an engine whose clients each wait for their answer; how long a pass takes does not change them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from specsim.latency.model import ModelLatency
from specsim.pass_shape import PassShapes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Load(NamedTuple):
    """`concurrency` clients; every request has `isl` prompt tokens and `osl` output tokens."""

    isl: int
    osl: int
    concurrency: int


@dataclass(frozen=True, slots=True)
class Loop:
    """The passes of a closed loop, and of each request the pass before which it came, of its first and last token."""

    shapes: PassShapes
    arrived: Ints
    first: Ints
    last: Ints

    def latencies(self, model: ModelLatency, osl: int) -> tuple[float, float]:
        """Return the mean seconds to the first token and per output token after it."""
        ends = np.concatenate([[0.0], np.cumsum(model.seconds_array(self.shapes))])
        ttft_s = ends[self.first + 1] - ends[self.arrived]
        tpot_s = (ends[self.last + 1] - ends[self.first + 1]) / (osl - 1)
        return float(ttft_s.mean()), float(tpot_s.mean())


@dataclass(slots=True)
class _Engine:
    """Continuous batching with chunked prefill: decodes first, then prompts in order of arrival, up to a budget."""

    load: Load
    budget_tokens: int
    waiting: deque[int]
    ending: deque[tuple[int, int]]
    fed: int = 0
    cached: int = 0

    def step(self, now: int, first: Ints) -> tuple[tuple[float, ...], list[int]]:
        """Run pass `now`: return its counts (context, batched, pairs, logits) and the requests that end with it."""
        isl, osl, _ = self.load
        decodes = len(self.ending)
        context, pairs, logits = float(self.cached), float(self.cached + decodes), decodes
        self.cached += decodes
        left = self.budget_tokens - decodes
        while self.waiting and left > 0:
            chunk = min(left, isl - self.fed)
            context += self.fed
            pairs += chunk * self.fed + chunk * (chunk + 1) / 2
            left, self.fed, logits = left - chunk, self.fed + chunk, logits + 1
            if self.fed == isl:
                request, self.fed = self.waiting.popleft(), 0
                first[request] = now
                self.ending.append((now + osl - 1, request))
                self.cached += isl
        ended = []
        while self.ending and self.ending[0][0] == now:
            ended.append(self.ending.popleft()[1])
            self.cached -= isl + osl - 1
        return (context, float(self.budget_tokens - left), pairs, float(logits)), ended


def closed_loop(load: Load, rounds: int, budget_tokens: int) -> Loop:
    """Return the passes in which each client's `rounds` requests are served, all clients starting at once."""
    total = load.concurrency * rounds
    arrived, first, last = (np.zeros(total, np.int64) for _ in range(3))
    engine = _Engine(load, budget_tokens, deque(range(load.concurrency)), deque())
    counts: list[tuple[float, ...]] = []
    sent = load.concurrency
    while engine.waiting or engine.ending:
        now = len(counts)
        count, ended = engine.step(now, first)
        counts.append(count)
        for request in ended:
            last[request] = now
            if sent < total:
                arrived[sent] = now + 1
                engine.waiting.append(sent)
                sent += 1
    context, batched, pairs, logits = np.array(counts).T
    # Each request in a pass has logits once.
    return Loop(PassShapes(context, batched, pairs, logits, logits, 0), arrived, first, last)
