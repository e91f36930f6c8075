"""The laws that hold for every scheduler, each as one function of a scheduler's name and hypothesis's data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from specsim.replica.passes import DraftPass, Emitted, Pass, TargetPass
from specsim.replica.request import Ids
from specsim.replica.view import LedgerView
from specsim.results.schema import DRAFT_PASS
from specsim.simulation import Record, Simulation, run
from tests.laws.subjects import factories
from tests.laws.watch import Watched, watched
from tests.levels import OneByOne
from tests.made import simulations

Law = Callable[[str, st.DataObject], None]


def drawn(name: str, data: st.DataObject) -> Simulation:
    factory = data.draw(factories(name), label="scheduler")
    return replace(data.draw(simulations(), label="simulation"), scheduler=factory)


def conservation(name: str, data: st.DataObject) -> None:
    """Every request ends once, with exactly its output, or is rejected because it can never fit."""
    simulation = drawn(name, data)
    told, wanted = simulation.requests, simulation.world.output_tokens
    seen = watched(simulation)
    columns = seen.record.columns
    most = (told.prompt_tokens + told.max_tokens).tolist()
    too_large = np.array([simulation.memory.bytes_of(m, m) > simulation.memory.capacity_bytes for m in most])
    reasons = [columns.rejected_reason_names[code] for code in columns.rejected_reason]
    assert reasons == ["kv_capacity" if each else "" for each in too_large]
    assert np.array_equal(columns.output_tokens, np.where(too_large, 0, wanted))
    assert np.array_equal(np.isnan(columns.finish_s), too_large)
    endings, emitted = np.zeros(len(told), dtype=int), np.zeros(len(told), dtype=int)
    for step in _exchanges(seen):
        if isinstance(step.answer, Emitted):
            endings[step.work.requests] += step.answer.finished
            emitted[step.work.requests] += step.answer.tokens
    assert np.array_equal(endings, ~too_large)
    assert np.array_equal(emitted, columns.output_tokens)
    assert not any(view._ledger.roster.live for view in seen.views)
    assert sum(view._ledger.finished + len(view._ledger.rejected) for view in seen.views) == len(told)


def counting(name: str, data: st.DataObject) -> None:
    """What is counted per request is what the exchanges say."""
    seen = watched(drawn(name, data))
    columns = seen.record.columns
    tallies = {key: np.zeros(len(columns.arrival_s), dtype=int) for key in ("draft", "accepted", "verify", "speculate")}
    begun: set[int] = set()
    for step in _exchanges(seen):
        if not isinstance(step.work, TargetPass):
            continue
        ids, forest, trees = step.work.requests, step.work.forest, step.work.forest.tree_tokens()
        deepest = np.zeros(len(ids), dtype=int)
        np.maximum.at(deepest, forest.row, forest.depth)
        assert (step.answer.matched <= deepest).all()
        decodes = np.array([request in begun for request in ids.tolist()]) & (step.answer.tokens > 0)
        tallies["draft"][ids] += trees
        tallies["accepted"][ids] += step.answer.accepted
        tallies["verify"][ids] += decodes
        tallies["speculate"][ids] += trees > 0
        begun.update(ids[step.answer.tokens > 0].tolist())
    assert np.array_equal(columns.draft_tokens, tallies["draft"])
    assert np.array_equal(columns.accepted_tokens, tallies["accepted"])
    assert np.array_equal(columns.verifications, tallies["verify"])
    assert np.array_equal(columns.speculations, tallies["speculate"])
    assert np.array_equal(columns.decoded_tokens, np.maximum(columns.output_tokens - 1, 0))
    assert (columns.accepted_tokens <= columns.draft_tokens).all()
    assert (columns.verifications <= columns.decoded_tokens).all()
    assert (columns.speculations <= columns.verifications).all()
    preempted = sum(len(step.work.evict) for step in _exchanges(seen))
    assert columns.preemptions.sum() == preempted


def causality(name: str, data: st.DataObject) -> None:
    """Nothing happens before its cause; a replica runs one pass at a time, forward."""
    simulation = drawn(name, data)
    seen = watched(simulation)
    columns = seen.record.columns
    ended = ~np.isnan(columns.finish_s)
    several = ended & (columns.output_tokens > 1)
    fastest_s = min(simulation.truth.target.delta, simulation.truth.draft.delta)
    assert (columns.first_token_s[ended] >= columns.arrival_s[ended] + 0.999 * fastest_s).all()
    assert (columns.finish_s[ended] >= columns.first_token_s[ended]).all()
    assert (columns.first_decode_s[several] >= columns.first_token_s[several]).all()
    assert (columns.finish_s[several] > columns.first_decode_s[several]).all()
    assert np.isnan(columns.first_decode_s[~several]).all()
    for passes in _by_replica(seen.record, simulation.replicas):
        free = (passes["kind"] == DRAFT_PASS) & simulation.truth.draft.one_pass
        assert (passes["seconds"][~free] > 0).all()
        assert (passes["seconds"] >= 0).all()
        assert (passes["start_s"][1:] >= (passes["start_s"] + passes["seconds"])[:-1]).all()
    for heard in seen.heard:
        for step in heard:
            assert (columns.arrival_s[step.work.requests] <= step.asked_s).all()


def memory_is_kept(name: str, data: st.DataObject) -> None:
    """During every pass the pool holds exactly the blocks of what is cached and what the pass adds, never too many."""
    simulation = drawn(name, data)
    audits: dict[int, Audit] = {}

    def inspect(view: LedgerView, work: Pass, deeper: Ids) -> None:
        audits.setdefault(id(view), Audit(view)).inspect(work, deeper)

    seen = watched(simulation, inspect=inspect)
    for view in seen.views:
        assert view.free_bytes == view.capacity_bytes
        assert not view.held_bytes(np.arange(len(simulation.requests))).any()


class Audit:
    """Recounts a pool from the passes alone, beside the ledger's own books."""

    def __init__(self, view: LedgerView) -> None:
        self._view = view
        self._nodes = np.zeros(len(view.arrival_s), dtype=np.int64)
        self._emitted = view.emitted_tokens.copy()

    def inspect(self, work: Pass, deeper: Ids) -> None:
        np.add.at(self._nodes, deeper, 1)
        view, memory = self._view, self._view._ledger.pool.memory
        here = np.zeros(len(view.arrival_s), dtype=np.bool_)
        here[view.resident] = here[work.requests] = True
        moved = (view.emitted_tokens != self._emitted) | ((view.target_cached == 0) & (view.draft_cached == 0)) | ~here
        self._nodes[moved] = 0
        self._emitted = view.emitted_tokens.copy()
        # What lies on the host holds no slot here.
        target, draft = view.target_cached * here, view.draft_cached * here
        if isinstance(work, DraftPass):
            if len(work.chunks):
                draft[work.requests] += work.chunks
            inner = work.leaves[work.leaves >= work.forest.rows]
            np.add.at(self._nodes, work.requests[work.forest.row[inner]], 1)
        else:
            target[work.requests] += work.chunks + work.forest.tree_tokens()
        draft += self._nodes
        wanted = sum(memory.bytes_of(*pair) for pair in zip(target.tolist(), draft.tolist(), strict=True))
        assert memory.capacity_bytes - view.free_bytes == wanted
        assert 0 <= wanted <= memory.capacity_bytes


def determinism(name: str, data: st.DataObject) -> None:
    """The same simulation twice leaves the same arrays, bit for bit."""
    simulation = drawn(name, data)
    assert_same_record(run(simulation), run(simulation))


def recording_changes_nothing(name: str, data: st.DataObject) -> None:
    """Keeping passes, and reporting progress, are performance switches."""
    simulation = drawn(name, data)
    reports: list[int] = []
    kept, quiet = run(simulation), run(replace(simulation, keep_passes=False), reports.append)
    assert quiet.passes is None
    assert_same_record(replace(kept, passes=None), quiet)
    assert reports[-1] == len(simulation.requests)
    assert reports == sorted(reports)


def drafting_at_once(name: str, data: st.DataObject) -> None:
    """Passes that a scheduler asks for at once are the passes that it would have asked for one by one."""
    simulation = drawn(name, data)
    apart = replace(simulation, scheduler=lambda: OneByOne(simulation.scheduler()))
    assert_same_record(run(simulation), run(apart))


def work_conservation(name: str, data: st.DataObject) -> None:
    """A replica pauses only while none of its requests lives."""
    simulation = drawn(name, data)
    record = run(simulation)
    columns = record.columns
    for replica, passes in enumerate(_by_replica(record, simulation.replicas)):
        ended = ~np.isnan(columns.finish_s) & (columns.request_id % simulation.replicas == replica)
        arrival_s, finish_s = columns.arrival_s[ended], columns.finish_s[ended]
        if not len(arrival_s):
            assert not len(passes["start_s"])
            continue
        ends = [-1.0, *(passes["start_s"] + passes["seconds"]).tolist()]
        for end_s, start_s in zip(ends, passes["start_s"].tolist(), strict=False):
            if start_s > end_s:
                waited = (arrival_s < start_s) & (finish_s > end_s)
                assert not waited.any(), f"requests live between {end_s} and {start_s} s, and nothing runs"


LAWS: tuple[Law, ...] = (
    conservation,
    counting,
    causality,
    memory_is_kept,
    determinism,
    recording_changes_nothing,
    drafting_at_once,
    work_conservation,
)


def assert_same_record(one: Record, other: Record) -> None:
    for part in ("columns", "totals"):
        mine, theirs = getattr(one, part), getattr(other, part)
        for field in fields(mine):
            assert_identical(getattr(mine, field.name), getattr(theirs, field.name), field.name)
    assert (one.passes is None) == (other.passes is None)
    for column in one.passes or {}:
        assert one.passes is not None
        assert other.passes is not None
        assert_identical(one.passes[column], other.passes[column], column)


def assert_identical(one: Any, other: Any, what: str) -> None:
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, what
        assert one.tobytes() == other.tobytes(), what
    else:
        assert one == other, what


def _exchanges(seen: Watched) -> list[Any]:
    return [step for heard in seen.heard for step in heard]


def _by_replica(record: Record, replicas: int) -> list[dict[str, Any]]:
    passes = record.passes
    assert passes is not None
    return [{key: column[passes["replica"] == each] for key, column in passes.items()} for each in range(replicas)]
