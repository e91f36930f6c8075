"""A step that preempts drafts for those who run: eviction goes with its first pass, and makes room for the trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from specsim.core.passes import TargetPass
from specsim.schedulers.loading import scheduler_factory
from specsim.simulation import Simulation
from tests.golden.scene import scene
from tests.laws.subjects import NAMES, raw_of, resolved
from tests.laws.watch import Heard, watched

NEVER = {"vllm", "continuous", "sarathi", "fcfs", "fcfs_slo", "stta", "priority", "fastserve", "vtc"}
"""Schedulers without speculation."""
FEW = {"adaserve_slo_only", "smartspec_artifact"}
"""The first verifies a node only where an objective asks for it: none at all in this scene. The second drafts only
while 1.1 times its tokens fit the cache, and whoever preempts has no such room."""
OFTEN: dict[str, dict[str, Any]] = {"las": {"quantum_s": 0.0}, "laps_sd": {"top_limit_s": 0.08}}


class StepOf(NamedTuple):
    """One step that decodes: whom its passes evict, and the nodes that it verifies."""

    evicted: int
    nodes: int


def decoding_steps(heard: list[Heard]) -> Iterator[StepOf]:
    evicted = 0
    for exchange in heard:
        evicted += len(exchange.work.evict)
        if isinstance(exchange.work, TargetPass):
            if (exchange.work.chunks == 1).any():
                yield StepOf(evicted, exchange.work.forest.draft_nodes)
            evicted = 0


def crowded(name: str) -> Simulation:
    """Return the golden scene, whose memory is tight; those with one seat switch often, and caches move then."""
    raw = raw_of(name)
    if "switching" in raw:
        raw["switching"] = "transfer"
    raw.get("batching", {}).update(OFTEN.get(name, {}))
    return replace(scene(), scheduler=scheduler_factory(resolved(raw), name))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NEVER | FEW])
def test_whoever_preempts_drafts_in_that_step(name: str) -> None:
    steps = [step for heard in watched(crowded(name)).heard for step in decoding_steps(heard)]
    preempting = [step.nodes for step in steps if step.evicted]
    if name in ("lp_sjf", "laps_sd_told", "srpt"):
        assert not preempting, "with one seat and room for its cache, nobody whose length or time is known is preempted"
        return
    assert preempting, "nobody is preempted: the scene shows nothing"
    assert any(preempting)
