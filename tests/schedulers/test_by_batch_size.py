"""Tables of draft tokens by batch size: vLLM's, and TensorRT-LLM's with its limit and its switch."""

from __future__ import annotations

from typing import Any

import pytest

from specsim.schedulers.trtllm_schedule import DraftLenSchedule
from specsim.schedulers.vllm_dynamic import ByBatchSize
from tests.made import Linear
from tests.schedulers.test_specserve import play, verified

WITHOUT_GAPS = [[1, 64, 3], [65, 128, 1], [129, 512, 0]]
"""vLLM's documentation of dynamic speculative decoding."""
WITH_GAPS = [[1, 16, 3], [64, 128, 2], [256, 4096, 0]]
"""The example of vllm-project/vllm PR 32374: "gaps inherit the previous configured K"."""


@pytest.mark.parametrize(
    ("table", "most", "batch_size", "k"),
    [
        (WITHOUT_GAPS, 3, 64, 3),
        (WITHOUT_GAPS, 3, 65, 1),
        (WITH_GAPS, 3, 17, 3),
        ([[1, 4, 2]], 5, 100, 2),
        ([[65, 128, 1], [1, 64, 3]], 3, 65, 1),
        ({"1-64": 3, "65-128": 1}, 3, 65, 1),
    ],
)
def test_draft_tokens_of_a_batch_size(table: Any, most: int, batch_size: int, k: int) -> None:
    assert ByBatchSize(most, table).length(batch_size) == k


def test_it_never_drafts_where_no_batch_size_does() -> None:
    tables = (5, [[1, 9, 0]]), (0, [[1, 9, 3]]), (5, [[1, 9, 0], [10, 20, 1]])
    assert [ByBatchSize(*each).drafts for each in tables] == [False, False, True]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([[1, 64]], "is no list of"),
        ([[64, 1, 3]], "is no list of"),
        ([[2, 64, 3]], "is not defined from batch size 1 on"),
        ([[1, 64, 3], [64, 128, 1]], "its ranges overlap"),
    ],
)
def test_what_vllm_refuses_is_refused(wrong: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ByBatchSize(5, wrong)


DOCUMENTED = {4: 4, 8: 2, 32: 1}
"""The example of TensorRT-LLM's documentation: batches of 1 to 4, 5 to 8 and 9 to 32."""


def schedule(most: int = 4, table: Any = None, limit: int | None = None, window: int = 0, least: Any = None) -> Any:
    return DraftLenSchedule(most, table, limit, window, least)


def test_a_key_is_the_last_batch_size_of_its_length() -> None:
    part = schedule(table=DOCUMENTED)
    sizes = (1, 4, 5, 8, 9, 32, 33)
    assert [part.draft_tokens(size) for size in sizes] == [4, 4, 2, 2, 1, 1, 0]
    assert [schedule(4, [[8, 2], [4, 4], [32, 1]]).draft_tokens(size) for size in sizes] == [4, 4, 2, 2, 1, 1, 0]
    assert [schedule(2, {"32": 1, "4": 4}).draft_tokens(size) for size in sizes] == [2, 2, 1, 1, 1, 1, 0]


def test_a_limit_of_concurrency_is_a_table_of_one_row() -> None:
    assert [schedule(limit=8).draft_tokens(size) for size in (1, 8, 9)] == [4, 4, 0]
    assert schedule().draft_tokens(10**6) == 4


@pytest.mark.parametrize(("least", "accepted", "ends"), [(0.3, (4, 1, 1), True), (0.125, (0, 1), False)])
def test_speculation_ends_for_good_where_the_mean_rate_is_too_low(
    least: float, accepted: tuple[int, ...], ends: bool
) -> None:
    """Of 4 drafts 4, 1 and 1 are right: means of two are 5/8, 2/8, and below 0.3. 0 and 1 are at 0.125, not below."""
    part = schedule(window=2, least=least)
    hand = play(part, Linear(0.0, 0.0, 1.0))
    for right in accepted:
        assert part.drafts
        assert verified(hand, 0.9) == [4]
        hand.emit([right + 1], [right])
    for _ in range(3 * ends):
        assert not part.drafts
        assert verified(hand, 0.9) == [0]
        hand.emit([1])
    assert part.drafts != ends


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"table": [[4, 4, 1]]}, "is no {last batch size: draft tokens}"),
        ({"table": [[4, 4], [4, 2]]}, "has a batch size twice"),
        ({"table": {4: -1}}, "is no {last batch size: draft tokens}"),
        ({"table": {4: 1, 8: 2}}, "longest for other batch sizes than the smallest"),
        ({"table": {4: 4}, "limit": 4}, "max_concurrency=4 beside draft_len_schedule"),
        ({"limit": 0}, "max_concurrency=0 is below 1"),
    ],
)
def test_what_is_no_schedule_is_refused(given: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        schedule(**given)
