"""Requests that an engine which decides ahead has not seen yet, step by step and in whole runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specsim.server.admission import Lobby
from specsim.simulation import run
from tests.laws.subjects import NAMES, factory_of
from tests.made import hardware, requests, simulation

TOLD = requests([0.0, 0.0, 0.0], [1, 1, 1], [1, 1, 1], [0, 0, 0])


def seen(lobby: Lobby, now_s: float) -> list[int]:
    return [request for request, _ in lobby.start(now_s)]


def test_a_step_sees_who_had_arrived_when_the_one_before_it_started() -> None:
    lobby = Lobby(1)
    lobby.enter(0, TOLD, 0.0)
    assert seen(lobby, 0.0) == [0], "an idle engine sees everybody"
    lobby.enter(1, TOLD, 0.5)
    assert seen(lobby, 1.0) == [], "this step was decided at 0"
    lobby.enter(2, TOLD, 1.5)
    assert seen(lobby, 2.0) == [1]
    assert seen(lobby, 3.0) == [2]
    assert not lobby


def test_two_steps_ahead_wait_for_one_step_more() -> None:
    lobby = Lobby(2)
    assert seen(lobby, 0.0) == seen(lobby, 1.0) == []
    lobby.enter(0, TOLD, 1.5)
    assert seen(lobby, 2.0) == seen(lobby, 3.0) == []
    assert seen(lobby, 4.0) == [0]


def test_an_engine_that_was_idle_sees_everybody() -> None:
    lobby = Lobby(1)
    assert seen(lobby, 0.0) == []
    lobby.enter(0, TOLD, 0.5)
    lobby.idle()
    assert seen(lobby, 0.7) == [0]


def steady(**more: float) -> np.ndarray:
    """Return the TTFT of requests that arrive within passes of 0.1 s that somebody else keeps running."""
    at = [0.0, *(1.03 + 0.5 * np.arange(8))]
    told = requests(at, [1] * 9, [200] * 9, [0] * 9)
    simulated = simulation(told, [200, *[2] * 8], factory_of("continuous"), truth=hardware(0.0, 0.0, 0.1))
    record = run(replace(simulated, **more))
    return (record.progress.first_token_s - record.requests.arrival_s)[1:]


def test_a_step_decided_ahead_is_a_step_later() -> None:
    now, ahead = steady(), steady(pipeline_steps=1)
    assert now == pytest.approx(0.17)
    assert ahead == pytest.approx(0.27)


def test_the_frontend_comes_before_the_queue() -> None:
    assert steady(frontend_s=0.05) == pytest.approx(0.22), "the first request is late as well, and so are all passes"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_scheduler_ends_behind_a_pipeline(name: str) -> None:
    told = requests([0.0, 0.2, 0.21, 5.0], [9, 30, 4, 7], [12, 9, 20, 8], [0, 1, 2, 0])
    simulated = simulation(told, [12, 9, 15, 8], factory_of(name), truth=hardware())
    progress = run(replace(simulated, pipeline_steps=2, frontend_s=0.01)).progress
    assert progress.emitted_tokens.tolist() == [12, 9, 15, 8]
    assert (progress.first_token_s >= told.arrival_s + 0.01).all()
