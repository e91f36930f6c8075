"""UCBSpec: its confidence radius, which arm it pulls, and what a step is worth."""

from __future__ import annotations

from math import log, sqrt
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from specsim.core.passes import Emitted
from specsim.core.trees import Forest
from specsim.schedulers.banditspec import UcbLengths
from specsim.schedulers.parts.protocols import Sequences
from tests.made import Linear
from tests.schedulers.test_specserve import play, verified


def test_the_radius_is_that_of_equation_6() -> None:
    """L = 4, K = 2, delta = 0.1, t = 4 + 1 steps: 2 sqrt(5 / 16 (1 + 2 log(2 x 25 x sqrt 5 / 0.1))) = 4.34."""
    part = UcbLengths([0, 4], 0.1, 1.0)
    part.pulls[:] = [4, 1]
    assert part.radius() == pytest.approx(
        [2 * sqrt(5 / 16 * (1 + 2 * log(500 * sqrt(5)))), 2 * sqrt(2 * (1 + 2 * log(500 * sqrt(2))))]
    )
    assert part.radius()[0] == pytest.approx(4.34, abs=0.01)
    part.delta = 1e-320
    assert np.isfinite(part.radius()).all()


@pytest.mark.parametrize(
    ("pulls", "means", "exploration", "arm"),
    [
        ([0, 0, 0], [0, 0, 0], 1.0, 0),
        ([1, 1, 0], [9, 9, 0], 1.0, 2),
        ([50, 50, 50], [1.0, 1.2, 1.1], 1.0, 1),
        ([50, 50, 5], [1.0, 1.2, 1.1], 1.0, 2),
        ([50, 50, 5], [1.0, 1.2, 1.1], 0.0, 1),
    ],
)
def test_each_arm_is_pulled_once_and_then_the_highest_bound(
    pulls: Any, means: Any, exploration: float, arm: int
) -> None:
    part = UcbLengths([0, 1, 3], 0.1, exploration)
    part.pulls[:], part.means[:] = pulls, means
    assert part.arm == arm


def test_a_step_is_worth_its_tokens_over_its_time_in_plain_steps() -> None:
    """Every pass takes 10 ms, a plain step is believed to take 15: one token in 10 ms, 3 (of 2 right) in 3 x 10 ms."""
    part = UcbLengths([0, 2], 0.1, 0.0)
    hand = play(part, Linear(0.0, 0.0, 0.015))
    assert verified(hand, 0.9) == [0]
    hand.emit([1])
    assert verified(hand, 0.9) == [2]
    hand.emit([3], [2])
    assert (part.means.tolist(), part.pulls.tolist()) == (pytest.approx([1.5, 1.5]), [1, 1])
    assert verified(hand, 0.9) == [0], "the first of equals"
    hand.emit([1])
    assert part.pulls.tolist() == [2, 1]


def test_no_step_is_worth_more_than_an_arm_can_bring() -> None:
    part = UcbLengths([0, 2], 0.1, 0.0)
    hand = play(part, Linear(0.0, 0.0, 1.0))
    verified(hand, 0.9)
    hand.emit([1])
    assert part.means.tolist() == [3.0, 0.0]


def test_a_step_without_memory_for_its_chains_teaches_nothing() -> None:
    part, view = UcbLengths([0, 2], 0.1, 0.0), SimpleNamespace(forward_s=1.0)
    one, none = np.ones(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    rows, answer = Sequences(none, one, 1, none), Emitted(one, none, none, none > 0)
    for _ in range(3):
        part.on_verified(view, rows, Forest.roots(1), answer)  # type: ignore[arg-type]
    assert part.pulls.tolist() == [1, 0], "the second would have drafted"


@pytest.mark.parametrize(
    ("arms", "delta", "said"),
    [
        ([], 0.1, "is no list of draft tokens"),
        ([-1, 2], 0.1, "arms=-1 is below 0"),
        ([0, 1], 0.0, "delta=0.0 is not in"),
    ],
)
def test_what_is_no_arm_is_refused(arms: Any, delta: float, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        UcbLengths(arms, delta, 1.0)
