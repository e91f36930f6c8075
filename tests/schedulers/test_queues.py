"""Queues by attained service: FastServe's skip-join queues and LAS by hand, and what attained service is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.schedulers.composed import Composed
from specsim.schedulers.fastserve import LeastAttained, SkipJoin
from specsim.schedulers.loading import scheduler_factory
from specsim.schedulers.parts.queues import BatchSlots, nearest
from specsim.schedulers.vllm_spec import FixedChains
from tests.laws.every import Watched, watched
from tests.laws.subjects import part_of, raw_of
from tests.made import Hardware, Linear, requests, simulation
from tests.unit.hand import Hand

ONE = BatchSlots(1, 512, "mixed", 0.0, "keep")


def joined(prompts: list[int], starvation_s: float = 100.0, cached: Any = None) -> tuple[SkipJoin, Hand]:
    """Return queues of 12, 24, 48 ms and no limit, and requests that have all arrived; n tokens to read take n ms."""
    part = SkipJoin(ONE, 4, 0.012, 2.0, starvation_s)
    count = len(prompts)
    hand = Hand(Composed(part, FixedChains(0)), requests([0.0] * count, prompts, [30] * count, [2] * count, cached))
    hand.view.cost_model = Hardware(Linear(0.0, 0.001, 0.0), Linear(0.0, 0.0, 0.001))
    return part, hand


def ran(hand: Hand, times: int) -> list[int]:
    steps = ((hand.begin(), hand.emit([1]))[0] for _ in range(times))
    return [int(work.requests[0]) for work in steps]


def test_a_long_prompt_skips_the_queues_whose_quantum_is_too_short() -> None:
    part, hand = joined([12, 13, 24, 40, 49, 500, 500], cached=[0] * 6 + [480])
    work = hand.begin()
    assert part.level.tolist() == [0, 1, 1, 2, 3, 3, 1], "of the last 20 tokens are to be read"
    part.on_verified(hand.view, work, None, None, 0.012)  # type: ignore[arg-type]
    assert part.level[0] == 0, "just used up"


def test_who_has_used_its_quantum_sinks_to_the_front_of_the_next_queue() -> None:
    """A pass takes 10 ms: two use up 12 ms, three 24 ms, five 48 ms; nobody sinks from the last queue."""
    part, hand = joined([5, 5])
    for first, passes, level in ((0, 2, 1), (1, 3, 2), (0, 5, 3)):
        assert ran(hand, 2 * passes) == [first] * passes + [1 - first] * passes
        assert (part.level.tolist(), part.spent_s.tolist()) == ([level] * 2, [0, 0])
    assert (ran(hand, 3), part.level.tolist()) == ([1, 1, 1], [3, 3])


def test_a_batch_returns_to_the_front_the_last_one_foremost() -> None:
    part, hand = joined([5] * 4)
    for ids in [0, 1, 2], [2, 1]:
        part.batch_slots = BatchSlots(len(ids), 512, "mixed", 0.0, "keep")
        assert hand.begin().requests.tolist() == ids
        hand.emit([1] * len(ids))


def test_the_starved_return_to_the_first_queue() -> None:
    part, hand = joined([100, 5], starvation_s=0.045)
    assert ran(hand, 5) == [1] * 5
    part.spent_s[0] = 0.005
    assert ran(hand, 1) == [0], "50 ms without service"
    assert (part.level[0], part.spent_s[0]) == (1, 0), "of 12 ms it had spent 5"


def test_least_attained_first() -> None:
    part = LeastAttained(ONE, 0.008)
    hand = Hand(Composed(part, FixedChains(0)), requests([0.0] * 3, [5] * 3, [30] * 3))
    assert (ran(hand, 7), part.attained_s) == ([0, 1, 2, 0, 1, 2, 0], pytest.approx([0.03, 0.02, 0.02]))


# --- attained service is speculation and verification alone: who runs when does not depend on what a switch costs -----

SLOW = {"moving": {"host_bytes_per_s": 200.0}, "thinking": {"selection_s": 0.5}}
"""Seconds a switch, and half a second for every selection of nodes, where a pass takes 20 ms."""
ATTAINED: dict[str, dict[str, Any]] = {
    "laps_sd": {"acceptance": raw_of("laps_sd")["batching"]["acceptance"] | {"spread": 0.0}},
    "las": {},
    "fastserve": {"starvation_s": 1e9},
}
"""Schedulers by attained service, and settings with which it alone decides: no request is perceptible or rescued."""


def played(name: str, **costs: Any) -> Watched:
    """Play three requests that are there from the start, on one slot, with caches that move, and token trees."""
    raw = raw_of(name) | {"max_num_seqs": 1, "switching": "transfer"}
    raw["batching"] |= ATTAINED[name]
    raw["speculation"] = part_of("laps_adaserve", "speculation")
    raw.pop("num_speculative_tokens", None)
    told = requests([0.0] * 3, [20, 12, 16], [60, 40, 50])
    return watched(simulation(told, [55, 38, 47], scheduler_factory(raw, name), **costs))


@pytest.mark.parametrize("cost", SLOW)
@pytest.mark.parametrize("name", ATTAINED)
def test_who_runs_does_not_depend_on_what_a_switch_costs(name: str, cost: str) -> None:
    free, dear = played(name), played(name, **SLOW[cost])
    assert free.record.progress.preemptions.sum() > 1
    assert np.nanmax(dear.record.progress.finish_s) > 2 * np.nanmax(free.record.progress.finish_s)
    orders = [[step.work.requests[0] for step in seen.heard[0]] for seen in (free, dear)]
    assert orders[0] == orders[1]


# --- the order of a queue, in which those that can get no slot are left out before it is sorted -----------------------


@given(data=st.data(), most=st.integers(1, 12))
def test_the_nearest_are_the_first_of_a_sort(data: st.DataObject, most: int) -> None:
    count = data.draw(st.integers(0, 30))
    few = st.lists(st.sampled_from([0.0, 1.0, 2.0, np.inf, np.nan]), min_size=count, max_size=count)
    one, two = (np.array(data.draw(few), dtype=np.float64) for _ in range(2))
    last = np.array(data.draw(st.permutations(range(count))), dtype=np.int64)
    assert sorted(nearest((one, two, last), most).tolist()) == sorted(np.lexsort((last, two, one))[:most].tolist())
