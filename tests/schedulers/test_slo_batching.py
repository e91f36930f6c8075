"""Batches that meet the tightest objective (AdaServe v1, Fig. 7), and priority by objective, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from specsim.schedulers.composed import Composed
from specsim.schedulers.parts.queues import BatchSlots
from specsim.schedulers.priority import TightestFirst
from specsim.schedulers.slo_batching import SloLimited, closest_to_violation, first_come
from specsim.schedulers.vllm_spec import FixedChains
from tests.laws.subjects import raw_of
from tests.made import Hardware, Linear, ledger_and_view, requests
from tests.schedulers.changes import late, played, with_value
from tests.unit.hand import Hand

MAX_NUM_SEQS = BatchSlots(max_num_seqs=8, prefill_tokens=64, prefill="mixed", watermark=0.0, switching="keep")
COUNT = 6
URGENT, CHAT, FREE = 0, 1, 2


def limit_of(tightest: str, kinds: list[int]) -> int:
    """Return the limit where a step of n decodes takes 2 + 8 n ms: 30 ms carry 3, 200 ms carry 24."""
    _, view = ledger_and_view(requests([0.0] * COUNT, [4] * COUNT, [9] * COUNT, kinds))
    view.cost_model = Hardware(Linear(0.0, 0.008, 0.002), Linear(0.0, 0.001, 0.001))
    return SloLimited(MAX_NUM_SEQS, first_come, tightest).limit(view, np.arange(COUNT), np.arange(COUNT))


@pytest.mark.parametrize(
    ("kinds", "batch", "live"),
    [
        ([URGENT] * COUNT, 3, 3),
        ([FREE] * COUNT, COUNT, COUNT),
        ([CHAT, CHAT, CHAT, CHAT, URGENT, CHAT], 4, 3),
        ([FREE, FREE, FREE, FREE, FREE, URGENT], 5, 3),
    ],
)
def test_the_limit_is_the_longest_head_that_meets_the_objective(kinds: list[int], batch: int, live: int) -> None:
    assert (limit_of("batch", kinds), limit_of("live", kinds)) == (batch, live)


def test_time_left_until_violation() -> None:
    told = requests([0.0] * 3, [2, 2, 2], [9, 9, 9], [CHAT, URGENT, FREE])
    hand = Hand(Composed(SloLimited(MAX_NUM_SEQS, first_come, "batch"), FixedChains(0)), told)
    ids = np.arange(3)
    assert closest_to_violation(hand.view, ids) == pytest.approx([0.2, 0.03, np.inf])
    for _ in range(2):
        hand.begin()
        assert hand.emit([1, 1, 1]) is None
    # One token decoded in 10 ms: (1 + 1) objectives less those.
    assert closest_to_violation(hand.view, ids) == pytest.approx([0.39, 0.05, np.inf])


def test_late_chats_fill_the_batch_before_an_urgent_request_unless_it_shrinks_the_batch_already() -> None:
    """A long prompt without an objective makes eight chats late; a step of eight is too slow for the urgent one."""
    mapping = raw_of("stta")
    free = played(mapping, late()).progress.finish_s
    shrunk = played(with_value(mapping, "batching.tightest", "live"), late()).progress.finish_s
    assert (free[:8] < shrunk[:8]).all()


def test_the_tightest_run_and_the_others_follow_class_by_class() -> None:
    told = requests([0.0] * 4, [3] * 4, [9] * 4, [FREE, CHAT, URGENT, URGENT])
    hand = Hand(Composed(TightestFirst(BatchSlots(2, 64, "mixed", 0.0, "keep")), FixedChains(0)), told)
    ran = []
    while hand.ledger.queues.live:
        work = hand.begin()
        ran.append(work.requests.tolist())
        hand.emit([1] * len(work.requests), ends=range(len(work.requests)))
    assert ran == [[2, 3], [1, 0]]
