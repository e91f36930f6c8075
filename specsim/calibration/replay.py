"""A server under load without events: seconds and sequences at each measured point."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from specsim.acceptance.curves import Curve, level_rates
from specsim.acceptance.positions import SPREAD
from specsim.latency.model import ModelLatency
from specsim.pass_shape import PassShape, PassShapes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LEVELS = 16
"""Of requests by how often their drafts are right, each as frequent."""


class BenchLoad(NamedTuple):
    """`requests` of `isl` prompt tokens and `osl` output tokens each, from `concurrency` clients or at a `rate`.

    A closed loop has clients that each wait for their answer. An open loop has `concurrency` 0 and `rate` requests a
    second in a Poisson process. With a `shortest_share` below 1, each length is drawn evenly between this share of it
    and itself, as the option ``--random-range-ratio`` of InferenceMAX's client draws it.
    With speculation each step drafts chains of `drafts` tokens, and brings `acceptance_length` tokens on average over
    all steps. Each draft of a request is right behind a right one at a rate of the request's own.
    Where a result lists its requests, `listed` has their prompt and output tokens, and of an open loop `listed_s` the
    seconds at which they were sent; `isl` and `osl` are then the means.
    """

    isl: int
    osl: int
    concurrency: int
    requests: int
    shortest_share: float = 1.0
    rate: float = 0.0
    drafts: int = 0
    acceptance_length: float = 1.0
    listed: tuple[tuple[int, int], ...] = ()
    listed_s: tuple[float, ...] = ()

    def lengths(self) -> tuple[Ints, Ints]:
        """Return the prompt and the output tokens of each request."""
        if self.listed:
            isl, osl = np.array(self.listed).T
            return isl, osl
        if self.shortest_share == 1:
            return np.full(self.requests, self.isl), np.full(self.requests, self.osl)
        draw = np.random.default_rng(self[:4])
        isl, osl = (draw.integers(int(self.shortest_share * most), most + 1, self.requests) for most in self[:2])
        return isl, np.maximum(osl, 2)

    def arrival_s(self) -> Floats:
        """Return when each request of an open loop is sent; the last at `requests` / `rate`, as vLLM's client does."""
        if self.listed_s:
            return np.array(self.listed_s)
        ends = np.cumsum(np.random.default_rng([*self[:4], 1]).exponential(size=self.requests))
        scaled: Floats = ends * (self.requests / self.rate / ends[-1])
        return scaled

    def steps(self, osl: Ints) -> list[int]:
        """Return the steps in which each request decodes the tokens behind its first, drawn where it speculates."""
        if not self.drafts:
            return [most - 1 for most in osl.tolist()]
        right = np.cumprod(_level_rates(self.drafts, self.acceptance_length), axis=1)
        reached = np.pad(np.pad(right, ((0, 0), (1, 0)), constant_values=1), ((0, 0), (0, 1)))
        draw, brought = np.random.default_rng([*self[:4], 2]), np.arange(1, self.drafts + 2)
        levels = draw.permutation(self.requests) * LEVELS // self.requests
        each = zip(osl.tolist(), -np.diff(reached[levels], axis=1), strict=True)
        ends = (draw.choice(brought, most - 1, p=shares).cumsum() for most, shares in each)
        return [int(np.searchsorted(end, len(end))) + (len(end) > 0) for end in ends]

    @property
    def sent(self) -> str:
        """The offered load: the clients, or the rate."""
        return f"rate {self.rate:g}" if self.rate else f"concurrency {self.concurrency}"


@lru_cache(maxsize=512)
def _level_rates(drafts: int, acceptance_length: float) -> Floats:
    """Return the rate at which a draft is right behind right ones, of each level of requests, (LEVELS, drafts).

    Rates of requests spread as those of an acceptance that says nothing of it; all verifications bring the length.
    """
    from scipy.optimize import brentq

    positions, accepted = np.arange(1, drafts + 1), acceptance_length - 1
    rate = float(brentq(lambda rate: (rate**positions).sum() - accepted, 0, 1))
    spread = SPREAD if 0 < rate < 1 else 0.0
    return level_rates(Curve((rate,) * drafts, 0.0, spread, 0.0, chain=drafts), LEVELS)


class Door(NamedTuple):
    """Delays between a client and a decision of the engine (`specsim.latency.engine.Engine`).

    `model` and `draft` say what passes take; they are needed in an open loop, and where `frontend_s` is not 0.
    `prompts_first`: whole prompts go in passes of their own, while decodes wait; with `chunked_prefill` a prompt longer
    than a pass goes in several.
    """

    pipeline_steps: int = 0
    frontend_s: float = 0.0
    model: ModelLatency | None = None
    draft: ModelLatency | None = None
    prompts_first: bool = False
    chunked_prefill: bool = False


class Cost(NamedTuple):
    """Mean seconds of a request, linear in the host's: ``rest_s + passes * overhead_s + rows * request_s``."""

    rest_s: float
    passes: float
    rows: float

    def seconds(self, overhead_s: float, request_s: float) -> float:
        """Return the seconds under these host times."""
        return self.rest_s + self.passes * overhead_s + self.rows * request_s


class Steps(NamedTuple):
    """The passes of some steps: of the target; of the drafter, the first, which reads prompts, too, and any later one.

    Chains of `drafts` tokens are verified. A request attends to its own chain as `PassShape` says.
    """

    target: PassShapes
    first: PassShapes
    later: PassShapes
    drafts: int

    def seconds(self, model: ModelLatency, draft: ModelLatency | None) -> Floats:
        """Return the seconds of each step."""
        seconds = model.seconds_array(self.target)
        if not self.drafts or draft is None:
            return seconds
        first = self.first if draft.cached else self.later
        further = 0 if draft.one_pass else self.drafts - 1
        return seconds + first.seconds(draft) + further * self.later.seconds(draft)


@dataclass(frozen=True, slots=True)
class Loop:
    """The steps of a load, and of each request the step before which it was sent, of its first and last token.

    `idle_s` is the wait of the engine before each step for a request. `late_s` is how long after the start of
    step `sent` a request was sent: nothing in a closed loop. `decoded` are the tokens of each behind its first.
    """

    load: BenchLoad
    steps: Steps
    idle_s: Floats
    sent: Ints
    late_s: Floats
    first: Ints
    last: Ints
    decoded: Ints

    @property
    def shapes(self) -> PassShapes:
        """The passes of the target."""
        return self.steps.target

    def costs(self, model: ModelLatency, draft: ModelLatency | None = None) -> tuple[Cost, Cost]:
        """Return the mean TTFT and TPOT, where the models say what passes take without the host's time of a step."""
        alone = self.steps.seconds(model, draft) + self.idle_s
        columns = np.array([alone, np.ones_like(alone), self.shapes.requests])
        ends = np.concatenate([np.zeros((3, 1)), np.cumsum(columns, axis=1)], axis=1)
        ttft = ends[:, self.first + 1] - ends[:, self.sent]
        several = self.decoded > 0
        tpot = (ends[:, self.last + 1] - ends[:, self.first + 1])[:, several] / self.decoded[several]
        ttft[0] -= self.late_s
        return Cost(*ttft.mean(axis=1).tolist()), Cost(*tpot.mean(axis=1).tolist())

    def latencies(self, model: ModelLatency, draft: ModelLatency | None = None) -> tuple[float, float]:
        """Return the mean seconds to the first token and per output token after it."""
        ttft, tpot = self.costs(model, draft)
        return ttft.rest_s, tpot.rest_s


class _Run(NamedTuple):
    """`passes` of the target alike but for the context `cached` of `decodes`, which grows; without drafts."""

    passes: int
    context: float
    batched: float
    pairs: float
    rows: float
    decodes: int
    cached: float

    def times(self, start_s: float, door: Door, load: BenchLoad) -> Sequence[float]:
        """Return when the first step starts and each ends; by a clock of steps where their seconds change nothing."""
        if door.model is None:
            return [start_s + place for place in range(self.passes + 1)]
        if self.passes == 1 and not load.drafts:
            prompts = int(self.batched) - self.decodes
            shape = PassShape(self.context, self.batched, self.pairs, prompts, self.rows, int(self.rows))
            return [start_s, start_s + door.model.seconds(shape)]
        ends: list[float] = np.cumsum([start_s, *_steps([self], load).seconds(door.model, door.draft)]).tolist()
        return ends


def _steps(runs: Sequence[_Run], load: BenchLoad) -> Steps:
    """Return every step of the runs, in order."""
    columns = np.array(runs)
    repeated = np.repeat(columns, columns[:, 0].astype(np.int64), axis=0).T
    passes, context, batched, pairs, rows, decodes, cached = repeated
    begun = np.repeat(np.cumsum(columns[:, 0]) - columns[:, 0], columns[:, 0].astype(np.int64))
    grown = decodes * (np.arange(len(passes)) - begun) * load.acceptance_length
    plain = PassShapes(context + grown, batched, pairs + grown, rows, rows, 0, batched - decodes)
    decoding = cached + grown
    nodes, seen = load.drafts * decodes, load.drafts * (decoding + 2 * decodes)
    verified = PassShapes.with_nodes(plain, nodes, seen) if load.drafts else plain
    return Steps(verified, plain, PassShapes.decode(decoding, decodes), load.drafts)


@dataclass(slots=True)
class _Server:
    """Continuous batching: decodes, then chunks of prompts in order of arrival, up to a budget; or whole prompts first.

    `stepped` counts the passes that decodes were in; `ending` holds the last of them of each request.
    """

    load: BenchLoad
    budget_tokens: int
    door: Door
    starts: deque[float]
    isl: list[int]
    steps: list[int]
    first: Ints
    last: Ints
    coming: deque[tuple[float, int]] = field(default_factory=deque)
    waiting: deque[int] = field(default_factory=deque)
    ending: list[tuple[int, int]] = field(default_factory=list)
    runs: list[_Run] = field(default_factory=list)
    idle: list[tuple[int, float]] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    fed: int = 0
    cached: float = 0
    now: int = 0
    stepped: int = 0
    now_s: float = 0.0

    def send(self, clients: int) -> None:
        """Let so many clients send their next request, if any is left; in an open loop no client waits for that."""
        for request in range(len(self.sent), min(len(self.sent) + clients, self.load.requests)):
            self.sent.append(self.now)
            self.coming.append((self.now_s + self.door.frontend_s, request))

    def turn(self) -> bool:
        """Run the passes up to the next decision that could differ; return False where no request is left."""
        if not self.waiting and not self.ending:
            if not self.coming:
                return False
            self._sleep()
        full = self.starts.maxlen and len(self.starts) == self.starts.maxlen
        decided_s = self.starts[0] if full else self.now_s
        while self.coming and self.coming[0][0] <= decided_s:
            self.waiting.append(self.coming.popleft()[1])
        run = self._prompts() if self.waiting else self._decodes(self.ending[0][0] - self.stepped + 1)
        times = run.times(self.now_s, self.door, self.load)
        if self.coming and run.passes > 1:
            run = run._replace(passes=max(bisect_left(times, self.coming[0][0], hi=run.passes), 1))
        self._pass(run, times[: run.passes + 1])
        return True

    def _sleep(self) -> None:
        """Wait for the next arrival, which an idle engine sees at once."""
        self.starts.clear()
        if self.coming[0][0] > self.now_s:
            self.idle.append((self.now, self.coming[0][0] - self.now_s))
            self.now_s = self.coming[0][0]

    def _decodes(self, passes: int) -> _Run:
        """Return steps in which everybody decodes."""
        rows = len(self.ending)
        return _Run(passes, self.cached, rows, self.cached + rows, rows, rows, self.cached)

    def _prompts(self) -> _Run:
        """Return one pass of prompts up to the budget, beside all decodes unless prompts go first."""
        alone = self.door.prompts_first
        _, context, batched, pairs, rows, decodes, decoding = _Run(1, 0, 0, 0, 0, 0, 0) if alone else self._decodes(1)
        left = self.budget_tokens - decodes * (1 + self.load.drafts)
        while self.waiting and left > 0:
            request = self.waiting[0]
            isl, whole = self.isl[request], alone and not self.door.chunked_prefill
            if alone and rows and isl - self.fed > left:
                break
            chunk = isl if whole else min(left, isl - self.fed)
            context += self.fed
            pairs += chunk * self.fed + chunk * (chunk + 1) / 2
            batched, left, self.fed, rows = batched + chunk, left - chunk, self.fed + chunk, rows + 1
            if self.fed == isl:
                heappush(self.ending, (self.stepped + self.steps[request] - alone, self.waiting.popleft()))
                self.first[request], self.fed = self.now, 0
                self.cached += isl
        return _Run(1, context, batched, pairs, rows, decodes, decoding)

    def _pass(self, run: _Run, times: Sequence[float]) -> None:
        """Let the time of a run go by; whose answer ends with it sends the next request."""
        *starts, self.now_s = times
        self.starts.extend(starts)
        self.runs.append(run)
        self.now += run.passes
        self.stepped += run.passes if run.decodes or not self.door.prompts_first else 0
        self.cached += run.decodes * run.passes * self.load.acceptance_length
        ended = 0
        while self.ending and self.ending[0][0] == self.stepped - 1:
            _, request = heappop(self.ending)
            self.last[request] = self.now - 1
            self.cached -= self.isl[request] + self.steps[request] * self.load.acceptance_length
            ended += 1
        if not self.load.rate:
            self.send(ended)


def served(load: BenchLoad, budget_tokens: int, door: Door | None = None) -> Loop:
    """Return the passes in which the requests of a load are served, all clients of a closed loop starting at once.

    No cache is short of memory and no request waits for a batch slot: passes are full at `budget_tokens`. Requests are
    served in the order in which they are sent, so that they end in it, too.
    """
    door = door or Door()
    assert door.model is not None or not (door.frontend_s or load.rate), "arrivals in seconds need those of passes"
    (isl, osl), nowhere = load.lengths(), np.zeros(load.requests, np.int64)
    starts: deque[float] = deque(maxlen=door.pipeline_steps)
    steps = load.steps(osl)
    server = _Server(load, budget_tokens, door, starts, isl.tolist(), steps, first=nowhere, last=nowhere.copy())
    late_s = load.arrival_s() if load.rate else np.zeros(load.requests)
    if load.rate:
        server.sent += nowhere.tolist()
        server.coming += zip((late_s + door.frontend_s).tolist(), range(load.requests), strict=True)
    server.send(load.concurrency)
    while server.turn():
        pass
    idle_s = np.zeros(server.now)
    for place, seconds in server.idle:
        idle_s[place] = seconds
    told = idle_s, np.array(server.sent), late_s, server.first, server.last
    return Loop(load, _steps(server.runs, load), *told, osl - 1)
