"""Simulations that a tiny pair can serve, and a scheduler that draws at random whatever is legal."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
from hypothesis import strategies as st

from profiler.backend.backend import TorchBackend
from profiler.backend.known import Known
from profiler.backend.served import Models, served
from profiler.backend.stopwatch import DRAFT, MOVE, TARGET
from specsim.core.passes import NOBODY, Drafted, DraftPass, Emitted, TargetPass
from specsim.core.protocols import Step, View
from specsim.core.request import Ids
from specsim.core.trees import Forest
from specsim.metrics.recorder import Record
from specsim.pass_shape import PassShape
from specsim.simulation import Simulation, run
from tests.made import simulations
from tests.profiler.backend.pairs import pair, plain_greedy, prompt

Result = TypeVar("Result")
Verified = Callable[[TargetPass, Emitted, Mapping[int, int]], None]


class Profiled:
    """A stopwatch that runs the pass and says what the simulation's latency model says of it."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def timed(self, role: str, shape: PassShape, run: Callable[[], Result]) -> tuple[Result, float]:
        truth = self._simulation.truth
        if role == MOVE:
            return run(), shape.moved_bytes / self._simulation.host_bytes_per_s
        model = {TARGET: truth.target, DRAFT: truth.draft}[role]
        return run(), model.seconds(shape)

    def untimed(self, run: Callable[[], Result]) -> Result:
        return run()


def for_drafter(simulation: Simulation, drafter: str) -> Simulation:
    """Return the simulation of one replica whose latency model prices this kind of drafter."""
    kind = {"one_pass": drafter == "lookup", "cached": drafter != "lookup"}
    true, believed = (replace(of, draft=replace(of.draft, **kind)) for of in (simulation.truth, simulation.cost_model))
    memory = replace(simulation.memory, draft_token_bytes=int(drafter != "lookup"))
    return replace(simulation, replicas=1, truth=true, cost_model=believed, memory=memory)


@st.composite
def small(draw: st.DrawFn, drafter: str, most_requests: int = 8) -> Simulation:
    """Draw a simulation, some of whose prompts begin with what others have cached."""
    drawn = for_drafter(draw(simulations(most_requests)), drafter)
    told = drawn.requests
    cached = draw(st.sampled_from((0, 0, 5)))
    return replace(drawn, requests=replace(told, cached_tokens=np.minimum(cached, told.prompt_tokens - 1)))


class Ran(NamedTuple):
    """The record of a real run, the tokens, and the backend."""

    record: Record
    known: Known
    backend: TorchBackend


def real(
    simulation: Simulation,
    drafter: str,
    *,
    acceptance_trace: bool = False,
    verified: Verified | None = None,
    models: Models | None = None,
) -> Ran:
    """Run on a tiny pair, or on these models; `verified` hears of each verification."""
    kept: list[Known] = []
    prompts = [prompt(row, tokens) for row, tokens in enumerate(simulation.requests.prompt_tokens.tolist())]
    models, texts = models or pair(simulation, drafter), None if acceptance_trace else prompts
    made = served(simulation, models, texts, stopwatch=Profiled(simulation), emitted=kept.append)
    backends: list[TorchBackend] = []

    def backend(view: View) -> TorchBackend:
        each = made.backend(view)
        backends.append(each)
        if verified is not None:
            listen(each, verified)
        return each

    record = run(replace(made, backend=backend))
    for cache in backends[0].caches:
        assert not cache.resident, "pages are held of requests that have ended"
        assert not cache.away
        assert not cache.held.any()
    return Ran(record, kept[0], backends[0])


def listen(backend: TorchBackend, verified: Verified) -> None:
    """Tell `verified` of each verification, with the likeliest child of each node that was drafted so far."""
    draft, verify = backend.draft, backend.verify
    likeliest: dict[int, int] = {}

    def drafting(work: DraftPass, shape: PassShape) -> Drafted:
        drafted = draft(work, shape)
        forest = drafted.forest
        for slot, token in zip(forest.slot[forest.rows :].tolist(), forest.token[forest.rows :].tolist(), strict=True):
            likeliest.setdefault(slot, token)
        return drafted

    def verifying(work: TargetPass, shape: PassShape) -> tuple[Emitted, float]:
        answer = verify(work, shape)
        verified(work, answer[0], likeliest)
        return answer

    backend.draft, backend.verify = drafting, verifying  # type: ignore[method-assign]


def assert_lossless(simulation: Simulation, record: Record, known: Known) -> None:
    """Hold each output against what the target says alone."""
    told = simulation.requests
    outputs = simulation.ground_truth.output_tokens.tolist()
    for request, (tokens, count) in enumerate(zip(told.prompt_tokens.tolist(), outputs, strict=True)):
        due = () if request in record.rejected else plain_greedy(request % 3, tokens, 30)[:count]
        assert tuple(known.output(request).tolist()) == due, f"request {request}"


MOST_ROWS, MOST_WIDTH, MOST_PASSES = 5, 3, 4


class Wild:
    """Run some rows, evict others, feed chunks by halves, grow and prune trees at random, drop some of them."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def step(self, view: View) -> Step:
        rng = self._rng
        running = view.running
        here = np.concatenate([running, np.array(view.waiting, dtype=np.int64)])
        if not len(here):
            return
        batch = np.sort(rng.permutation(here)[: rng.integers(1, MOST_ROWS)])
        others = running[~np.isin(running, batch)]
        evict, transfer = others[rng.random(len(others)) < 0.2], bool(rng.random() < 0.5)
        decoding = (view.pending(batch) == 1) & (view.emitted_tokens[batch] > 0)
        speculated = batch[decoding][: rng.integers(0, MOST_ROWS)]
        if len(speculated):
            forest = yield from self._drafted(view, speculated, evict, transfer)
            if forest is not None:
                evict = NOBODY
            if forest is not None and rng.random() < 0.85:
                yield TargetPass(speculated, np.ones_like(speculated), forest)
                batch = batch[~np.isin(batch, speculated)]
        if len(batch):
            chunks = rng.integers(1, view.pending(batch) + 1)
            yield TargetPass(batch, chunks, Forest.roots(len(batch)), evict, transfer)

    def _drafted(
        self, view: View, rows: Ids, evict: Ids, transfer: bool
    ) -> Generator[DraftPass, Forest, Forest | None]:
        rng, forest = self._rng, Forest.roots(len(rows))
        lacking = view.draft_pending(rows)
        if not lacking.sum():
            return None
        chunks = np.where(rng.random(len(rows)) < 0.8, lacking, rng.integers(0, lacking + 1))
        ready = np.flatnonzero(chunks == lacking)
        if not chunks.sum():
            return None
        roots = ready[rng.random(len(ready)) < 0.7]
        width, beam = int(rng.integers(1, MOST_WIDTH + 1)), rng.choice([None, 2])
        forest = yield DraftPass(rows, chunks, forest, roots, width, beam, evict, transfer)
        for _ in range(rng.integers(0, MOST_PASSES)):
            forest = self._pruned(forest)
            open_ = np.setdiff1d(np.r_[ready, np.arange(forest.rows, len(forest))], forest.parent[forest.rows :])
            leaves = open_[rng.random(len(open_)) < 0.7]
            leaves = leaves[np.lexsort((leaves, forest.row[leaves]))]
            if not (leaves >= forest.rows).any():
                break
            depth, max_depth = int(rng.integers(1, 3)), None
            if rng.random() < 0.3:
                max_depth = np.full(len(rows), int(forest.depth.max()) + 1)
            forest = yield DraftPass(rows, NOBODY, forest, leaves, width, beam, depth=depth, max_depth=max_depth)
        return self._pruned(forest)

    def _pruned(self, forest: Forest) -> Forest:
        keep = self._rng.random(len(forest)) < 0.8
        keep[: forest.rows] = True
        for node in range(forest.rows, len(forest)):
            keep[node] &= keep[forest.parent[node]]
        return forest.subset(keep)
