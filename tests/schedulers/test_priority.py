"""vLLM+Priority: the tightest objective first, by hand."""

from __future__ import annotations

import pytest

from specsim.core.passes import TargetPass
from specsim.schedulers.composed import Composed
from specsim.schedulers.parts.queues import Seats
from specsim.schedulers.priority import TightestFirst
from specsim.schedulers.vllm_spec import FixedChains
from tests.made import requests
from tests.unit.hand import Hand

URGENT, CHAT, FREE = 0, 1, 2


def test_the_tightest_run_and_the_others_follow_class_by_class() -> None:
    told = requests([0.0] * 4, [3] * 4, [9] * 4, [FREE, CHAT, URGENT, URGENT])
    hand = Hand(Composed(TightestFirst(Seats(2, 64, "mixed", 0.0, "keep")), FixedChains(0)), told)
    ran = []
    while hand.ledger.roster.live:
        work = hand.begin()
        ran.append(work.requests.tolist())
        hand.emit([1] * len(work.requests), ends=range(len(work.requests)))
    assert ran == [[2, 3], [1, 0]]


@pytest.mark.parametrize(("switching", "evicted"), [("keep", []), ("recompute", [0])])
def test_the_urgent_preempt(switching: str, evicted: list[int]) -> None:
    told = requests([0.0, 0.0, 0.0], [3] * 3, [9] * 3, [FREE, CHAT, URGENT])
    seats = Seats(2, 64, "mixed", 0.0, switching)  # type: ignore[arg-type]
    hand = Hand(Composed(TightestFirst(seats), FixedChains(0)), told)
    hand.ledger.roster.strike(2)  # it has not come yet
    assert hand.begin().requests.tolist() == [1, 0]
    hand.emit([1, 1])
    hand.ledger.roster.enter(2)
    work = hand.begin()
    assert isinstance(work, TargetPass)
    assert sorted(work.requests.tolist()) == [1, 2]
    assert work.evict.tolist() == evicted
    assert (hand.view.target_cached[0] > 0) == (switching == "keep")
