"""SmartSpec and its variants played by hand: prefixes, drafts, memory, what is learnt, the feedback on prefills."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsim.api import simulate
from specsim.core.passes import DraftPass, TargetPass
from specsim.schedulers.continuous import PrefillFirst
from specsim.schedulers.smartspec.chains import GoodputChains
from specsim.schedulers.smartspec.estimators import AcceptanceAverage
from specsim.schedulers.smartspec.serving import PrefillFeedback, SmartSpec
from tests.made import Hardware, Linear, memory, requests
from tests.schedulers.test_specserve import verified
from tests.unit.hand import Hand

CHEAP = Hardware(Linear(0.0, 1e-6, 1.0), Linear(0.0, 0.0, 1e-3))
"""Drafting and verifying cost next to nothing beside the weights: every draft pays."""
DEAR = Hardware(Linear(0.0, 1.0, 1e-3), Linear(0.0, 0.0, 1.0))
"""Every draft costs more than it brings."""


def smart(num_speculative_tokens: int = 4, max_num_seqs: int = 8, max_num_batched_tokens: int = 64) -> SmartSpec:
    chains = GoodputChains(num_speculative_tokens, "global", window=4, first_acceptance=0.7)
    return SmartSpec(PrefillFirst(max_num_seqs, max_num_batched_tokens, watermark=0.0), chains, prefill_threshold=0.7)


def prefilled(hand: Hand) -> Hand:
    if isinstance(hand.begin(), DraftPass):
        hand.propose()
    hand.emit([1] * len(hand.work.requests))
    return hand


def ran(hand: Hand) -> list[int]:
    """Play a step up to its verification; return its requests."""
    verified(hand, 0.9)
    return list(hand.work.requests.tolist())


# --- SmartSpec --------------------------------------------------------------------------------------------------------


def test_a_prefix_runs_where_the_youngest_costs_too_much_context() -> None:
    """A context of 64 tokens more than doubles the pass for one token more: the first two run, it waits its turn."""
    told = requests([0.0] * 3, [5, 5, 64], [40, 9, 9])
    hand = Hand(smart(num_speculative_tokens=0, max_num_batched_tokens=128), told, memory(told, 9.0, block_tokens=1))
    hand.view.cost_model = Hardware(Linear(0.1, 0.0, 1.0), Linear(0.0, 0.0, 1.0))
    prefilled(hand)
    assert ran(hand) == [0, 1]
    hand.emit([1, 8], ends=[1])
    assert ran(hand) == [0]
    hand.emit([39], ends=[0])
    assert ran(hand) == [2], "the oldest always runs: nobody starves"


# --- the moving average -----------------------------------------------------------------------------------------------


def learnt(average: AcceptanceAverage, requests_: list[int], drafted: list[int], matched: list[int]) -> None:
    average.learn(np.array(requests_), np.array(drafted), np.array(matched))


def test_a_rate_is_conditional_and_a_token_counts_once() -> None:
    """4 of 4 right, and 1 right of the 2 that were tried out of 4: 5 of 6; then 0 of 1: 5 of 7, not (5/6 + 0) / 2."""
    average = AcceptanceAverage("global", window=2, first=0.7)
    average.begin(4)
    assert average.of(np.arange(2)).tolist() == [0.7, 0.7]
    learnt(average, [0, 1], [4, 4], [4, 1])
    assert average.of(np.arange(2)) == pytest.approx([(5 + 0.7) / (6 + 1)] * 2), "the window starts full"
    learnt(average, [0], [3], [0])
    assert average.of(np.array([1])) == pytest.approx([5 / 7])


def test_a_request_without_history_is_taken_for_the_average_one() -> None:
    average = AcceptanceAverage("per_request", window=2, first=0.7)
    average.begin(4)
    learnt(average, [0, 1], [1, 4], [1, 0])
    overall = (1 + 0.7) / (2 + 1)
    assert average.of(np.array([0, 1, 3])) == pytest.approx([(1 + overall) / 2, overall / 2, overall])
    learnt(average, [0, 1], [1, 4], [1, 0])
    assert average.of(np.array([0, 1, 3])) == pytest.approx([1.0, 0.0, 0.5])


# --- draft prefill by feedback ----------------------------------------------------------------------------------------


def test_the_share_must_exceed_the_threshold() -> None:
    feedback = PrefillFeedback(0.7)
    assert feedback.drafting, "nothing is known yet"
    for drafted in (0, 0, 0, 0, 0, 0, 0, 5, 5, 5):
        feedback.learn(drafted)
    assert feedback.drafting, "7 of 10 is 0.7, not more"
    feedback.learn(0)
    assert not feedback.drafting


def test_a_request_prefilled_without_the_drafter_never_speculates_and_that_feeds_on_itself() -> None:
    """Drafts are dear for three steps; afterwards they are cheap for ever, and nobody ever drafts again."""
    told = requests([0.0] * 2, [5, 5], [12, 40])
    hand = Hand(smart(max_num_seqs=1), told, memory(told, 9.0, block_tokens=1))
    hand.view.cost_model = DEAR
    prefilled(hand)
    for step in range(3):
        ran(hand)
        hand.emit([1], ends=[0] if step == 2 else [])
    hand.view.cost_model = CHEAP
    work = hand.begin()
    assert isinstance(work, TargetPass), "3 of 3 steps proposed nothing: no draft prefill"
    assert work.requests.tolist() == [1]
    hand.emit([1])
    feedback = hand.scheduler.feedback
    for step in range(4, 10):
        assert verified(hand, 0.9) == [0]
        hand.emit([1])
        assert (feedback.idle, feedback.steps, feedback.drafting) == (step, step, False)


def test_a_policy_that_hardly_drafts_says_so_and_why_where_objectives_leave_no_room() -> None:
    hopeless = {"acceptance": "bernoulli", "acceptance__alpha": 0.02, "engine": "vllm_0_6", "scheduler__window": 20}
    settings: dict[str, Any] = {"trace": "poisson", "requests": 40, "rps": 8, "profile": "llama8b_1b_h100"}
    settings |= {"trace__output_tokens__mean": 48, "scheduler__prefill_threshold": 1.0}
    without_room = simulate("smartspec", **settings, **hopeless)
    with_room = simulate("specserve", trace="poisson", requests=12, rps=8, replicas=2)
    said = [[note for note in run.notes if " of its decoding steps" in note] for run in (without_room, with_room)]
    assert [len(each) for each in said] == [1, 1]
    assert all("the strictest TPOT objective is" in note for (note,) in said)
    assert ["nothing for the drafter to catch up with" in note for (note,) in said] == [False, True]
