"""SGLang's adaptive steps: what moves a slot, which slot a batch has, and what its configuration may say."""

from __future__ import annotations

from typing import Any

import pytest

from specsim.schedulers.sglang_adaptive import AdaptiveSteps, Slot
from tests.made import Linear
from tests.schedulers.test_specserve import play, verified

EAGER = {"ema_alpha": 1.0, "warmup_batches": 0, "update_interval": 1}


def slot(steps: list[int], start: int, **more: Any) -> Slot:
    """Return a slot that decides after each verification, by that verification alone."""
    made = Slot(steps, **{**EAGER, **more})
    made.begin(start)
    return made


def learnt(moved: Slot, *accepted: float) -> list[tuple[int, float]]:
    """Return its steps and its average after each verification."""
    found = []
    for each in accepted:
        moved.learn(each)
        found.append((moved.steps, moved.average))
    return found


@pytest.mark.parametrize(
    ("made", "accepted", "steps"),
    [
        # From 3 down at most 1 - 0.5 - 0.25, up above 3 - 0.5.
        (slot([1, 3, 7], 3), [0.25], [1]),
        (slot([1, 3, 7], 3), [0.3], [3]),
        (slot([1, 3, 7], 3), [2.5], [3]),
        (slot([1, 3, 7], 3), [2.6], [7]),
        # Down from 7 at most 3 - 0.5 + 0.25 = 2.75, up from 3 above 3 - 0.5 + 0.4 = 2.9.
        (slot([1, 3, 7], 7, down_hysteresis=0.25, up_hysteresis=0.4), [2.8, 2.75, 2.9, 2.95], [7, 3, 3, 7]),
        # 7 would stay at 2.3, above 3 - 0.75; the ceiling is 3. From 3 it grows to 7 all the same.
        (slot([1, 3, 7], 7, ceiling_coeff=1.0), [2.3, 2.9], [3, 7]),
        (slot([1, 3], 1, warmup_batches=2, update_interval=3), [1.0] * 6, [1, 1, 1, 1, 3, 3]),
    ],
    ids=["down", "low", "high", "up", "hysteresis moves both bounds", "ceiling", "after a warm-up, at each interval"],
)
def test_steps_move_by_what_was_accepted(made: Slot, accepted: list[float], steps: list[int]) -> None:
    assert [each[0] for each in learnt(made, *accepted)] == steps


def test_nothing_is_learnt_at_no_steps_and_the_next_candidate_is_tried() -> None:
    moved = slot([0, 3], 3, down_hysteresis=0.0)
    assert learnt(moved, 0.0, 9.0, 0.5, 0.0, 1.0) == [(0, 0.0), (3, 0.0), (0, 0.5), (3, 0.5), (3, 1.0)]


def test_the_average_moves_by_its_weight() -> None:
    """It begins one below the steps: 0.8 x 2 + 0.2 x 3 = 2.2, then 0.8 x 2.2 + 0.2 = 1.96."""
    moved = slot([1, 3, 7], 3, ema_alpha=0.2, warmup_batches=9)
    assert [each[1] for each in learnt(moved, 3.0, 1.0)] == pytest.approx([2.2, 1.96])


def test_a_batch_size_has_the_slot_that_begins_at_or_below_it() -> None:
    part = AdaptiveSteps(
        5, {"strategy": "ema", "ema_alpha": 0.5, "8": {"candidate_steps": [0]}, "1": {"candidate_steps": [3, 1, 7]}}
    )
    part.begin(0)
    assert [part.draft_tokens(size) for size in (0, 1, 7, 8, 500)] == [3, 3, 3, 0, 0], "5 is none: the middle one"
    assert part.slot(1).ema_alpha == part.slot(8).ema_alpha == 0.5


def test_without_a_configuration_it_is_that_of_sglang() -> None:
    """3 is a candidate below 32; of 0 and 1 the second is the middle one."""
    part = AdaptiveSteps(3, None)
    part.begin(0)
    assert [part.draft_tokens(size) for size in (7, 8, 31, 32, 63, 64)] == [3, 3, 3, 1, 1, 0]
    assert [part.slot(size).down_hysteresis for size in (7, 8)] == [-0.25, 0.0]


def test_a_replica_drafts_as_far_as_it_was_right() -> None:
    """Both requests accept all 3, then 7 of 7; then nothing: (0 + 0) / 2 is at most 0.25."""
    part = AdaptiveSteps(3, {**EAGER, "1": {"candidate_steps": [1, 3, 7]}})
    hand = play(part, Linear(0.0, 0.0, 1.0), rows=2, most=99)
    for length, right in ((3, 3), (7, 7), (7, 0), (1, 0)):
        assert verified(hand, 0.9) == [length, length]
        hand.emit([right + 1] * 2, [right] * 2)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "is no {"),
        ({"1": {"candidate_steps": [1025]}}, "candidate_steps=1025 is above"),
        ({"1": {"candidate_steps": [1], "ema_alfa": 1}}, "unknown key 'ema_alfa'; did you mean 'ema_alpha'"),
        ({"1": {"candidate_steps": [1], "up_hysteresis": float("nan")}}, "up_hysteresis: nan is no finite number"),
        ({"1": {"candidate_steps": [1], "ema_alpha": 5}}, "ema_alpha=5 is not in"),
        ({"1": {"candidate_steps": [1]}, 1: {"candidate_steps": [7]}}, "a batch size is there twice: 1, 1"),
        ({"1": {"candidate_steps": [1]}, "strategy": "throughput_aware"}, "strategy: 'throughput_aware' is not simul"),
    ],
)
def test_what_is_no_configuration_is_refused(wrong: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        AdaptiveSteps(3, wrong)
