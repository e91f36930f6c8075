"""Attained service is speculation and verification alone: who runs when does not depend on what a switch costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsim.schedulers.loading import scheduler_factory
from tests.laws.subjects import part_of, raw_of
from tests.laws.watch import Watched, watched
from tests.made import requests, simulation

SLOW = {"moving": {"host_bytes_per_s": 200.0}, "thinking": {"selection_s": 0.5}}
"""Seconds a switch, and half a second for every selection of nodes, where a pass takes 20 ms."""
ATTAINED: dict[str, dict[str, Any]] = {
    "laps_sd": {"acceptance": raw_of("laps_sd")["batching"]["acceptance"] | {"spread": 0.0}},
    "las": {},
    "fastserve": {"starvation_s": 1e9},
}
"""Who decides by attained service, and what lets it alone decide: nobody is perceptible, nobody is rescued."""


def by_service(name: str) -> Any:
    """Return the scheduler with one slot, caches that move, and token trees."""
    raw = raw_of(name) | {"max_num_seqs": 1, "switching": "transfer"}
    raw["batching"] |= ATTAINED[name]
    raw["speculation"] = part_of("laps_adaserve", "speculation")
    raw.pop("num_speculative_tokens", None)
    return scheduler_factory(raw, name)


def played(name: str, **costs: Any) -> Watched:
    """Play three requests that are there from the start: no arrival can fall elsewhere."""
    told = requests([0.0] * 3, [20, 12, 16], [60, 40, 50])
    return watched(simulation(told, [55, 38, 47], by_service(name), **costs))


def order_of(seen: Watched) -> list[int]:
    return [int(step.work.requests[0]) for step in seen.heard[0]]


@pytest.mark.parametrize("cost", SLOW)
@pytest.mark.parametrize("name", ATTAINED)
def test_who_runs_does_not_depend_on_what_a_switch_costs(name: str, cost: str) -> None:
    free, dear = played(name), played(name, **SLOW[cost])
    assert free.record.progress.preemptions.sum() > 1
    assert np.nanmax(dear.record.progress.finish_s) > 2 * np.nanmax(free.record.progress.finish_s)
    assert order_of(dear) == order_of(free)
