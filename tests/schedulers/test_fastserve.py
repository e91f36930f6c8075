"""FastServe's skip-join queues, and LAS, by hand."""

from __future__ import annotations

import pytest

from specsim.schedulers.composed import Composed
from specsim.schedulers.fastserve import LeastAttained, SkipJoin
from specsim.schedulers.parts.queues import BatchSlots
from specsim.schedulers.vllm_spec import FixedChains
from tests.made import Hardware, Linear, requests
from tests.unit.hand import Hand

ONE = BatchSlots(1, 512, "mixed", 0.0, "keep")
COST_MODEL = Hardware(Linear(0.0, 0.001, 0.0), Linear(0.0, 0.0, 0.001))
"""A prompt of n tokens takes n ms."""


def joined(prompts: list[int], starvation_s: float = 100.0) -> tuple[SkipJoin, Hand]:
    """Return queues of 12, 24, 48 ms and no limit, and requests that have all arrived."""
    part = SkipJoin(ONE, 4, 0.012, 2.0, starvation_s)
    count = len(prompts)
    hand = Hand(Composed(part, FixedChains(0)), requests([0.0] * count, prompts, [30] * count, [2] * count))
    hand.view.cost_model = COST_MODEL
    return part, hand


def ran(hand: Hand, times: int) -> list[int]:
    who = []
    for _ in range(times):
        who.append(int(hand.begin().requests[0]))
        hand.emit([1])
    return who


def test_a_long_prompt_skips_the_queues_whose_quantum_is_too_short() -> None:
    part, hand = joined([12, 13, 24, 40, 49, 500])
    hand.begin()
    assert part.level.tolist() == [0, 1, 1, 2, 3, 3]


def test_who_has_used_its_quantum_sinks_to_the_end_of_the_next_queue() -> None:
    """A pass takes 10 ms: two use up 12 ms, three 24 ms, five 48 ms; nobody sinks from the last queue."""
    part, hand = joined([5, 5])
    assert ran(hand, 4) == [0, 0, 1, 1]
    assert part.level.tolist() == [1, 1]
    assert part.spent_s.tolist() == [0, 0]
    assert ran(hand, 6) == [0, 0, 0, 1, 1, 1]
    assert part.level.tolist() == [2, 2]
    assert ran(hand, 10) == [0] * 5 + [1] * 5
    assert part.level.tolist() == [3, 3]
    assert ran(hand, 3) == [0, 0, 0]
    assert part.level.tolist() == [3, 3]


def test_the_starved_return_to_the_first_queue() -> None:
    part, hand = joined([100, 5], starvation_s=0.045)
    assert ran(hand, 5) == [1] * 5
    assert ran(hand, 2) == [0, 0], "after 50 ms without service 0 has a first quantum again"
    assert part.level[0] == 1
    assert ran(hand, 1) == [1] or part.level[1] > 1


def test_least_attained_first() -> None:
    part = LeastAttained(ONE, 0.008)
    hand = Hand(Composed(part, FixedChains(0)), requests([0.0] * 3, [5] * 3, [30] * 3))
    assert ran(hand, 7) == [0, 1, 2, 0, 1, 2, 0]
    assert part.attained_s == pytest.approx([0.03, 0.02, 0.02])
