"""Multi-step scheduling leaves the record of single passes."""

from dataclasses import dataclass, replace
from math import inf
from unittest.mock import patch

import numpy as np
import pytest

import specsim.metrics.recorder
import specsim.simulation
from specsim.core.passes import DraftPass, TargetPass
from specsim.core.trees import Forest
from specsim.errors import SchedulerFault
from specsim.schedulers.composed import Composed
from specsim.schedulers.continuous import PrefillFirst
from specsim.schedulers.vllm_spec import FixedChains
from specsim.simulated_backend import SimulatedBackend
from specsim.simulation import run
from tests.laws.every import assert_same_record
from tests.laws.subjects import factory_of
from tests.made import Hardware, Linear, acceptance_trace, hardware, requests, simulation

MULTI_STEP = ("continuous", "sarathi", "fcfs", "vllm_spec", "vllm_dynamic", "vllm")
"""The schedulers that say when their next decision would be the same."""


def busy(name, longer=1, **more):
    """Return a run of bursts and of pauses, with outputs of many lengths and `max_tokens` behind most of them."""
    rng = np.random.default_rng(3)
    count = 40
    at = np.sort(rng.choice([0.0, 1.0, 1.5, 40.0], count) + rng.uniform(0, 0.4, count))
    outputs = longer * rng.integers(1, 90, count)
    told = requests(at.tolist(), rng.integers(1, 60, count).tolist(), (outputs + 3 * (outputs % 3)).tolist())
    return replace(simulation(told, outputs.tolist(), factory_of(name)), **more)


def asked(of):
    """Return how many iterations a run has, and how many of them the backend was asked for one by one."""
    verified = 0

    class Counting(SimulatedBackend):
        def verify(self, *given):
            nonlocal verified
            verified += 1
            return super().verify(*given)

    with patch.object(specsim.simulation, "SimulatedBackend", Counting):
        return run(of).totals.iterations, verified


@pytest.mark.parametrize("name", MULTI_STEP)
def test_most_decoding_passes_are_not_asked_for_one_by_one(name):
    iterations, verified = asked(busy(name, longer=4))
    assert verified < iterations / 2
    assert asked(busy(name, longer=4, multi_step=False)) == (iterations, iterations)


class Handwritten:
    """A layout of texts that the package does not know."""

    def rows(self, requests, keys, hashed, on, depth):
        return (hashed & np.uint64(255)).view(np.int64)

    def text_rows(self, requests, depth=0):
        return np.arange(256)


@pytest.mark.parametrize(("most", "steps"), [(3, 2), (2, 3)])
def test_passes_run_on_past_finishes_where_all_that_run_are_in_them(most, steps):
    """A step reads the prompts; the next one decodes all to the end, or two up to the first end, then the others."""
    asked = []

    class Saying:
        stationary = True

        def step(self, view):
            asked.append(view.now_s)
            ids = np.array(view.waiting) if len(view.waiting) else view.running
            ids, until_s = (ids, -inf) if len(view.waiting) else (ids[:most], inf)
            yield TargetPass(ids, view.pending(ids), Forest.roots(len(ids)), stationary_until_s=until_s)

    of = simulation(requests([0.0] * 3, [4, 5, 6], [80] * 3), [70, 40, 9], Saying, keep_passes=True)
    record = run(of)
    assert len(asked) == steps
    assert_same_record(record, run(replace(of, multi_step=False)))


class Shifts(PrefillFirst):
    """Lets every second request rest, by the clock, and says until when the rows stay."""

    stationary = True
    asked = 0

    def sequences(self, view, drafting, draft_tokens=0):
        Shifts.asked += 1
        until_s = (int(view.now_s * 10) + 1) / 10
        rows = super().sequences(view, drafting)._replace(stationary_until_s=until_s)
        kept = np.flatnonzero(rows.requests % 2 == int(view.now_s * 10) % 2)
        if len(kept) in (0, len(rows.requests)) or rows.decoding < len(rows.requests):
            return rows
        cut = {name: getattr(rows, name)[kept] for name in ("requests", "scheduled_tokens", "catch_up")}
        return rows._replace(**cut, decoding=len(kept))


@pytest.mark.parametrize("tokens", [0, 4])
def test_passes_at_once_stop_at_a_deadline_of_the_schedulers_own(tokens, monkeypatch):
    monkeypatch.setattr(Shifts, "asked", 0)
    of = chains(lambda: Composed(Shifts(8, 2048, 0.01), FixedChains(tokens)))
    record = run(of)
    at_once = Shifts.asked
    assert_same_record(record, run(replace(of, multi_step=False)))
    apart = Shifts.asked - at_once
    assert record.progress.finish_s.max() / 0.1 < at_once < apart / 2


class Chains:
    """Reads each prompt in both models, then drafts chains of 2 for all, and verifies them."""

    stationary = True

    def step(self, view):
        ids = np.array(view.waiting[:2]) if len(view.waiting) else view.running
        roots, reads = Forest.roots(len(ids)), len(view.waiting) > 0
        leaves = np.zeros(0, dtype=np.int64) if reads else np.arange(len(ids))
        grows = {} if reads else {"leaves": leaves, "width": 1, "depth": 2, "stationary_until_s": inf}
        forest = yield DraftPass(ids, view.draft_pending(ids), roots, **grows)
        yield TargetPass(ids, view.pending(ids), forest)


def chains(scheduler, text=None, truth=None):
    """Return a run of three requests at once, far from their `max_tokens`."""
    told = requests([0.0, 0.0, 0.3], [4, 5, 6], [400] * 3)
    return simulation(told, [70, 60, 50], scheduler, text=text, truth=truth)


def test_a_step_that_fails_when_it_is_closed_is_told_of():
    class Failing(Chains):
        stationary = True

        def step(self, view):
            try:
                yield from super().step(view)
            except GeneratorExit:
                raise ValueError("no end") from None

    with pytest.raises(SchedulerFault, match=r"scheduler Failing at [\d.]+ s: ValueError: no end"):
        run(chains(Failing))


PLAIN = hardware()


@pytest.mark.parametrize(
    ("text", "truth", "at_once"),
    [
        *((None, None, True), (acceptance_trace(3, silent=True), None, False)),
        (replace(acceptance_trace(3), layout=Handwritten()), None, False),
        (None, replace(PLAIN, draft=replace(PLAIN.draft, expands=True)), False),
        (None, replace(PLAIN, draft=replace(PLAIN.draft, max_depth=1)), False),
    ],
    ids=["chains", "lookup that may find nothing", "text of one's own", "batch expansion", "heads for few tokens"],
)
def test_a_scheduler_of_ones_own_drafts_at_once_what_can_be_told_ahead(text, truth, at_once):
    of = chains(Chains, text, truth)
    iterations, verified = asked(of)
    assert verified < iterations / 2 if at_once else verified == iterations
    assert_same_record(run(of), run(replace(of, multi_step=False)))


@dataclass(frozen=True)
class Fitted(Linear):
    """Fitted on passes of so many tokens."""

    most_context: float = 0.0
    most_batched: float = 0.0

    def extrapolates(self, shape):
        return shape.context_tokens > self.most_context or shape.batched_tokens > self.most_batched


@pytest.mark.parametrize("most", [(250.0, 1e9), (0.0, 0.0)], ids=str)
def test_passes_out_of_range_are_counted_as_one_by_one(most):
    fitted = Fitted(1e-6, 1e-4, 0.02, most_context=most[0], most_batched=most[1])
    of = busy("vllm_spec", truth=Hardware(fitted, fitted))
    found = run(of)
    assert_same_record(found, run(replace(of, multi_step=False)))
    every = found.totals.iterations + found.totals.draft_passes
    assert 0 < found.totals.out_of_range_passes <= every
    assert (found.totals.out_of_range_passes < every) == any(most)
