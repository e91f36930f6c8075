"""The engine's own words: a silent scheduler is named, an illegal pass is refused, what is not verified dropped."""

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest

from specsim.core.passes import NOBODY, DraftPass, TargetPass
from specsim.core.trees import Forest
from specsim.errors import IllegalPass, ModelFault, SchedulerFault, SpecsimError
from specsim.server.planning import Livelock, check_rounds
from specsim.simulation import run
from tests.laws.subjects import factory_of
from tests.made import hardware, memory, requests, simulation


class Silent:
    def step(self, view):
        yield from ()


def test_a_scheduler_that_fails_to_begin_or_runs_nothing_is_named():
    class Failing(Silent):
        def begin(self, requests):
            raise ValueError("no room")

    told = requests([0.0, 2.0], [4, 4], [9, 9])
    with pytest.raises(SchedulerFault, match=r"scheduler Failing: ValueError: no room \(.*test_engine\.py:\d+\)"):
        run(simulation(told, [3, 3], Failing))
    with pytest.raises(Livelock, match=r"scheduler Silent at 2 s: runs nothing although 2 requests wait"):
        run(simulation(told, [3, 3], Silent))


def test_a_run_longer_than_its_clock_can_tell_is_refused():
    """At 3.2e13 s neighbouring float64 lie 4 ms apart; the arrivals alone were legal."""
    told = requests([0.0, 1.0], [4, 4], [9, 9])
    said = r"^the last request finishes after 3\.2e\+13 s; expected at most 8\.59e\+09 s, up to which a clock"
    with pytest.raises(SpecsimError, match=said):
        run(simulation(told, [1, 1], factory_of("fcfs"), truth=hardware(0.0, 0.0, 1.6e13)))


class Swapping:
    """Writes another request into its rows between two passes of a step."""

    def step(self, view):
        ids = np.array(view.waiting)
        yield DraftPass(ids, view.draft_pending(ids), Forest.roots(len(ids)))
        ids[0] = 8
        yield TargetPass(ids, np.array([4, 4]), Forest.roots(len(ids)))


def test_rows_that_change_within_a_step_are_looked_at_again():
    with pytest.raises(IllegalPass, match="request 8, which does not exist"):
        run(simulation(requests([0.0, 0.0], [4, 4], [9, 9]), [3, 3], Swapping))


class Plain:
    """First come first served, one pass a step; writes its rows into one array, its own or everybody's."""

    def __init__(self, rows=None):
        self.rows = np.zeros(2, dtype=np.int64) if rows is None else rows

    def step(self, view):
        those = [*view.running.tolist(), *view.waiting]
        ids = self.rows if len(those) == len(self.rows) else self.rows[: len(those)]
        ids[:] = those
        yield TargetPass(ids, view.pending(ids), Forest.roots(len(ids)))


def test_what_one_replica_writes_while_another_runs_changes_nothing():
    shared = np.zeros(2, dtype=np.int64)
    told = requests([0.0, 0.01, 0.01, 0.02], [4, 4, 40, 4], [9, 9, 9, 9])
    plain, found = (run(simulation(told, [3, 4, 5, 6], make, replicas=2)) for make in (Plain, lambda: Plain(shared)))
    assert np.array_equal(found.progress.finish_s, plain.progress.finish_s)


class Dropping:
    """Drafts a token for each that decodes, verifies none of them in that step, and decodes plainly in the next."""

    def __init__(self):
        self.drafts = False

    def step(self, view):
        ids = np.array([*view.running.tolist(), *view.waiting])
        assert view.held_bytes(ids).tolist() == (3 * view.target_cached[ids] + view.draft_cached[ids]).tolist()
        self.drafts = not self.drafts and not len(view.waiting)
        if self.drafts:
            forest, leaves = Forest.roots(len(ids)), np.arange(len(ids))
            chain = yield DraftPass(ids, view.draft_pending(ids), forest, leaves, 1)
            yield DraftPass(ids, NOBODY, chain, leaves + len(ids), 1)
        else:
            yield TargetPass(ids, view.pending(ids), Forest.roots(len(ids)))


def test_what_was_drafted_and_not_verified_is_dropped_at_the_end_of_the_step():
    told = requests([0.0, 0.0], [4, 4], [9, 9])
    record = run(simulation(told, [9, 9], Dropping, pool=memory(told, 9.0, block_tokens=1)))
    assert record.progress.emitted_tokens.tolist() == [9, 9]
    assert record.totals.draft_passes > 2


@pytest.mark.parametrize("wrong", [-1e-9, nan, inf, -inf])
@pytest.mark.parametrize(("place", "model"), [(0, "drafter"), (1, "drafter"), (2, "target")])
def test_a_round_names_the_model_whose_pass_is_wrong(wrong, place, model):
    seconds = np.ones((4, 3))
    seconds[2, place] = wrong
    with pytest.raises(ModelFault, match=f"a pass of the {model} takes"):
        check_rounds(seconds, float(seconds.sum()))


@pytest.mark.parametrize("multi_step", [True, False])
@pytest.mark.parametrize(("steps", "behind"), [(0, 0), (1, 1), (3, 2)])
def test_a_request_is_in_the_verifications_decided_before_its_end(steps, behind, multi_step):
    told = requests([0.0, 0.0], [1, 1], [50, 50])
    simulated = simulation(told, [10, 12], factory_of("continuous"), truth=hardware(0.0, 1.0, 0.0))
    one_s, other_s = run(replace(simulated, trailing_steps=steps, multi_step=multi_step)).progress.finish_s
    assert one_s == 2 * 10, "a second a token, two requests"
    assert other_s - one_s == 2 + behind, "two passes are left; so many hold the first request once more"
