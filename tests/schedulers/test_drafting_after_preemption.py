"""A step that preempts drafts for those who run: eviction goes with its first pass, and makes room for the trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from specsim.core.passes import DraftPass, TargetPass
from specsim.core.trees import Forest
from specsim.errors import IllegalPass
from specsim.schedulers.composed import Composed
from specsim.schedulers.fastserve import LeastAttained
from specsim.schedulers.loading import scheduler_factory
from specsim.schedulers.parts.protocols import evicting
from specsim.schedulers.parts.queues import Seats
from specsim.schedulers.vllm_spec import FixedChains
from specsim.simulation import Simulation
from tests.golden.scene import scene
from tests.laws.subjects import NAMES, raw_of, resolved
from tests.laws.watch import Heard, watched
from tests.made import memory, requests
from tests.unit.hand import Hand, sizes

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


def two_by_turns(switching: Any) -> Hand:
    """Return two requests with one seat, which the cache would hold both: 0 has been served first."""
    part = LeastAttained(Seats(1, 64, "mixed", 0.0, switching), 0.0)
    told = requests([0.0, 0.0], [5, 5], [30, 30])
    hand = Hand(Composed(part, FixedChains(3)), told, memory(told, 9.0, block_tokens=1))
    for _ in range(2):
        assert isinstance(hand.begin(), DraftPass)
        hand.propose()
        hand.emit([1])
    return hand


def test_a_cache_moves_before_the_first_draft_pass_and_the_chain_is_whole() -> None:
    """0 reads its prompt and then 1; at the third step 0 comes back, 1 goes to the host, and 0 drafts at once."""
    hand = two_by_turns("transfer")
    first = hand.begin()
    assert isinstance(first, DraftPass)
    assert (first.requests.tolist(), first.evict.tolist(), first.transfer) == ([0], [1], True)
    second = hand.propose(0.9)
    assert isinstance(second, DraftPass)
    assert second.evict.tolist() == []
    hand.propose(0.9)
    work = hand.propose(0.9)
    assert (sizes(work), work.evict.tolist()) == ([3], [])
    assert hand.ledger.progress.preemptions.tolist() == [1, 1]


def test_what_the_evicted_leave_holds_the_trees() -> None:
    """No byte is free: 1 must go before 0 can decode at all, and its 24 bytes hold more than 0 can use."""
    told = requests([0.0, 0.0], [5, 5], [30, 30])
    part = LeastAttained(Seats(2, 64, "mixed", 0.0, "keep"), 0.0)
    hand = Hand(Composed(part, FixedChains(3)), told, memory(told, 9.0, block_tokens=1))
    hand.begin()
    hand.propose()
    hand.emit([1, 1])
    pool = hand.ledger.pool
    pool.memory = replace(pool.memory, capacity_bytes=pool.used_bytes)
    work = hand.begin()
    assert isinstance(work, DraftPass)
    assert (work.requests.tolist(), work.evict.tolist()) == ([0], [1])
    while isinstance(work, DraftPass):
        work = hand.propose(0.9)
    assert sizes(work) == [3]


def test_without_a_draft_pass_the_verification_evicts() -> None:
    def no_pass() -> Any:
        return Forest.roots(1)
        yield

    with pytest.raises(StopIteration) as end:
        next(evicting(no_pass(), np.array([4])))
    assert end.value.value[1].tolist() == [4]


def test_a_refusal_reaches_the_part_that_asked() -> None:
    heard: list[str] = []

    def asking() -> Any:
        try:
            yield DraftPass(np.array([0]), np.array([1]), Forest.roots(1))
        except IllegalPass as refusal:
            heard.append(str(refusal))
            raise

    growing = evicting(asking(), np.array([4]))
    assert next(growing).evict.tolist() == [4]
    with pytest.raises(IllegalPass, match="no"):
        growing.throw(IllegalPass("no"))
    assert heard == ["no"]
