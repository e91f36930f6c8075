"""What was measured, and the same loads simulated on an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from specsim.calibration.load import Load
from specsim.calibration.loop import Cost, Door, Loop, served
from specsim.latency.engine import Engine
from specsim.latency.model import MEMORY_SHARE, Profile

REQUESTS_OF_A_CLIENT = 10
REQUESTS_AT_A_RATE = 1000
"""Where the points do not say how many requests were sent; at a rate, as vLLM's client defaults to."""
BUDGET_TOKENS = 8192
"""Batched tokens of a pass at most: what `vllm serve` (max_num_batched_tokens) defaults to on GPUs of 80 GB."""


class Point(NamedTuple):
    """A load and the mean seconds to the first token and per output token after it."""

    load: Load
    ttft_s: float
    tpot_s: float

    @property
    def e2e_s(self) -> float:
        """Mean seconds of a request."""
        return self.ttft_s + (self.load.osl - 1) * self.tpot_s

    @property
    def in_flight(self) -> float:
        """Requests in the server at a time, on average: the clients, or by Little's law."""
        return self.load.rate * self.e2e_s if self.load.rate else self.load.concurrency


class Held(NamedTuple):
    """A point, and the same as it was simulated."""

    measured: Point
    simulated: Point

    @property
    def ttft_error(self) -> float:
        """(simulated - measured) / measured."""
        return self.simulated.ttft_s / self.measured.ttft_s - 1

    @property
    def tpot_error(self) -> float:
        """(simulated - measured) / measured."""
        return self.simulated.tpot_s / self.measured.tpot_s - 1

    @property
    def e2e_error(self) -> float:
        """(simulated - measured) / measured."""
        return self.simulated.e2e_s / self.measured.e2e_s - 1


@dataclass(frozen=True, slots=True)
class Server:
    """Where points were measured: a profile whose target serves alone, and the batched tokens of a pass at most.

    `on_load` is called before a load is simulated, to show progress.
    """

    profile: Profile
    budget_tokens: int = BUDGET_TOKENS
    on_load: Callable[[], object] = int

    @property
    def cache_tokens(self) -> float:
        """Tokens that fit beside the target's weights alone: a server without speculation has no draft model."""
        target = self.profile.target
        return (MEMORY_SHARE * self.profile.memory_bytes - target.weights_bytes) / target.kv_bytes_per_token

    def fits(self, load: Load, engine: Engine) -> bool:
        """Return whether all caches fit at any time: beyond, engines queue and preempt by rules of their own."""
        if load.rate:
            return float(self._loop(load, engine).shapes.context_tokens.max()) + load.isl <= self.cache_tokens
        return load.concurrency * (load.isl + load.osl) <= self.cache_tokens

    def simulated(self, points: Sequence[Point], engine: Engine) -> list[Held]:
        """Return the points beside their simulation on an engine."""
        target = engine.running(self.profile).target
        again = [Point(each.load, *self._loop(each.load, engine).latencies(target)) for each in points]
        return [Held(*both) for both in zip(points, again, strict=True)]

    def costs(self, load: Load, engine: Engine) -> tuple[Cost, Cost]:
        """Return TTFT and TPOT as the host's seconds change them, in the passes that an engine runs."""
        bare = replace(engine, overhead_s=0.0, request_s=0.0)
        return self._loop(load, engine).costs(bare.running(self.profile).target)

    def _loop(self, load: Load, engine: Engine) -> Loop:
        self.on_load()
        if not engine.frontend_s and not load.rate:
            return _loop(load, self.budget_tokens, engine.pipeline_steps)
        door = Door(engine.pipeline_steps, engine.frontend_s, engine.running(self.profile).target)
        return served(load, self.budget_tokens, door)


@lru_cache(maxsize=512)
def _loop(load: Load, budget_tokens: int, pipeline_steps: int) -> Loop:
    """Return the passes of a closed loop without a frontend, which do not depend on their seconds."""
    return served(load, budget_tokens, Door(pipeline_steps))
