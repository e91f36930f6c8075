"""Lengths by batch size, as engines set them: vLLM's and TensorRT-LLM's tables, SGLang's adaptive steps."""

from typing import Any

import pytest

from specsim.schedulers.sglang_adaptive import AdaptiveSteps, Slot
from specsim.schedulers.trtllm_schedule import DraftLenSchedule
from specsim.schedulers.vllm_dynamic import ByBatchSize
from tests.made import Linear
from tests.schedulers.test_specserve import play, verified

WITHOUT_GAPS = [[1, 64, 3], [65, 128, 1], [129, 512, 0]]
"""vLLM's documentation of dynamic speculative decoding."""
WITH_GAPS = [[1, 16, 3], [64, 128, 2], [256, 4096, 0]]
"""The example of vllm-project/vllm PR 32374: "gaps inherit the previous configured K"."""


def test_draft_tokens_of_a_batch_size_and_none_where_no_batch_size_has_any():
    assert [ByBatchSize(3, WITHOUT_GAPS).length(size) for size in (64, 65)] == [3, 1]
    assert (ByBatchSize(3, WITH_GAPS).length(17), ByBatchSize(5, [[1, 4, 2]]).length(100)) == (3, 2)
    for table in [[65, 128, 1], [1, 64, 3]], {"1-64": 3, "65-128": 1}:
        assert ByBatchSize(3, table).length(65) == 1
    tables = (5, [[1, 9, 0]]), (0, [[1, 9, 3]]), (5, [[1, 9, 0], [10, 20, 1]])
    assert [ByBatchSize(*each).drafts for each in tables] == [False, False, True]


DOCUMENTED = {4: 4, 8: 2, 32: 1}
"""The example of TensorRT-LLM's documentation: batches of 1 to 4, 5 to 8 and 9 to 32."""


def schedule(most: int = 4, table: Any = None, limit: int | None = None, window: int = 0, least: Any = None) -> Any:
    return DraftLenSchedule(most, table, limit, window, least)


def test_a_key_is_the_last_batch_size_of_its_length_and_a_limit_is_a_table_of_one_row():
    sizes = (1, 4, 5, 8, 9, 32, 33)
    for table in DOCUMENTED, [[8, 2], [4, 4], [32, 1]]:
        assert [schedule(4, table).draft_tokens(size) for size in sizes] == [4, 4, 2, 2, 1, 1, 0]
    assert [schedule(2, {"32": 1, "4": 4}).draft_tokens(size) for size in sizes] == [2, 2, 1, 1, 1, 1, 0]
    assert [schedule(limit=limit).draft_tokens(size) for limit, size in ((8, 8), (8, 9), (None, 10**6))] == [4, 0, 4]


@pytest.mark.parametrize(("least", "accepted", "ends"), [(0.3, (4, 1, 1), True), (0.125, (0, 1), False)])
def test_speculation_ends_where_the_mean_rate_is_too_low(least, accepted, ends):
    """Of 4 drafts 4, 1 and 1 are right: means of two are 5/8, 2/8, and below 0.3. 0 and 1 are at 0.125, not below."""
    hand = play(part := schedule(window=2, least=least), Linear(0.0, 0.0, 1.0))
    for right in accepted:
        assert part.drafts
        assert verified(hand, 0.9) == [4]
        hand.emit([right + 1], [right])
    for _ in range(3 * ends):
        assert not part.drafts
        assert verified(hand, 0.9) == [0]
        hand.emit([1])
    assert part.drafts != ends


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
        moved.on_verified(each)
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
def test_steps_move_by_what_was_accepted(made, accepted, steps):
    assert [each[0] for each in learnt(made, *accepted)] == steps


def test_nothing_is_learnt_at_no_steps_and_the_next_candidate_is_tried():
    moved = slot([0, 3], 3, down_hysteresis=0.0)
    assert learnt(moved, 0.0, 9.0, 0.5, 0.0, 1.0) == [(0, 0.0), (3, 0.0), (0, 0.5), (3, 0.5), (3, 1.0)]
    # The average begins one below the steps: 0.8 x 2 + 0.2 x 3 = 2.2, then 0.8 x 2.2 + 0.2 = 1.96.
    moved = slot([1, 3, 7], 3, ema_alpha=0.2, warmup_batches=9)
    assert [each[1] for each in learnt(moved, 3.0, 1.0)] == pytest.approx([2.2, 1.96])


def test_a_batch_size_has_the_slot_that_begins_at_or_below_it():
    part = AdaptiveSteps(
        5, {"strategy": "ema", "ema_alpha": 0.5, "8": {"candidate_steps": [0]}, "1": {"candidate_steps": [3, 1, 7]}}
    )
    part.begin(0)
    assert [part.draft_tokens(size) for size in (0, 1, 7, 8, 500)] == [3, 3, 3, 0, 0], "5 is none: the middle one"
    assert part.slot(1).ema_alpha == part.slot(8).ema_alpha == 0.5
    # SGLang's own configuration: 3 is a candidate below 32; of 0 and 1 the second is the middle one.
    part = AdaptiveSteps(3, None)
    part.begin(0)
    assert [part.draft_tokens(size) for size in (7, 8, 31, 32, 63, 64)] == [3, 3, 3, 1, 1, 0]
    assert [part.slot(size).down_hysteresis for size in (7, 8)] == [-0.25, 0.0]


def test_a_replica_drafts_as_far_as_it_was_right():
    """Both requests accept all 3, then 7 of 7; then nothing: (0 + 0) / 2 is at most 0.25."""
    hand = play(AdaptiveSteps(3, {**EAGER, "1": {"candidate_steps": [1, 3, 7]}}), Linear(0.0, 0.0, 1.0), 2, most=99)
    for length, right in ((3, 3), (7, 7), (7, 0), (1, 0)):
        assert verified(hand, 0.9) == [length, length]
        hand.emit([right + 1] * 2, [right] * 2)


def test_at_0_steps_the_drafter_reads_each_step():
    hand = play(AdaptiveSteps(0, {"1": {"candidate_steps": [0, 3]}}), Linear(0.0, 0.0, 1.0))
    for read in (6, 7):
        assert (verified(hand, 0.9), hand.view.draft_cached[0]) == ([0], read)
        hand.emit([1])


def adaptive(one: dict[str, Any], **more: Any) -> AdaptiveSteps:
    return AdaptiveSteps(3, {"1": {"candidate_steps": [1]} | one, **more})


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: ByBatchSize(5, [[1, 64]]), "is no list of"),
        (lambda: ByBatchSize(5, [[64, 1, 3]]), "is no list of"),
        (lambda: ByBatchSize(5, [[2, 64, 3]]), "is not defined from batch size 1 on"),
        (lambda: ByBatchSize(5, [[1, 64, 3], [64, 128, 1]]), "its ranges overlap"),
        (lambda: schedule(table=[[4, 4, 1]]), "is no {last batch size: draft tokens}"),
        (lambda: schedule(table=[[4, 4], [4, 2]]), "has a batch size twice"),
        (lambda: schedule(table={4: -1}), "is no {last batch size: draft tokens}"),
        (lambda: schedule(table={4: 1, 8: 2}), "longest for other batch sizes than the smallest"),
        (lambda: schedule(table={4: 4}, limit=4), "max_concurrency=4 beside draft_len_schedule"),
        (lambda: schedule(limit=0), "max_concurrency=0 is below 1"),
        (lambda: AdaptiveSteps(3, {}), "is no {"),
        (lambda: adaptive({"candidate_steps": [1025]}), "candidate_steps=1025 is above"),
        (lambda: adaptive({"ema_alfa": 1}), "unknown key 'ema_alfa'; did you mean 'ema_alpha'"),
        (lambda: adaptive({"up_hysteresis": float("nan")}), "up_hysteresis: nan is no finite number"),
        (lambda: adaptive({"ema_alpha": 5}), "ema_alpha=5 is not in"),
        (lambda: adaptive({}, strategy="throughput_aware"), "strategy: 'throughput_aware' is not simul"),
        (lambda: AdaptiveSteps(3, {key: {"candidate_steps": [1]} for key in ("1", 1)}), "is there twice: 1, 1"),
    ],
)
def test_what_is_no_table_and_no_configuration_is_refused(made, said):
    with pytest.raises(ValueError, match=said):
        made()
