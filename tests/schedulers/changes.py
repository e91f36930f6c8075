"""One small, crowded run of a scheduler's YAML, and what must differ in it when a parameter does."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from specsim.schedulers.loading import scheduler_factory
from specsim.simulation import Record, Simulation, run
from tests.laws.subjects import mapping_of
from tests.made import hardware, memory, requests, simulation, tape

COUNT = 24


@cache
def crowd(room: float, belief: float) -> Simulation:
    """Return a simulation without a scheduler: the urgent class comes late, the cache holds `room` of the largest.

    Passes are believed to take `belief` times what they take.
    """
    luck = np.random.default_rng(7)
    at = np.arange(COUNT)
    outputs = luck.integers(2, 40, COUNT)
    told = requests(
        np.sort(luck.uniform(0, 0.3, COUNT)).tolist(),
        luck.integers(4, 40, COUNT).tolist(),
        (outputs + 5).tolist(),
        np.where(at < 8, 1 + at % 2, at % 3).tolist(),
    )
    truth = hardware(1e-5, 6e-3, 6e-3)
    pool, text = memory(told, room), tape(COUNT, 0.6)
    return simulation(told, outputs.tolist(), pool=pool, truth=truth, text=text, belief=truth.slower(belief))


def played(mapping: dict[str, Any], scene: Simulation) -> Record:
    return run(replace(scene, scheduler=scheduler_factory(mapping, "made")))


def with_value(mapping: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    changed = deepcopy(mapping)
    place = changed
    *above, last = path.split(".")
    for key in above:
        place = place[key]
    assert place[last] != value, path
    place[last] = value
    return changed


def assert_changed(
    name: str, path: str, value: Any, first: dict[str, Any] | None = None, room: float = 5.0, belief: float = 1.0
) -> None:
    """Assert that the run of `name`, with the values `first` by path, is another one with `value` at `path`."""
    mapping = mapping_of(name)
    for key, each in (first or {}).items():
        mapping = with_value(mapping, key, each)
    scene = crowd(room, belief)
    one, other = played(mapping, scene), played(with_value(mapping, path, value), scene)
    changed = not np.array_equal(one.columns.finish_s, other.columns.finish_s)
    assert changed, f"{name}: {path}={value!r} changes nothing"
