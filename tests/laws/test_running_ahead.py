"""Multi-step scheduling leaves the record of single passes, whatever a run is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsim.cluster.split import Splitting
from specsim.core.protocols import Scheduler, Step, View
from specsim.server.admission import AdmissionControl
from specsim.simulation import Simulation, run
from tests.laws.every import assert_same_record
from tests.laws.subjects import factories
from tests.laws.test_prefix_cache import sharing
from tests.laws.test_routing import ROUTERS
from tests.made import acceptance_trace, simulations
from tests.unit.test_multi_step import MULTI_STEP

TIMEOUTS_S = st.sampled_from((None, None, 0.03, 0.11, 0.5, 3.0))
SPLITS = st.sampled_from((None, None, Splitting(1, 1e6), Splitting(2, float("inf"), 0.05)))
CLIENTS = st.sampled_from((None, None, 3, 9))


class Looking:
    """A scheduler that notes what it is shown before each step."""

    stationary = True

    def __init__(self, inner: Scheduler, shown: list[object]) -> None:
        self._inner, self._shown = inner, shown
        self._own = set[int]()

    def step(self, view: View) -> Step:
        ids = view.running
        told = (view.emitted_tokens, view.target_cached, view.draft_cached, view.first_decode_s, view.first_token_s)
        # Replicas share these rows: what a neighbour wrote meanwhile is not of this one.
        self._own.update([*view.waiting, *ids.tolist()])
        columns = tuple(each[sorted(self._own)].tobytes() for each in told)
        assert np.flatnonzero(view.waits(slice(None))).tolist() == sorted(view.waiting)
        held = view.free_bytes, view.held_bytes(ids).tolist()
        self._shown.append((view.now_s, view.forward_s, list(view.waiting), ids.tolist(), held, columns))
        return self._inner.step(view)


def looking(simulation: Simulation) -> tuple[Simulation, list[list[object]]]:
    """Return the simulation with schedulers that note what they are shown, one list a replica."""
    shown: list[list[object]] = []
    made: Callable[[], Scheduler] = simulation.scheduler

    def scheduler() -> Scheduler:
        shown.append([])
        return Looking(made(), shown[-1])

    return replace(simulation, scheduler=scheduler), shown


@st.composite
def worlds(draw: st.DrawFn, name: str) -> Simulation:
    """Draw a simulation of a scheduler with all that may come between two of its steps."""
    simulated = draw(st.one_of(simulations(24), sharing()))
    if draw(st.booleans()):
        agreement, seed = draw(st.sampled_from((0.3, 0.9))), draw(st.integers(0, 3))
        text = acceptance_trace(len(simulated.requests), agreement, seed, depths=3 if seed % 2 else 1)
        simulated = replace(simulated, ground_truth=replace(simulated.ground_truth, acceptance_trace=text))
    split = draw(SPLITS)
    routers = sorted(ROUTERS.keys() - {"dedicated"} if split is not None else ROUTERS)
    return replace(
        simulated,
        scheduler=draw(factories(name)),
        router=ROUTERS[draw(st.sampled_from(routers))],
        replicas=4 if split is not None else draw(st.sampled_from((1, 1, 4))),
        split=split,
        concurrency=draw(CLIENTS),
        timeout_s=draw(TIMEOUTS_S),
        admission_control=draw(st.sampled_from((None, None, AdmissionControl(5, True)))),
        pipeline_steps=draw(st.sampled_from((0, 0, 1, 4))),
        trailing_steps=draw(st.sampled_from((0, 0, 1, 3))),
        frontend_s=draw(st.sampled_from((0.0, 0.013))),
    )


@st.composite
def unseen(draw: st.DrawFn, name: str) -> Simulation:
    """Draw a simulation in which steps are decided before an arrival is seen, and no other event falls between them."""
    nothing = {"split": None, "concurrency": None, "timeout_s": None, "admission_control": None}
    return replace(draw(worlds(name)), replicas=1, **nothing, pipeline_steps=draw(st.sampled_from((1, 1, 2, 4))))


@pytest.mark.parametrize("drawn", [worlds, unseen])
@pytest.mark.parametrize("name", [name for name in MULTI_STEP if name != "vllm"])
def test_what_runs_at_once_is_booked_and_shown_as_one_by_one(
    name: str, drawn: Callable[[str], st.SearchStrategy[Simulation]]
) -> None:
    """A scheduler that is asked less often is shown, whenever it is asked, what it would be shown then.

    `vllm` is one of these others on its engine (test_degenerate.py).
    """
    count, fewer = 15, 0

    @settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    @given(simulated=drawn(name))
    def alike(simulated: Simulation) -> None:
        nonlocal fewer
        at_once, few = looking(simulated)
        apart, many = looking(replace(simulated, multi_step=False))
        assert_same_record(run(at_once), run(apart))
        for some, every in zip(few, many, strict=True):
            rest = iter(every)
            assert all(each in rest for each in some)
        fewer += sum(map(len, few)) < sum(map(len, many))

    alike()
    assert fewer >= count // 5, "too few of the examples ran anything at once"
