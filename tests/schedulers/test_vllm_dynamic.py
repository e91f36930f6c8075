"""vLLM's table of draft tokens by batch size: its ranges, its gaps, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from specsim.schedulers.vllm_dynamic import ByBatchSize

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
    assert ByBatchSize(most, table).chains(batch_size).num_speculative_tokens == k


def test_it_never_drafts_where_no_batch_size_does() -> None:
    assert not ByBatchSize(5, [[1, 9, 0]]).drafts
    assert not ByBatchSize(0, [[1, 9, 3]]).drafts
    assert ByBatchSize(5, [[1, 9, 0], [10, 20, 1]]).drafts


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
