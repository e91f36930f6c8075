"""Objectives by hand: batches that meet the tightest (AdaServe v1, Fig. 7), priority by objective, SLOs-Serve."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from specsim.pass_shape import PassShape
from specsim.schedulers.composed import Composed
from specsim.schedulers.parts.queues import BatchSlots
from specsim.schedulers.priority import TightestFirst
from specsim.schedulers.slo_batching import SloLimited, closest_to_violation, first_come
from specsim.schedulers.slos_serve import PlannedBatches, SlosServe, accepted_prompts, batches_of, shared_out, tiers_of
from specsim.schedulers.vllm_spec import FixedChains
from tests.made import Hardware, Linear, ledger_and_view, memory, requests
from tests.schedulers.test_specserve import verified
from tests.unit.hand import Hand

MAX_NUM_SEQS = BatchSlots(max_num_seqs=8, prefill_tokens=64, prefill="mixed", watermark=0.0, switching="keep")
COUNT = 6
URGENT, CHAT, FREE = 0, 1, 2
"""Objectives: 30 ms a token; 200 ms a token and a second for the first; none."""


def limit_of(tightest: str, kinds: list[int]) -> int:
    """Return the limit where a step of n decodes takes 2 + 8 n ms: 30 ms carry 3, 200 ms carry 24."""
    _, view = ledger_and_view(requests([0.0] * COUNT, [4] * COUNT, [9] * COUNT, kinds))
    view.cost_model = Hardware(Linear(0.0, 0.008, 0.002), Linear(0.0, 0.001, 0.001))
    return SloLimited(MAX_NUM_SEQS, first_come, tightest).limit(view, np.arange(COUNT), np.arange(COUNT))


@pytest.mark.parametrize(
    ("kinds", "batch", "live"),
    [([URGENT] * 6, 3, 3), ([FREE] * 6, 6, 6), ([CHAT] * 4 + [URGENT, CHAT], 4, 3), ([FREE] * 5 + [URGENT], 5, 3)],
)
def test_the_limit_is_the_longest_head_that_meets_the_objective(kinds, batch, live):
    assert (limit_of("batch", kinds), limit_of("live", kinds)) == (batch, live)


def test_time_left_until_violation():
    told = requests([0.0] * 3, [2, 2, 2], [9, 9, 9], [CHAT, URGENT, FREE])
    hand = Hand(Composed(SloLimited(MAX_NUM_SEQS, first_come, "batch"), FixedChains(0)), told)
    ids = np.arange(3)
    assert closest_to_violation(hand.view, ids) == pytest.approx([0.2, 0.03, np.inf])
    for _ in range(2):
        hand.begin()
        assert hand.emit([1, 1, 1]) is None
    # One token decoded in 10 ms: (1 + 1) objectives less those.
    assert closest_to_violation(hand.view, ids) == pytest.approx([0.39, 0.05, np.inf])


def test_the_tightest_run_and_the_others_follow_class_by_class():
    told = requests([0.0] * 4, [3] * 4, [9] * 4, [FREE, CHAT, URGENT, URGENT])
    hand = Hand(Composed(TightestFirst(BatchSlots(2, 64, "mixed", 0.0, "keep")), FixedChains(0)), told)
    ran = []
    while hand.ledger.queues.live:
        work = hand.begin()
        ran.append(work.requests.tolist())
        hand.emit([1] * len(work.requests), ends=range(len(work.requests)))
    assert ran == [[2, 3], [1, 0]]


# --- SLOs-Serve: batches as long as objectives allow, and the prompts that are accepted -------------------------------


def test_of_many_objectives_six_are_tiers_and_no_request_gets_a_laxer_one():
    """Of 11 and none at all: the first, third, fifth, seventh and ninth of them; none stays none."""
    assert [each.tolist() for each in tiers_of(np.array([0.2, 0.1, 0.2]))] == [[0.1, 0.2], [1, 0, 1]]
    tpot_s, tier = tiers_of(np.append(np.arange(1, 12) / 100, np.inf))
    assert tpot_s.tolist() == [0.01, 0.03, 0.05, 0.07, 0.09, np.inf]
    assert tier.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5]


def test_batches_are_as_long_as_chains_allow():
    """Target: 10 ms and 1 ms a token; drafter: 5 ms a pass, 0 a token. Chains of 0, 1, 2 bring 1, 1.5, 1.75 tokens.

    Tiers of 30 and 60 ms: T = 30 45 52.5, 60 90 105, and 138 ms, the longest pass of 128 tokens.
    In 45 ms the first needs 1.5 tokens, a chain of 1, the other .75 and no chain. Behind one draft pass 30 ms are left:
    30 tokens. In 52.5: chains of 2 and none; 2 passes leave 32.5. In 60 no chain of the first does.
    """
    _, view = ledger_and_view(requests([0.0], [5], [40]))
    view.cost_model = Hardware(Linear(0.0, 1e-3, 0.01), Linear(0.0, 0.0, 0.005))
    sizes = np.unique(np.geomspace(1, 128, 48).astype(np.int64))
    known = view, np.array([0.03, 0.06]), np.array([1, 1.5, 1.75]), PassShape.decode(600, 6), sizes
    found = batches_of(*known, 1.0, np.inf)
    assert found.seconds == pytest.approx([0.03, 0.045, 0.0525, 0.06, 0.09, 0.105, 0.138])
    assert found.depth[:, :4].tolist() == [[0, 1, 2, 2], [0, 0, 0, 0]]
    assert found.demand[:, :3] == pytest.approx(np.array([[1, 2, 3], [0.5, 0.75, 0.875]]))
    assert found.demand[0, 3] > 1e6
    assert found.supply[0, :2] == pytest.approx([20, 35], abs=0.1)
    assert found.supply[1:, 1:3] == pytest.approx(np.array([[30, 37.5], [25, 32.5]]), abs=0.1)
    # 4 urgent and 2 chats: (20 - 4 - 1) / .03, (30 - 8 - 1.5) / .045, (32.5 - 12 - 1.75) / .0525.
    rate = found.prompt_rate(np.array([[4, 2]]))[0, :4]
    assert rate[:3] == pytest.approx([500, 455.6, 357.1], rel=0.01)
    assert rate[3] < 0
    assert batches_of(*known, 2.0, np.inf).supply[0, 0] == pytest.approx(5, abs=0.1)
    assert batches_of(*known, 1.0, 0.05).seconds[6:] == pytest.approx([0.05, 0.138]), "a prompt is due in 50 ms"
    view.cost_model = Hardware(Linear(0.0, 1e-3, 0.01, drafted_s=0.02), Linear(0.0, 0.0, 0.005))
    assert batches_of(*known, 1.0, np.inf).supply[:2, 1] == pytest.approx([35, 10], abs=0.1), "drafts take 20 ms"
    # 10 us a cached token: its hundred take as long as one token more, of every batch that the decode is in.
    view.cost_model = Hardware(Linear(1e-5, 1e-3, 0.01, drafted_s=0.02), Linear(0.0, 0.0, 0.005))
    reading = batches_of(*known, 1.0, np.inf)
    assert reading.cached_token == pytest.approx(0.01)
    assert reading.demand[:, :3] == pytest.approx(np.array([[2, 3, 4], [1, 1.5, 1.75]]))


def plain(rate: float, cost: float = 0.0) -> PlannedBatches:
    """Return one batch of a second for two tiers: `rate` tokens; a decode of the first tier takes `cost` of them."""
    whole = np.zeros((2, 1), dtype=np.int64)
    return PlannedBatches(np.ones(1), whole, np.array([[cost], [0.0]]), np.full((1, 1), rate), 0.0)


def test_no_other_choice_accepts_more():
    """Against every choice that keeps what was accepted; of as many the one that leaves most tokens for prompts."""
    rng, judged, nobody = np.random.default_rng(5), 0, np.zeros(2, dtype=np.int64)
    for _ in range(60):
        due, new = np.sort(rng.uniform(0, 3, 5)), rng.random(5) < 0.8
        told = due, rng.integers(10, 120, 5), rng.integers(0, 2, 5)
        choices = [each for each in product((False, True), repeat=5) if (new | each).all() and left(each, *told) >= 0]
        if choices:
            best = max(choices, key=lambda each: (sum(each), left(each, *told)))
            assert tuple(accepted_prompts(plain(100, 30), nobody, *told, new)) == best
            judged += 1
    assert judged > 40


def left(choice: tuple[bool, ...], due: Any, tokens: Any, tier: Any) -> float:
    """Return the tokens left of 100 a second, less 30 for each decode of the first tier; -inf where one is late."""
    left, now, rate = 0.0, 0.0, 100.0
    for each, chosen in enumerate(choice):
        left, now = left + rate * (due[each] - now) - chosen * tokens[each], due[each]
        rate -= 30.0 * (chosen and tier[each] == 0)
        if left < 0 or rate < 0:
            return -np.inf
    return left


@pytest.mark.parametrize(("most", "drafted", "planned_s"), [(9, 2, 0.03 * 2.19), (1, 1, 0.03 * 1.7)])
def test_an_accepted_request_drafts_as_its_objective_asks_and_another_takes_what_is_left(most, drafted, planned_s):
    """Urgent: 30 ms a token. A batch of 24 ms and 1 ms a token, drafts of 2 ms: of T = 30, 51, 65.7 ms the last wins.

    A drafter that proposes one token has no third. The request without an objective was never accepted: it decodes
    without drafts beside the other one.
    """
    told = requests([0.0, 0.0], [5, 5], [40, 40], [URGENT, FREE])
    scheduler = SlosServe(8, 512, watermark=0.0, num_speculative_tokens=2, time_margin=1.0)
    hand = Hand(scheduler, told, memory(told, 9.0, block_tokens=1))
    hand.view.cost_model = Hardware(Linear(0.0, 1e-3, 0.024), Linear(0.0, 0.0, 0.002, max_depth=most))
    hand.begin()
    hand.emit([1, 1])
    assert scheduler._plan(hand.view)[0] == pytest.approx(planned_s)
    assert scheduler.noted(2)["accepted"].tolist() == [1, 0]
    assert dict(zip(verified(hand, 0.9), hand.work.requests.tolist(), strict=True)) == {drafted: 0, 0: 1}


def test_a_batch_ends_before_an_accepted_prompt_is_due():
    """10 ms and 1 ms a token: a batch of 4,106 ms has the most tokens a second, one of 1 s, 990, ends in time."""
    told = requests([0.0, 0.0], [300, 2000], [1, 1], [CHAT, FREE])
    hand = Hand(SlosServe(8, 4096, watermark=0.0, num_speculative_tokens=0, time_margin=1.0), told)
    hand.view.cost_model = Hardware(Linear(0.0, 1e-3, 0.01), Linear(0.0, 0.0, 0.002))
    assert hand.begin().scheduled_tokens == pytest.approx([300, 690], abs=1)


@pytest.mark.parametrize(("texts", "kind", "count"), [((30, 30, 300), CHAT, 2), ((60, 310, 311), URGENT, 1)])
def test_prompts_without_room_leave_their_tokens_to_decodes(texts, kind, count):
    """Batches of 64 tokens end long before a chat's next token is due; 300 tokens do not fit beside the first texts."""
    told = requests([0.0] * 3, texts, [40] * 3, [CHAT, kind, CHAT])
    scheduler = SlosServe(8, 64, watermark=0.0, num_speculative_tokens=0, time_margin=1.0)
    hand = Hand(scheduler, told, memory(told, 1.0, block_tokens=1, draft_bytes=0))
    hand.view.cost_model = Hardware(Linear(0.0, 1e-4, 0.01), Linear(0.0, 0.0, 0.002))
    for read in (list(texts[:count]), [1] * count):
        assert hand.begin().scheduled_tokens.tolist() == read
        hand.emit([1] * count)
    told = np.array([2.0, 64.0]), np.array([1, 0]), np.array([True, False]), np.array([1, 64])
    assert [shared_out(64, most, *told).tolist() for most in (65, 66)] == [[0, 64], [1, 64]], "a pass is full"
