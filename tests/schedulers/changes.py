"""Small, crowded runs of a scheduler's YAML, and whether a change of a parameter shows in them."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from specsim.metrics.recorder import Record
from specsim.schedulers.loading import scheduler_factory
from specsim.simulation import Simulation, run
from tests.laws.subjects import raw_of
from tests.made import Floats, Hardware, Linear, acceptance_trace, hardware, memory, requests, simulation

COUNT = 24
CHAT, URGENT, FREE = 1, 0, 2
SCENES: dict[str, dict[str, float]] = {
    "crowd": {},
    "tight": {"room": 2.0},
    "cheap": {"token_s": 5e-4},
    "sure": {"token_s": 5e-4, "agreement": 0.9},
    "hopeless": {"agreement": 0.02},
    "long": {"longest": 300},
}
"""Crowds by name. Tokens are so dear in most that no goodput is won by speculation, in others so cheap that it is."""


@cache
def scene(name: str) -> Simulation:
    """Return a small simulation without a scheduler."""
    return crowd(**SCENES[name])


def crowd(room: float = 5.0, agreement: float = 0.6, token_s: float = 6e-3, longest: float = 40) -> Simulation:
    """Return a crowd whose urgent class comes late; the cache holds `room` of the largest."""
    rng = np.random.default_rng(7)
    at = np.arange(COUNT)
    outputs = rng.integers(2, int(longest), COUNT)
    told = requests(
        np.sort(rng.uniform(0, 0.3, COUNT)).tolist(),
        rng.integers(4, 40, COUNT).tolist(),
        (outputs + 5).tolist(),
        np.where(at < 8, 1 + at % 2, at % 3).tolist(),
    )
    truth = hardware(1e-5, token_s, 6e-3)
    return simulation(
        told, outputs.tolist(), pool=memory(told, room), truth=truth, text=acceptance_trace(COUNT, agreement)
    )


def late() -> Simulation:
    """Return eight chats that a long prompt makes late; a step of eight is too slow for the urgent one at the end."""
    told = requests([0.0] * 8 + [0.2, 1.0], [2] * 8 + [700, 2], [30] * 10, [CHAT] * 8 + [FREE, URGENT])
    return simulation(told, [30] * 10, truth=Hardware(Linear(0.0, 0.006, 0.006), Linear(0.0, 0.001, 0.001)))


def played(mapping: dict[str, Any], scene: Simulation) -> Record:
    return run(replace(scene, scheduler=scheduler_factory(mapping, "made")))


def with_value(mapping: dict[str, Any], path: str, value: Any, *, again: bool = False) -> dict[str, Any]:
    """Return the YAML with another value at `path`; the same one may stand there only `again`."""
    changed = deepcopy(mapping)
    place = changed
    *above, last = path.split(".")
    for key in above:
        place = place[key]
    assert again or place[last] != value, path
    place[last] = value
    return changed


def shows(name: str, path: str, value: Any, first: Mapping[str, Any], where: str) -> bool:
    """Return whether a run of `name`, with the values `first` by path, is another one with `value` at `path`."""
    mapping = raw_of(name)
    for key, each in first.items():
        mapping = with_value(mapping, key, each, again=True)
    other = played(with_value(mapping, path, value), scene(where)).progress.finish_s
    return not np.array_equal(_finished(repr(mapping), where), other)


@cache
def _finished(mapping: str, where: str) -> Floats:
    """Return when the requests of a scene end under a YAML, which many changes start from."""
    return played(literal_eval(mapping), scene(where)).progress.finish_s
