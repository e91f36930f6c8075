"""The oracle law: what a scheduler decides depends on the past alone, and nothing it is given reaches the future."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsim.cluster.routers import RoundRobin
from specsim.core.protocols import View
from specsim.simulation import Simulation
from tests.laws.every import Heard, drawn, same, watched
from tests.laws.subjects import NAMES, factory_of, uses_oracle
from tests.made import requests, simulation

WITHOUT_ORACLE = [name for name in NAMES if not uses_oracle(name)]
every_scheduler = pytest.mark.parametrize("name", WITHOUT_ORACLE)
profile = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def assert_same_past(one: list[Heard], other: list[Heard], until_s: float = np.inf) -> None:
    """Two conversations agree on every decision up to the first answer that differs, or the first at `until_s`."""
    for mine, theirs in zip_longest(one, other):
        if all(step is None or step.asked_s >= until_s for step in (mine, theirs)):
            return
        assert None not in (mine, theirs), "only one of the two went on, although all answers were the same"
        assert mine.asked_s == theirs.asked_s
        assert same(mine.work, theirs.work), f"decisions differ at {mine.asked_s} s before any answer does"
        if not same(mine.answer, theirs.answer):
            return


def assert_same_pasts(heard: list[list[Heard]], otherwise: Simulation, until_s: float = np.inf) -> None:
    """Hold each replica's conversation to the other run's; a router may have seen what has shown on another replica."""
    others = watched(otherwise).heard
    shown_s = [shows_at(one, other) for one, other in zip(heard, others, strict=True)]
    for replica, (one, other) in enumerate(zip(heard, others, strict=True)):
        elsewhere_s = [each for place, each in enumerate(shown_s) if place != replica]
        looks = otherwise.router is not RoundRobin
        assert_same_past(one, other, min([until_s, *elsewhere_s]) if looks else until_s)


def shows_at(one: list[Heard], other: list[Heard]) -> float:
    """Return when the first pass was asked for that is answered differently; infinite if none is."""
    for mine, theirs in zip(one, other, strict=False):
        if mine.asked_s != theirs.asked_s or not same(mine.work, theirs.work):
            break
        if not same(mine.answer, theirs.answer):
            return mine.asked_s
    return float("inf")


def other_lengths(simulated: Simulation, seed: int) -> Simulation:
    """Return the simulation with half of the outputs anywhere within what max_tokens allows."""
    rng, truth = np.random.default_rng(seed), simulated.ground_truth
    anywhere = rng.integers(1, simulated.requests.max_tokens, endpoint=True)
    outputs = np.where(rng.random(len(anywhere)) < 0.5, anywhere, truth.output_tokens)
    return replace(simulated, ground_truth=replace(truth, output_tokens=outputs))


def other_target_tokens(simulated: Simulation, seed: int) -> Simulation:
    """Return the simulation with a tenth of the target's tokens drawn anew."""
    rng, truth, text = np.random.default_rng(seed), simulated.ground_truth, simulated.ground_truth.acceptance_trace
    changed = np.where(rng.random(len(text.rank)) < 0.1, rng.integers(0, text.width, len(text.rank)), text.rank)
    return replace(simulated, ground_truth=replace(truth, acceptance_trace=replace(text, rank=changed)))


def later_arrivals(simulated: Simulation) -> tuple[Simulation, float]:
    """Return the simulation with others in the place of the last arrivals, 3 s later, and when the first came."""
    told = simulated.requests
    until_s = float(told.arrival_s[-1]) * (1 - 1e-12)
    late = told.arrival_s >= until_s
    changed = {"prompt_tokens": 1, "slo_class": 0, "tpot_slo_s": 1e-3}
    columns = {key: np.where(late, value, getattr(told, key)) for key, value in changed.items()}
    others = replace(told, arrival_s=told.arrival_s + 3.0 * late, **columns)
    return replace(simulated, requests=others), until_s


def judge_blindness(name: str, data: st.DataObject, most_requests: int) -> None:
    """Other lengths, other target tokens and later arrivals change no decision before they show."""
    simulated = drawn(name, data, most_requests)
    seed = data.draw(st.integers(0, 9))
    heard = watched(simulated).heard
    assert_same_pasts(heard, other_lengths(simulated, seed))
    assert_same_pasts(heard, other_target_tokens(simulated, seed))
    assert_same_pasts(heard, *later_arrivals(simulated))


@every_scheduler
@settings(profile, max_examples=2)
@given(data=st.data())
def test_the_future_changes_no_decision_before_it_shows(name: str, data: st.DataObject) -> None:
    judge_blindness(name, data, most_requests=16)


@pytest.mark.slow
@every_scheduler
@settings(profile, max_examples=6, derandomize=False, print_blob=True)
@given(data=st.data())
def test_the_future_changes_no_decision_before_it_shows_thoroughly(name: str, data: st.DataObject) -> None:
    judge_blindness(name, data, most_requests=40)


# --- nothing reaches the future ---------------------------------------------------------------------------------------

LEAVES = (int, float, str, bytes, bool, type(None), type, np.generic)


def reachable_arrays(thing: Any) -> list[np.ndarray[Any, Any]]:
    """Return every array that attributes, public or private, slots and containers lead to."""
    found: list[np.ndarray[Any, Any]] = []
    seen: dict[int, Any] = {}
    todo = [thing]
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, LEAVES):
            continue
        seen[id(each)] = each
        if isinstance(each, np.ndarray):
            found.append(each)
            todo.append(each.base)
            continue
        if isinstance(each, dict):
            todo += [*each, *each.values()]
        elif isinstance(each, (list, tuple, set, frozenset)):
            todo += each
        todo += vars(each).values() if hasattr(each, "__dict__") else ()
        slots = [name for kind in type(each).__mro__ for name in getattr(kind, "__slots__", ())]
        todo += [getattr(each, name) for name in slots if hasattr(each, name)]
        todo += [cell.cell_contents for cell in getattr(each, "__closure__", None) or ()]
        todo += [getattr(each, "__self__", None), getattr(each, "__func__", None)]
    return found


def future_of(simulated: Simulation) -> list[np.ndarray[Any, Any]]:
    told, truth, text = simulated.requests, simulated.ground_truth, simulated.ground_truth.acceptance_trace
    drawn = [text.confidence, text.rank, text.keys, text.layout.start, text.layout.off_start, truth.output_tokens]
    return [*drawn, told.arrival_s, told.prompt_tokens, told.max_tokens, told.slo_class, told.tpot_slo_s]


@every_scheduler
def test_no_view_reaches_the_world_or_what_has_not_arrived(name: str) -> None:
    arrival_s = [0.0, 0.0, 0.01, 0.2, 0.5, 9.0, 20.0]
    count = len(arrival_s)
    told = requests(arrival_s, [9] * count, [7] * count, [0, 1, 2, 0, 1, 2, 1])
    simulated = simulation(told, [5, 1, 7, 3, 6, 2, 4], factory_of(name))
    looks: list[float] = []

    def spy(view: View) -> None:
        looks.append(view.now_s)
        arrays = reachable_arrays(view)
        assert len(arrays) > 10
        for each in arrays:
            assert not any(np.shares_memory(each, one) for one in future_of(simulated))
        later = told.arrival_s > view.now_s + 1e-9
        for column in ("arrival_s", "prompt_tokens", "max_tokens", "slo_class", "tpot_slo_s", "ttft_slo_s"):
            unknown = getattr(view, column)[later]
            assert (np.isnan(unknown) | (unknown == 0)).all(), column

    watched(simulated, spy)
    assert looks[0] < told.arrival_s[-1] <= looks[-1]


def test_a_view_cannot_be_written_to() -> None:
    told = requests([0.0, 0.0], [4, 4], [9, 9])
    checked: list[str] = []

    def spy(view: View) -> None:
        for name in (each for each in dir(view) if not each.startswith("_")):
            value = getattr(view, name)
            if isinstance(value, np.ndarray):
                checked.append(name)
                assert not value.flags.writeable, name

    watched(simulation(told, [3, 2], factory_of("vllm_spec")), spy)
    assert set(checked) >= {"emitted_tokens", "target_cached", "draft_cached", "arrival_s", "max_tokens", "running"}
