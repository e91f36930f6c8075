"""SmartSpec as released, played by hand: when it is asked, what it decides, and what it learns."""

from __future__ import annotations

from typing import Any

import pytest

from specsim.schedulers.composed import Composed
from specsim.schedulers.continuous import PrefillFirst
from specsim.schedulers.smartspec.released import ReleasedLengths
from tests.made import Hardware, Linear, memory, requests
from tests.schedulers.test_specserve import DRAFT_S, play, verified
from tests.unit.hand import Hand

CHEAP = Linear(0.0, 0.0, 1.0)
"""Tokens cost nothing: the longest chain has the best goodput."""
AT_ONCE = {"decision_steps": 1, "retry_steps": 1}


def released(**changed: Any) -> ReleasedLengths:
    given: dict[str, Any] = {
        "num_speculative_tokens": 8,
        "first_rate": 0.7,
        "weight": 0.15,
        "counted": "drafted",
        "decision_steps": 20,
        "plain_factor": 1.1,
        "retry_steps": 100,
        "memory_factor": 1.1,
    }
    return ReleasedLengths(**(given | changed))


def lengths(hand: Hand, steps: int, matched: int = 0) -> list[int]:
    """Play so many steps of one request, whose first `matched` drafts are right; return what each drafted."""
    found = []
    for _ in range(steps):
        found += verified(hand, 0.9)
        right = min(matched, found[-1])
        hand.emit([right + 1], [right])
    return found


def test_it_decides_when_it_is_asked_the_twentieth_time() -> None:
    """With a retry after every step it is asked in each; the length before the first decision is 0."""
    hand = play(released(retry_steps=1), CHEAP, most=400)
    assert lengths(hand, 42, matched=8) == [0] * 19 + [8] * 23


@pytest.mark.parametrize(("plain_factor", "length"), [(1.1, 0), (1.0, 1)])
def test_speculation_has_to_win_by_a_tenth(plain_factor: float, length: int) -> None:
    """1 / 17 ms is 58.8 tokens/s, 64.7 with the factor; k = 1 has 1.7 / 28 ms = 60.7, k = 2 2.19 / 39 ms = 56.2."""
    part = released(plain_factor=plain_factor, **AT_ONCE)
    assert lengths(play(part, Linear(0.0, 1e-3, 0.016)), 1) == [length]


def test_the_search_stops_at_the_first_fall() -> None:
    """All depths in one pass of 10 ms: k = 1 has 1.7 / 13 ms, below 1 / 2 ms; k = 8 would have 3.2 / 12 ms x 1.1."""
    part = released(plain_factor=1.0, first_rate=1.0, **AT_ONCE)
    hand = play(part, Linear(0.0, 0.0, 0.002))
    hand.view.cost_model = Hardware(Linear(0.0, 0.0, 0.002), Linear(0.0, 0.0, DRAFT_S, one_pass=True))
    assert lengths(hand, 1) == [0], "2 / 12 ms is less than 1 / 2 ms, 9 / 12 ms is more"


@pytest.mark.parametrize(("counted", "share"), [("drafted", 2 / 8), ("tried", 2 / 3)])
def test_a_step_that_drafted_moves_the_rate(counted: Any, share: float) -> None:
    part = released(counted=counted, decision_steps=1, retry_steps=1)
    hand = play(part, CHEAP)
    assert lengths(hand, 1, matched=2) == [8]
    assert part.rate == pytest.approx(0.85 * 0.7 + 0.15 * share)


def test_a_length_that_nearly_fills_the_cache_has_no_goodput() -> None:
    """4 bytes for each of 5 + 1 + k tokens, of 180: 4 x 4 x 11 is 176, for k = 6 it is 192."""
    told = requests([0.0], [5], [40])
    pool = memory(told, 1.0, block_tokens=1)
    assert pool.capacity_bytes == 180
    hand = Hand(Composed(PrefillFirst(8, 64, 0.0), released(memory_factor=4.0, **AT_ONCE)), told, pool)
    hand.view.cost_model = Hardware(CHEAP, Linear(0.0, 0.0, DRAFT_S))
    hand.begin()
    hand.propose()
    hand.emit([1])
    assert verified(hand, 0.9) == [5]
