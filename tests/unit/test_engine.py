"""The engine's own words: a silent scheduler is named, an illegal pass is refused, an idle one may wait."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from specsim.core.passes import DraftPass, TargetPass
from specsim.core.protocols import Step, View
from specsim.core.request import Ids
from specsim.core.trees import Forest
from specsim.errors import IllegalPass, SchedulerFault, SpecsimError
from specsim.server.faults import Stalled
from specsim.server.planning import delays
from specsim.simulation import run
from tests.laws.subjects import factory_of
from tests.made import hardware, requests, simulation


class Silent:
    def step(self, view: View) -> Step:
        yield from ()


class Greedy:
    """Asks for one token more than there is."""

    def step(self, view: View) -> Step:
        ids = np.array(view.waiting)
        yield TargetPass(ids, view.pending(ids) + 1, Forest.roots(len(ids)))


class Patient:
    """Waits until two requests are there, then lets `continuous` go on."""

    def __init__(self) -> None:
        self.inner = factory_of("continuous")()

    def step(self, view: View) -> Step:
        if view.emitted_tokens.any() or len(view.waiting) > 1:
            yield from self.inner.step(view)


def test_state_a_request_is_made_once_before_the_first_step() -> None:
    class Keeping(Patient):
        def __init__(self) -> None:
            super().__init__()
            self.rows: list[int] = []

        def begin(self, requests: int) -> None:
            self.rows.append(requests)

        def step(self, view: View) -> Step:
            assert self.rows == [2]
            yield from super().step(view)

    record = run(simulation(requests([0.0, 2.0], [4, 4], [9, 9]), [3, 3], Keeping))
    assert record.progress.emitted_tokens.tolist() == [3, 3]


def test_a_failure_to_begin_names_the_scheduler() -> None:
    class Failing(Silent):
        def begin(self, requests: int) -> None:
            raise ValueError("no room")

    with pytest.raises(SchedulerFault, match=r"scheduler Failing: ValueError: no room \(.*test_engine\.py:\d+\)"):
        run(simulation(requests([0.0], [4], [9]), [3], Failing))


def test_a_scheduler_that_runs_nothing_is_named() -> None:
    with pytest.raises(Stalled, match=r"scheduler Silent at 2 s: runs nothing although 2 requests wait"):
        run(simulation(requests([0.0, 2.0], [4, 4], [9, 9]), [3, 3], Silent))


def test_an_illegal_pass_names_the_scheduler_and_the_time() -> None:
    with pytest.raises(IllegalPass, match=r"scheduler Greedy at 0 s: a chunk must hold"):
        run(simulation(requests([0.0], [4], [9]), [3], Greedy))


def test_a_scheduler_may_wait_for_the_next_arrival() -> None:
    progress = run(simulation(requests([0.0, 2.0], [4, 4], [9, 9]), [3, 3], Patient)).progress
    assert (progress.emitted_tokens == 3).all()
    assert (progress.first_token_s > 2.0).all()


@pytest.mark.parametrize("meanwhile", [[], [2.0**-7]], ids=["nobody comes meanwhile", "another comes meanwhile"])
def test_an_arrival_at_the_end_of_a_pass_joins_the_next(meanwhile: list[float]) -> None:
    """Whether another request has come during the pass or not."""
    pass_s = 2.0**-6
    told = requests([0.0, *meanwhile, pass_s], [4] * (2 + len(meanwhile)), [9] * (2 + len(meanwhile)))
    record = run(simulation(told, [3] * len(told), factory_of("continuous"), truth=hardware(0.0, 0.0, pass_s)))
    assert record.passes is not None
    assert record.progress.first_token_s.tolist() == [pass_s] + [2 * pass_s] * (1 + len(meanwhile))
    assert record.passes["queued"].tolist()[:2] == [1 + len(meanwhile), 0]


@pytest.mark.parametrize(("first_s", "second_s"), [(0.1, 0.45), (0.2, 0.85), (0.3, 0.85), (0.7, 2.85)])
def test_the_clock_stops_exactly_at_an_arrival(first_s: float, second_s: float) -> None:
    """Adding what lies between two arrivals to the first misses the second by a rounding, to either side."""
    assert first_s + (second_s - first_s) != second_s
    told = requests([0.0, first_s, second_s], [4] * 3, [1] * 3)
    record = run(simulation(told, [1] * 3, factory_of("fcfs"), truth=hardware(0.0, 0.0, 0.0625)))
    assert record.passes is not None
    assert record.passes["start_s"].tolist() == [0.0, first_s, second_s]


def test_a_run_longer_than_its_clock_can_tell_is_refused() -> None:
    """At 3.2e13 s neighbouring float64 lie 4 ms apart; the arrivals alone were legal."""
    told = requests([0.0, 1.0], [4, 4], [9, 9])
    said = r"^the last request finishes after 3\.2e\+13 s; expected at most 8\.59e\+09 s, up to which a clock"
    with pytest.raises(SpecsimError, match=said):
        run(simulation(told, [1, 1], factory_of("fcfs"), truth=hardware(0.0, 0.0, 1.6e13)))


class Plain:
    """First come first served, one pass a step, over an array that `ids` returns."""

    def step(self, view: View) -> Step:
        ids = self.ids([*view.running.tolist(), *view.waiting])
        yield TargetPass(ids, view.pending(ids), Forest.roots(len(ids)))

    def ids(self, those: list[int]) -> Ids:
        return np.array(those)


class Reusing(Plain):
    """Writes its rows into one array, which is its own or everybody's."""

    def __init__(self, rows: Ids) -> None:
        self.rows = rows

    def ids(self, those: list[int]) -> Ids:
        self.rows[: len(those)] = those
        return self.rows if len(those) == len(self.rows) else self.rows[: len(those)]


class Swapping(Reusing):
    """Writes another request into its rows between two passes of a step."""

    def step(self, view: View) -> Step:
        ids = self.ids(list(view.waiting))
        yield DraftPass(ids, view.draft_pending(ids), Forest.roots(len(ids)))
        self.rows[0] = 8
        yield TargetPass(ids, np.array([4, 4]), Forest.roots(len(ids)))


def test_the_arrays_of_a_pass_stay_the_schedulers_own() -> None:
    rows = np.zeros(1, dtype=np.int64)
    run(simulation(requests([0.0, 9.0], [4, 4], [9, 9]), [3, 3], lambda: Reusing(rows)))
    rows[0] = 7


def test_rows_that_change_within_a_step_are_looked_at_again() -> None:
    with pytest.raises(IllegalPass, match="request 8, which does not exist"):
        run(simulation(requests([0.0, 0.0], [4, 4], [9, 9]), [3, 3], lambda: Swapping(np.zeros(2, dtype=np.int64))))


def test_what_one_replica_writes_while_another_runs_changes_nothing() -> None:
    shared = np.zeros(2, dtype=np.int64)
    told = requests([0.0, 0.01, 0.01, 0.02], [4, 4, 40, 4], [9, 9, 9, 9])
    plain = run(simulation(told, [3, 4, 5, 6], Plain, replicas=2)).progress
    found = run(simulation(told, [3, 4, 5, 6], lambda: Reusing(shared), replicas=2)).progress
    assert np.array_equal(found.finish_s, plain.finish_s)


def test_a_draft_of_several_passes_ends_where_its_passes_end() -> None:
    """Also where no float added to the start gives the end: the passes are waited for one by one there."""
    luck = np.random.default_rng(0)
    several = 0
    for _ in range(2_000):
        start_s, seconds = luck.uniform(5e-4, 1e-2), luck.uniform(1e-4, 3e-3, luck.integers(1, 9)).tolist()
        waited = delays(start_s, seconds)
        assert fold(start_s, waited) == fold(start_s, seconds)
        assert len(waited) in (1, len(seconds))
        several += len(waited) > 1
    assert 0 < several < 200


def fold(start_s: float, seconds: Sequence[float]) -> float:
    for each in seconds:
        start_s += each
    return start_s
