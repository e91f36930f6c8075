"""The laws that hold for every scheduler, and runs watched: what each asked, was answered, and what its pool held."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from hypothesis import strategies as st

import specsim.simulation
from specsim.cluster.routers import LeastTokens, RoundRobin, Slack
from specsim.core.passes import NOBODY, Drafted, DraftPass, Emitted, Pass, TargetPass
from specsim.core.protocols import Scheduler, Step, View
from specsim.core.request import Ids
from specsim.core.trees import Forest
from specsim.metrics.recorder import Record
from specsim.metrics.requests import DRAFT_PASS
from specsim.pass_shape import PassShape
from specsim.server.view import LedgerView
from specsim.simulated_backend import GroundTruth, SimulatedBackend
from specsim.simulation import Simulation, run
from tests.laws.subjects import factories, factory_of
from tests.levels import OneByOne
from tests.made import simulations


class Heard(NamedTuple):
    """One exchange: when the scheduler asked, what for, and the answer."""

    asked_s: float
    work: Pass
    answer: Forest | Emitted


class Listener:
    """A scheduler that passes on what another one says, and keeps it in `heard`."""

    def __init__(self, inner: Scheduler, spy: Callable[[View], None]) -> None:
        self.inner, self._spy = inner, spy
        self.heard: list[Heard] = []

    def __getattr__(self, name: str) -> Any:
        """Offer `use_oracle` and `begin` exactly where the scheduler does."""
        if name in ("use_oracle", "begin"):
            return getattr(self.inner, name)
        raise AttributeError(name)

    def step(self, view: View) -> Step:
        step = self.inner.step(view)
        answer: Any = None
        while True:
            self._spy(view)
            asked_s = view.now_s
            try:
                work = step.send(answer)
            except StopIteration:
                return
            answer = yield work
            self.heard.append(Heard(asked_s, work, answer))


class Watched(NamedTuple):
    """A record, and per replica what was heard and the view that its scheduler had."""

    record: Record
    heard: list[list[Heard]]
    views: list[LedgerView]


Spy = Callable[[View], None]
Inspect = Callable[[LedgerView, Pass, Ids], None]
"""Called when the slots of a pass are taken and nothing of it is booked; with the requests of those nodes, one each,
that draft passes before it extended without being asked again."""


def nothing(*seen: Any) -> None:
    pass


def watched(simulation: Simulation, spy: Spy = nothing, inspect: Inspect = nothing) -> Watched:
    """Run with every scheduler wrapped; `spy` sees each view before each decision."""
    listeners: list[Listener] = []
    views: list[LedgerView] = []

    def scheduler() -> Scheduler:
        listeners.append(Listener(simulation.scheduler(), spy))
        return listeners[-1]

    class Inspected(SimulatedBackend):
        def __init__(self, ground_truth: GroundTruth, truth: Any, view: Any, host_bytes_per_s: float) -> None:
            super().__init__(ground_truth, truth, view, host_bytes_per_s)
            views.append(view)
            self._seen = view
            self._deeper: list[Ids] = []

        def _inspect(self, work: Pass) -> None:
            deeper, self._deeper = np.concatenate([NOBODY, *self._deeper]), []
            inspect(self._seen, work, deeper)

        def draft(self, work: DraftPass, shape: PassShape) -> Drafted:
            self._inspect(work)
            drafted = super().draft(work, shape)
            self._deeper.append(work.requests[drafted.forest.row[drafted.extended]])
            return drafted

        def verify(self, work: TargetPass, shape: PassShape) -> tuple[Emitted, float]:
            self._inspect(work)
            return super().verify(work, shape)

    with patch.object(specsim.simulation, "SimulatedBackend", Inspected):
        record = specsim.simulation.run(replace(simulation, scheduler=scheduler, multi_step=False))
    return Watched(record, [each.heard for each in listeners], views)


TREE = ("row", "parent", "depth", "token", "probability", "path_probability")
"""What a forest says; `slot` is the backend's own mark."""


def same(one: Any, other: Any) -> bool:
    """Return whether two passes, or two answers, say exactly the same."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Forest):
        return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in TREE)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(np.array_equal(one, other))


# --- the laws, each as one function of a witnessed run ----------------------------------------------------------------


class Witnessed(NamedTuple):
    """One watched run that all laws judge, and a recount of the pool of each replica."""

    simulation: Simulation
    seen: Watched
    recounts: list[Recount]


Law = Callable[[Witnessed], None]


def drawn(name: str, data: st.DataObject, most_requests: int = 24) -> Simulation:
    factory = data.draw(factories(name), label="scheduler")
    simulated = data.draw(simulations(most_requests), label="simulation")
    router = data.draw(st.sampled_from((RoundRobin, LeastTokens, Slack)), label="router")
    return replace(simulated, scheduler=factory, router=router)


def witnessed(simulation: Simulation) -> Witnessed:
    recounts: dict[int, Recount] = {}

    def inspect(view: LedgerView, work: Pass, deeper: Ids) -> None:
        recounts.setdefault(id(view), Recount(view)).inspect(work, deeper)

    seen = watched(simulation, inspect=inspect)
    return Witnessed(simulation, seen, list(recounts.values()))


def judge(name: str, simulation: Simulation, laws: Sequence[Law] | None = None) -> None:
    """Run once, watched, and hold each law against that run; a failure names the law and the scheduler."""
    ran = witnessed(simulation)
    for law in LAWS if laws is None else laws:
        try:
            law(ran)
        except Exception as error:
            error.add_note(f"the law {law.__name__!r} does not hold for {name!r}")
            raise


def conservation(ran: Witnessed) -> None:
    """Every request ends once, with exactly its output, or is rejected because it can never fit."""
    simulation, seen = ran.simulation, ran.seen
    told, wanted = simulation.requests, simulation.ground_truth.output_tokens
    progress = seen.record.progress
    most = (told.prompt_tokens + told.max_tokens).tolist()
    too_large = np.array([simulation.memory.bytes_of(m, m) > simulation.memory.capacity_bytes for m in most])
    assert seen.record.rejected == dict.fromkeys(np.flatnonzero(too_large).tolist(), "kv_capacity")
    assert np.array_equal(progress.emitted_tokens, np.where(too_large, 0, wanted))
    assert np.array_equal(np.isnan(progress.finish_s), too_large)
    endings, emitted = np.zeros(len(told), dtype=int), np.zeros(len(told), dtype=int)
    for step in _exchanges(seen):
        if isinstance(step.answer, Emitted):
            endings[step.work.requests] += step.answer.finished
            emitted[step.work.requests] += step.answer.tokens
    assert np.array_equal(endings, ~too_large)
    assert np.array_equal(emitted, progress.emitted_tokens)
    assert not any(view._ledger.queues.live for view in seen.views)
    assert sum(view._ledger.finished + len(view._ledger.rejected) for view in seen.views) == len(told)


def counting(ran: Witnessed) -> None:
    """The counts of each request are those of the exchanges."""
    seen, progress = ran.seen, ran.seen.record.progress
    tallies = {
        key: np.zeros(len(seen.record.requests), dtype=int) for key in ("draft", "accepted", "verify", "speculate")
    }
    begun: set[int] = set()
    for step in _exchanges(seen):
        if not isinstance(step.work, TargetPass):
            continue
        ids, forest, trees = step.work.requests, step.work.forest, step.work.forest.tree_tokens()
        max_depth = np.zeros(len(ids), dtype=int)
        np.maximum.at(max_depth, forest.row, forest.depth)
        assert (step.answer.matched <= max_depth).all()
        assert (step.answer.accepted <= step.answer.tokens).all()
        decodes = np.array([request in begun for request in ids.tolist()]) & (step.answer.tokens > 0)
        tallies["draft"][ids] += trees
        tallies["accepted"][ids] += step.answer.accepted
        tallies["verify"][ids] += decodes
        tallies["speculate"][ids] += trees > 0
        begun.update(ids[step.answer.tokens > 0].tolist())
    assert np.array_equal(progress.draft_tokens, tallies["draft"])
    assert np.array_equal(progress.accepted_tokens, tallies["accepted"])
    assert np.array_equal(progress.verifications, tallies["verify"])
    assert np.array_equal(progress.speculations, tallies["speculate"])
    assert np.array_equal(progress.decoded_tokens, np.maximum(progress.emitted_tokens - 1, 0))
    assert (progress.accepted_tokens <= progress.draft_tokens).all()
    assert (progress.verifications <= progress.decoded_tokens).all()
    assert (progress.speculations <= progress.verifications).all()
    preempted = sum(len(step.work.evict) for step in _exchanges(seen))
    assert progress.preemptions.sum() == preempted


def causality(ran: Witnessed) -> None:
    """Nothing happens before its cause; a replica runs one pass at a time, forward."""
    simulation, seen = ran.simulation, ran.seen
    progress = seen.record.progress
    ended = ~np.isnan(progress.finish_s)
    several = ended & (progress.emitted_tokens > 1)
    fastest_s = min(simulation.truth.target.delta, simulation.truth.draft.delta)
    assert (progress.first_token_s[ended] >= simulation.requests.arrival_s[ended] + 0.999 * fastest_s).all()
    assert (progress.finish_s[ended] >= progress.first_token_s[ended]).all()
    assert (progress.first_decode_s[several] >= progress.first_token_s[several]).all()
    assert (progress.finish_s[several] > progress.first_decode_s[several]).all()
    assert np.isnan(progress.first_decode_s[~several]).all()
    for passes in _by_replica(seen.record, simulation.replicas):
        free = (passes["kind"] == DRAFT_PASS) & simulation.truth.draft.one_pass
        assert (passes["seconds"][~free] > 0).all()
        assert (passes["seconds"] >= 0).all()
        assert (passes["start_s"][1:] >= (passes["start_s"] + passes["seconds"])[:-1]).all()
    for heard in seen.heard:
        for step in heard:
            assert (simulation.requests.arrival_s[step.work.requests] <= step.asked_s).all()


def memory_is_kept(ran: Witnessed) -> None:
    """During every pass the pool holds exactly the blocks of what is cached and what the pass adds, never too many."""
    for recount in ran.recounts:
        assert recount.held == recount.wanted
        assert all(0 <= each <= most for each, most in zip(recount.wanted, recount.most, strict=True))
    for view in ran.seen.views:
        assert view.free_bytes == view.capacity_bytes
        assert not view.held_bytes(np.arange(len(ran.simulation.requests))).any()


class Recount:
    """Recounts a pool from the passes alone, beside the ledger's own books: `held` there, `wanted` here, per pass.

    `most` is what there is of it: the drafter's weights, too, from a pass that sends it away until it is back.
    """

    def __init__(self, view: LedgerView) -> None:
        self.held: list[int] = []
        self.wanted: list[int] = []
        self.most: list[int] = []
        self._away = False
        self._view = view
        self._nodes = np.zeros(len(view.arrival_s), dtype=np.int64)
        self._emitted = view.emitted_tokens.copy()

    def inspect(self, work: Pass, deeper: Ids) -> None:
        np.add.at(self._nodes, deeper, 1)
        view, memory = self._view, self._view._ledger.pool.memory
        here = np.zeros(len(view.arrival_s), dtype=np.bool_)
        here[view.running] = here[work.requests] = True
        moved = (view.emitted_tokens != self._emitted) | ((view.target_cached == 0) & (view.draft_cached == 0)) | ~here
        self._nodes[moved] = 0
        self._emitted = view.emitted_tokens.copy()
        # What lies on the host holds no slot here.
        target, draft = view.target_cached * here, view.draft_cached * here
        if isinstance(work, DraftPass):
            if len(work.scheduled_tokens):
                draft[work.requests] += work.scheduled_tokens
            inner = work.leaves[work.leaves >= work.forest.rows]
            np.add.at(self._nodes, work.requests[work.forest.row[inner]], 1)
        else:
            target[work.requests] += work.scheduled_tokens + work.forest.tree_tokens()
        draft += self._nodes
        self.held.append(view.capacity_bytes - view.free_bytes)
        assert view.drafter_away <= self._away, "nobody sent the drafter away"
        self._away &= view.drafter_away
        self.most.append(memory.capacity_bytes + memory.drafter_bytes * self._away)
        assert not (self._away and isinstance(work, DraftPass))
        self._away |= isinstance(work, TargetPass) and work.drafter_away
        self.wanted.append(sum(memory.bytes_of(*pair) for pair in zip(target.tolist(), draft.tolist(), strict=True)))


def determinism(ran: Witnessed) -> None:
    """The same simulation again leaves the same arrays, bit for bit.

    Nothing shows whether it is watched, reports, or runs passes between which no arrival or end falls at once.
    """
    reports: list[int] = []
    assert_same_record(ran.seen.record, run(replace(ran.simulation, multi_step=True), reports.append))
    assert reports[-1] == len(ran.simulation.requests)
    assert reports == sorted(reports)


def drafting_at_once(ran: Witnessed) -> None:
    """Passes that a scheduler asks for at once are the passes that it would have asked for one by one."""
    apart = replace(ran.simulation, scheduler=lambda: OneByOne(ran.simulation.scheduler()))
    assert_same_record(ran.seen.record, run(apart))


def work_conservation(ran: Witnessed) -> None:
    """A replica pauses only while none of its requests lives."""
    record, replicas = ran.seen.record, ran.simulation.replicas
    told, progress = record.requests, record.progress
    for replica, passes in enumerate(_by_replica(record, replicas)):
        ended = ~np.isnan(progress.finish_s) & (record.replica_of == replica)
        arrival_s, finish_s = told.arrival_s[ended], progress.finish_s[ended]
        if not len(arrival_s):
            assert not len(passes["start_s"])
            continue
        assert len(passes["start_s"]), f"replica {replica} has requests and runs nothing"
        ends = [-1.0, *(passes["start_s"] + passes["seconds"]).tolist()]
        for end_s, start_s in zip(ends, passes["start_s"].tolist(), strict=False):
            if start_s > end_s:
                waited = (arrival_s < start_s) & (finish_s > end_s)
                assert not waited.any(), f"requests live between {end_s} and {start_s} s, and nothing runs"


AGAIN = (determinism, drafting_at_once)
LAWS: tuple[Law, ...] = (conservation, counting, causality, memory_is_kept, work_conservation, *AGAIN)


def assert_same_record(one: Record, other: Record) -> None:
    for part in ("requests", "progress", "totals"):
        mine, theirs = getattr(one, part), getattr(other, part)
        for field in fields(mine):
            assert_identical(getattr(mine, field.name), getattr(theirs, field.name), field.name)
    assert_identical(one.longest_pause_s, other.longest_pause_s, "longest_pause_s")
    assert_identical(one.spent_s, other.spent_s, "spent_s")
    assert_identical(one.rejected, other.rejected, "rejected")
    assert_identical(one.replica_of, other.replica_of, "replica_of")
    assert (one.passes is None) == (other.passes is None)
    for column in one.passes or {}:
        assert_identical(one.passes[column], other.passes[column], column)


def assert_identical(one: Any, other: Any, what: str) -> None:
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, what
        assert one.tobytes() == other.tobytes(), what
    else:
        assert one == other, what


def roomy_chains(simulated: Simulation) -> Simulation:
    """Return it with memory for all, on which chains of one token are accepted where the text says so."""
    roomy = replace(simulated.memory, capacity_bytes=1000 * simulated.memory.capacity_bytes)
    return replace(simulated, replicas=4, scheduler=factory_of("vllm_spec", num_speculative_tokens=1), memory=roomy)


def assert_same_text(one: Record, other: Record) -> None:
    assert not one.rejected
    for column in ("emitted_tokens", "decoded_tokens", "draft_tokens", "accepted_tokens", "verifications"):
        assert np.array_equal(getattr(one.progress, column), getattr(other.progress, column)), column


def _exchanges(seen: Watched) -> list[Any]:
    return [step for heard in seen.heard for step in heard]


def _by_replica(record: Record, replicas: int) -> list[dict[str, Any]]:
    passes = record.passes
    assert passes is not None
    return [{key: column[passes["replica"] == each] for key, column in passes.items()} for each in range(replicas)]
