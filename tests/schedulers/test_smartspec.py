"""SmartSpec by hand: goodput, which entry of its surface wins, prefixes, what is learnt; and as it was released."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from specsim.api import simulate
from specsim.core.passes import TargetPass
from specsim.schedulers.composed import Composed
from specsim.schedulers.continuous import PrefillFirst
from specsim.schedulers.smartspec.chains import GoodputChains
from specsim.schedulers.smartspec.estimators import AcceptanceAverage
from specsim.schedulers.smartspec.goodput import (
    Batch,
    best,
    draft_seconds,
    expected_length,
    goodput,
    longest_by_survival,
    target_seconds,
)
from specsim.schedulers.smartspec.released import ReleasedLengths
from specsim.schedulers.smartspec.serving import PrefillFeedback, SmartSpec
from specsim.schedulers.smartspec.tree import HeadAverage, tree_length
from tests.made import Hardware, Linear, hardware, memory, one, requests
from tests.schedulers.test_specserve import DRAFT_S, play, prefilled, verified
from tests.unit.hand import Hand


def batch_of(n: int, context: int = 256, longest: Any = 8, catch_up: int = 1) -> Batch:
    full = np.full(n, 1)
    most = np.broadcast_to(np.array(longest), n)
    return Batch(np.arange(n), full * context, full * context, full * catch_up, most)


@pytest.mark.parametrize("acceptance", [0.0, 0.6, 1.0])
def test_a_chains_length_is_one_and_the_chances_of_each_draft(acceptance):
    """l(a, k) = 1 + a + ... + a^k; k + 1 where nothing fails (Eq. 8)."""
    k = np.arange(10)
    summed = [sum(acceptance**j for j in range(each + 1)) for each in range(10)]
    assert expected_length(np.array(acceptance), k) == pytest.approx(summed)


@pytest.mark.parametrize("top", [(1, 1, 1), (3, 2, 3), (2, 2, 0), (1, 3, 2)])
def test_a_trees_length_is_the_mean_over_all_luck(top):
    """Every candidate of head i right with a_i, on its own; a level counts while all before it hold one right.

    The paper prints another length.
    """
    rates, mean = (0.6, 0.4, 0.8), np.zeros(4)
    for outcome in product(*(range(2) for _ in range(sum(top)))):
        chance, place, alive = 1.0, 0, [True]
        for head, count in enumerate(top):
            mine = outcome[place : place + count]
            place += count
            chance *= float(np.prod([rates[head] if each else 1 - rates[head] for each in mine]))
            alive.append(alive[-1] and any(mine))
        mean += chance * np.cumsum(alive)
    assert tree_length(np.array(rates), np.array([top]))[0] == pytest.approx(mean)


def test_a_heads_rate_is_found_again_from_steps_of_different_widths():
    """Every other step tries three tokens at 0.4, which hold a right one with 0.784, or one token."""
    average = HeadAverage(heads=1, window=6, first=0.9)
    for wrong, top in ((216, 3), (600, 1)) * 3:
        average.on_verified(np.array([top]), np.ones(1000, dtype=np.int64), np.repeat([0, 1], [wrong, 1000 - wrong]))
    assert average.rates() == pytest.approx([0.4])


def test_a_steps_seconds_by_hand():
    """Two requests, 100 and 200 cached, the second with room for one draft; the drafter lacks 1 and 3 tokens."""
    batch = Batch(np.arange(2), np.array([100, 200]), np.array([90, 180]), np.array([1, 3]), np.array([2, 1]))
    draft = draft_seconds(Linear(1e-3, 1.0, 100.0), batch, 2)
    # Pass 1 reads what is lacking: 1, 1 + 3 tokens over 90, 90 + 180; pass 2 holds the first request alone.
    first, second = (100 + 1 + 0.09, 100 + 4 + 0.27), 100 + 1 + 0.091
    assert draft == pytest.approx(np.array([[0, 0], first, [first[0] + second, first[1] + second]]))
    target = target_seconds(Linear(1e-3, 1.0, 100.0), batch, np.array([[0, 0], [1, 1], [2, 1]]))
    assert target == pytest.approx(100 + np.array([[1.1, 2.3], [2.1, 4.3], [3.1, 5.3]])), "sum of k_i + 1, roots too"


def test_one_entry_of_the_surface_by_hand():
    """3 requests, k = 2, a = 0.5: 3 x 1.75 tokens in two draft passes of 3 tokens and one of 9."""
    surface = goodput(hardware(alpha=0.0, gamma=1e-3, delta=0.02), batch_of(3), np.full(3, 0.5), 4)
    assert surface.shape == (5, 3)
    assert surface[2, 2] == pytest.approx(3 * 1.75 / (2 * (0.002 + 3e-4) + 0.02 + 9e-3))
    assert surface[0, 0] == pytest.approx(1 / 0.021)


def test_the_best_is_the_best_that_fits_and_ties_go_to_the_longer_prefix():
    table = np.array([[1.0, 2.0, 2.0], [1.0, 3.0, 4.0]])
    assert best(table, np.ones((2, 3), dtype=bool)) == (3, 1)
    assert best(table, np.array([[True, True, True], [True, True, False]])) == (2, 1)
    assert best(table, np.array([[True, True, True], [True, False, False]])) == (3, 0)
    assert best(table, np.zeros((2, 3), dtype=bool)) == (0, 0)


def goodput_of(cost_model: Hardware, batch: Batch, acceptance: Any, lengths: tuple[int, ...]) -> float:
    """Return the goodput of the whole batch with these lengths, pass by pass."""
    k, n = np.array(lengths), len(lengths)
    seconds = cost_model.target.seconds(one(batch.target_cached.sum(), n + k.sum(), 0))
    for level in range(1, max(lengths) + 1):
        on = k >= level
        read = batch.draft_cached + (batch.catch_up if level > 1 else 0)
        queries = (batch.catch_up if level == 1 else np.ones(n))[on].sum()
        seconds += cost_model.draft.seconds(one(read[on].sum(), queries, 0))
    return float(sum(acceptance[i] ** j for i in range(n) for j in range(lengths[i] + 1)) / seconds)


@pytest.mark.parametrize("seed", range(3))
def test_own_lengths_are_the_best_of_all_that_there_are(seed):
    """Against every k_1..k_3 up to 4, contexts alike: the survival ranking misses nothing."""
    rng = np.random.default_rng(seed)
    acceptance = rng.uniform(0.1, 0.95, 3)
    made = hardware(alpha=0.0, gamma=float(rng.choice([1e-4, 2e-3, 8e-3])), delta=0.02)
    batch = batch_of(3, longest=[4, 2, 4])
    found = tuple(longest_by_survival(made, batch, acceptance, 4).tolist())
    everything = product(range(5), range(3), range(5))
    highest = max(goodput_of(made, batch, acceptance, each) for each in everything)
    # A pass that holds one token may be worth less than one more token elsewhere: no more than that is lost.
    assert goodput_of(made, batch, acceptance, found) == pytest.approx(highest, rel=0.03)


# --- played by hand: prefixes, drafts, what is learnt, the feedback on prefills ---------------------------------------

CHEAP = Hardware(Linear(0.0, 1e-6, 1.0), Linear(0.0, 0.0, 1e-3))
"""Drafting and verifying cost next to nothing beside the weights: every draft pays."""
DEAR = Hardware(Linear(0.0, 1.0, 1e-3), Linear(0.0, 0.0, 1.0))
"""Every draft costs more than it brings."""


def smart(num_speculative_tokens: int = 4, max_num_seqs: int = 8, max_num_batched_tokens: int = 64) -> SmartSpec:
    chains = GoodputChains(num_speculative_tokens, "global", window=4, first_acceptance=0.7)
    return SmartSpec(PrefillFirst(max_num_seqs, max_num_batched_tokens, watermark=0.0), chains, prefill_threshold=0.7)


def ran(hand: Hand) -> list[int]:
    """Play a step up to its verification; return its requests."""
    verified(hand, 0.9)
    return list(hand.work.requests.tolist())


def test_a_prefix_runs_where_the_youngest_costs_too_much_context():
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


def learnt(average: AcceptanceAverage, requests_: list[int], drafted: list[int], matched: list[int]) -> None:
    average.on_verified(np.array(requests_), np.array(drafted), np.array(matched))


def test_a_rate_is_conditional_and_a_token_counts_once():
    """4 of 4 right, and 1 right of the 2 that were tried out of 4: 5 of 6; then 0 of 1: 5 of 7, not (5/6 + 0) / 2."""
    average = AcceptanceAverage("global", window=2, first=0.7)
    average.begin(4)
    assert average.of(np.arange(2)).tolist() == [0.7, 0.7]
    learnt(average, [0, 1], [4, 4], [4, 1])
    assert average.of(np.arange(2)) == pytest.approx([(5 + 0.7) / (6 + 1)] * 2), "the window starts full"
    learnt(average, [0], [3], [0])
    assert average.of(np.array([1])) == pytest.approx([5 / 7])


def test_a_request_without_history_is_taken_for_the_average_one():
    average = AcceptanceAverage("per_request", window=2, first=0.7)
    average.begin(4)
    learnt(average, [0, 1], [1, 4], [1, 0])
    overall = (1 + 0.7) / (2 + 1)
    assert average.of(np.array([0, 1, 3])) == pytest.approx([(1 + overall) / 2, overall / 2, overall])
    learnt(average, [0, 1], [1, 4], [1, 0])
    assert average.of(np.array([0, 1, 3])) == pytest.approx([1.0, 0.0, 0.5])


def test_the_share_must_exceed_the_threshold():
    feedback = PrefillFeedback(0.7)
    assert feedback.drafting, "nothing is known yet"
    for drafted in (0, 0, 0, 0, 0, 0, 0, 5, 5, 5):
        feedback.update(drafted)
    assert feedback.drafting, "7 of 10 is 0.7, not more"
    feedback.update(0)
    assert not feedback.drafting


def test_a_request_prefilled_without_the_drafter_never_speculates_and_that_feeds_on_itself():
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


def test_a_policy_that_hardly_drafts_says_so_and_why_where_objectives_leave_no_room():
    hopeless = {"acceptance": "bernoulli", "acceptance__alpha": 0.02, "engine": "vllm_0_6", "scheduler__window": 20}
    hopeless |= {"trace__output_tokens__mean": 48, "scheduler__prefill_threshold": 1.0, "profile": "llama8b_1b_h100"}
    without_room = simulate("smartspec", "poisson", requests=40, rps=8, **hopeless)
    with_room = simulate("specserve", "poisson", requests=60, rps=12)
    said = [[note for note in run.notes if note.startswith("hardly drafts: ")] for run in (without_room, with_room)]
    assert all("the strictest TPOT objective is" in note for (note,) in said)
    assert ["nothing for the drafter to catch up with" in note for (note,) in said] == [False, True]


# --- as released: when it is asked, what it decides, and what it learns -----------------------------------------------

FREE = Linear(0.0, 0.0, 1.0)
"""Tokens cost nothing: the longest chain has the best goodput."""
AT_ONCE = {"decision_steps": 1, "retry_steps": 1}
RATE = {"first_rate": 0.7, "weight": 0.15}
SHIPPED = {**RATE, "decision_steps": 20, "plain_factor": 1.1, "retry_steps": 100, "memory_factor": 1.1}


def released(**changed: Any) -> ReleasedLengths:
    return ReleasedLengths(8, **(SHIPPED | changed))


def lengths(hand: Hand, steps: int, matched: int = 0) -> list[int]:
    """Play so many steps of one request, whose first `matched` drafts are right; return what each drafted."""
    found = []
    for _ in range(steps):
        found += verified(hand, 0.9)
        right = min(matched, found[-1])
        hand.emit([right + 1], [right])
    return found


def test_it_decides_at_the_first_question_and_at_each_twentieth_after_it():
    """With a retry after every step it is asked in each. Nothing is accepted, so the second decision ends drafting."""
    assert lengths(play(released(retry_steps=1, weight=1.0), FREE, most=400), 42) == [8] * 20 + [0] * 22


@pytest.mark.parametrize(("plain_factor", "length"), [(1.1, 0), (1.0, 1)])
def test_speculation_has_to_win_by_a_tenth(plain_factor, length):
    """1 / 17 ms is 58.8 tokens/s, 64.7 with the factor; k = 1 has 1.7 / 28 ms = 60.7, k = 2 2.19 / 39 ms = 56.2."""
    assert lengths(play(released(plain_factor=plain_factor, **AT_ONCE), Linear(0.0, 1e-3, 0.016)), 1) == [length]


def test_the_search_stops_at_the_first_fall():
    """All depths in one pass of 10 ms: k = 1 has 1.7 / 13 ms, below 1 / 2 ms; k = 8 would have 3.2 / 12 ms x 1.1."""
    hand = play(released(plain_factor=1.0, first_rate=1.0, **AT_ONCE), Linear(0.0, 0.0, 0.002))
    hand.view.cost_model = Hardware(Linear(0.0, 0.0, 0.002), Linear(0.0, 0.0, DRAFT_S, one_pass=True))
    assert lengths(hand, 1) == [0], "2 / 12 ms is less than 1 / 2 ms, 9 / 12 ms is more"


def test_a_step_that_drafted_moves_the_rate_towards_the_share_of_all_steps():
    part = released(**AT_ONCE)
    hand = play(part, FREE)
    assert [*lengths(hand, 1, matched=2), *lengths(hand, 1)] == [8, 8]
    assert part.rate == pytest.approx(0.85 * (0.85 * 0.7 + 0.15 * 2 / 3) + 0.15 * 2 / 4)


def test_a_length_that_nearly_fills_the_cache_has_no_goodput():
    """4 bytes for each of 5 + 1 + k tokens, of 180: 4 x 4 x 11 is 176, for k = 6 it is 192."""
    told = requests([0.0], [5], [40])
    pool = memory(told, 1.0, block_tokens=1)
    assert pool.capacity_bytes == 180
    hand = Hand(Composed(PrefillFirst(8, 64, 0.0), released(memory_factor=4.0, **AT_ONCE)), told, pool)
    hand.view.cost_model = Hardware(FREE, Linear(0.0, 0.0, DRAFT_S))
    assert verified(prefilled(hand), 0.9) == [5]
