"""How many prompt tokens join a pass: the tokens below the bend, more where a TTFT objective needs it, by hand."""

from __future__ import annotations

import pytest

from specsim.core.passes import TargetPass
from specsim.schedulers.composed import Composed
from specsim.schedulers.parts.due_chunk import DueChunk
from specsim.schedulers.sarathi import Chunked
from tests.made import memory, requests
from tests.unit.hand import Hand

BEND, LIMIT = 40, 4000
PROMISED, UNPROMISED = 1, 0
"""Classes: first token within a second, and none classd."""


def hand_of(*prompts: int, kind: int = PROMISED, bend: float | None = BEND, prefill: str = "mixed") -> Hand:
    told = requests([0.0] * len(prompts), list(prompts), [30] * len(prompts), [kind] * len(prompts))
    batching = Chunked(8, DueChunk(bend, LIMIT), prefill, 0.0)  # type: ignore[arg-type]
    return Hand(Composed(batching), told, memory(told, 9.0, block_tokens=1))


def chunks(hand: Hand) -> list[int]:
    work = hand.begin()
    assert isinstance(work, TargetPass)
    return work.scheduled_tokens.tolist()


@pytest.mark.parametrize(
    ("prompts", "now_s", "read"),
    [
        # A pass of c tokens takes 0.02 s + 0.1 ms x c. Of the bend's 40, 41 passes fit a second.
        ((100,), 0.0, [40]),
        ((30, 100), 0.0, [30, 10]),
        # 41 x 40 and 37 x 64 are short of 3,000; 30 x 128 are not.
        ((3000,), 0.0, [128]),
        ((1500, 1500), 0.0, [128]),
        # 0.1 s hold two passes of 256, three of 128, one of at most 800: 512 >= 500 > 448, 384.
        ((500,), 0.9, [256]),
        # 10,000 tokens a second are the most: nothing helps.
        ((20_000,), 0.0, [LIMIT]),
        # Late already.
        ((100, 200), 1.5, [100, 200]),
    ],
)
def test_the_least_chunk_in_time_and_no_less_than_the_bend(prompts: list[int], now_s: float, read: list[int]) -> None:
    hand = hand_of(*prompts)
    hand.view.now_s = now_s
    assert chunks(hand) == read


def test_without_an_objective_or_in_passes_of_their_own_prompts_get_all_that_a_pass_holds() -> None:
    assert chunks(hand_of(100, 5000, kind=UNPROMISED)) == [100, LIMIT - 100]
    assert chunks(hand_of(100, 5000, prefill="first")) == [100, LIMIT - 100]


def test_without_a_bend_only_the_objectives_count() -> None:
    assert chunks(hand_of(100, bend=None)) == [64], "no fewer than a tile"
    assert chunks(hand_of(3000, bend=None)) == [128]


def test_decodes_and_their_drafts_take_their_part_of_the_bend() -> None:
    hand = hand_of(5, 5, 100)
    assert chunks(hand) == [5, 5, 30]
    hand.emit([1, 1, 0])
    assert chunks(hand) == [1, 1, 38]
    hand.emit([1, 1, 0])
    decodes = hand.view.pending(hand.view.running) == 1
    chunk = DueChunk(BEND, LIMIT)
    assert chunk(hand.view, decodes, 8, draft_tokens=4) == BEND - 2 * 5
    assert chunk(hand.view, decodes, 8, draft_tokens=40) == 64, "the trees are past the bend, the prompt is due"


def test_drafting_makes_a_step_longer() -> None:
    """0.9 s hold 34 steps of 64 tokens, 14 where eight draft passes of 2 ms or more come first."""
    hand = hand_of(5, 2000)
    chunks(hand)
    hand.emit([1, 0])
    hand.view.now_s = 0.1
    decodes = hand.view.pending(hand.view.running) == 1
    chunk = DueChunk(BEND, LIMIT)
    assert chunk(hand.view, decodes, 8) < chunk(hand.view, decodes, 8, draft_tokens=8)
