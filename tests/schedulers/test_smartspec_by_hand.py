"""SmartSpec and its variants played by hand: prefixes, drafts, memory, what is learnt, the feedback on prefills."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specsim.core.passes import DraftPass, TargetPass
from specsim.core.protocols import Scheduler
from specsim.schedulers.continuous import PrefillFirst
from specsim.schedulers.smartspec.chains import GoodputChains
from specsim.schedulers.smartspec.estimators import AcceptanceAverage, ConfidentChains, ForeseenChains, RandomChains
from specsim.schedulers.smartspec.serving import Foreseeing, PrefillFeedback, Proposer, SmartSpec
from specsim.schedulers.smartspec.tree import GoodputTrees
from tests.made import Hardware, Linear, memory, requests
from tests.unit.hand import Hand, fed, sizes

CHEAP = Hardware(Linear(0.0, 1e-6, 1.0), Linear(0.0, 0.0, 1e-3))
"""Drafting and verifying cost next to nothing beside the weights: every draft pays."""
DEAR = Hardware(Linear(0.0, 1.0, 1e-3), Linear(0.0, 0.0, 1.0))
"""Every draft costs more than it brings."""


def serving(
    proposal: Proposer,
    prefill_threshold: float = 0.7,
    kind: type[SmartSpec] = SmartSpec,
    *,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 64,
) -> SmartSpec:
    return kind(PrefillFirst(max_num_seqs, max_num_batched_tokens, watermark=0.0), proposal, prefill_threshold)


def smart(
    num_speculative_tokens: int = 4,
    acceptance: Any = "global",
    window: int = 4,
    first_acceptance: float = 0.7,
    **room: Any,
) -> SmartSpec:
    return serving(GoodputChains(num_speculative_tokens, acceptance, window, first_acceptance), **room)


def play(scheduler: Scheduler, belief: Hardware = CHEAP, rows: int = 2, most: int = 40, **pool: int) -> Hand:
    told = requests([0.0] * rows, [5] * rows, [most] * rows)
    hand = Hand(scheduler, told, replace(memory(told, 9.0, block_tokens=1), **pool))
    hand.view.belief = belief
    return hand


def prefilled(hand: Hand) -> Hand:
    if isinstance(hand.begin(), DraftPass):
        hand.propose()
    hand.emit([1] * len(hand.work.requests))
    return hand


def chain(hand: Hand, *sure: float) -> TargetPass:
    """Begin a step and answer its drafts until it verifies."""
    work = hand.begin()
    while isinstance(work, DraftPass):
        work = hand.propose(*(sure or (0.9,)))
    assert isinstance(work, TargetPass)
    return work


# --- SmartSpec --------------------------------------------------------------------------------------------------------


def test_prompts_first_then_the_longest_chains_where_drafts_are_cheap() -> None:
    hand = play(smart())
    work = hand.begin()
    assert isinstance(work, DraftPass)
    assert (work.requests.tolist(), fed(work)) == ([0, 1], [5, 5])
    hand.propose()
    hand.emit([1, 1])
    work = hand.begin()
    assert (fed(work), work.width, work.beam) == ([1, 1], 1, None)
    for _ in range(4):
        work = hand.propose(0.9)
    assert (work.requests.tolist(), work.chunks.tolist(), sizes(work)) == ([0, 1], [1, 1], [4, 4])


def test_no_draft_where_drafts_are_dear() -> None:
    work = prefilled(play(smart(), DEAR)).begin()
    assert isinstance(work, TargetPass)
    assert sizes(work) == [0, 0]


def test_what_was_accepted_decides_how_far_the_next_step_goes() -> None:
    """A draft pass for an eighth of a verification: nobody right, no drafts."""
    hand = prefilled(play(smart(window=1), Hardware(Linear(0.0, 0.0, 1.0), Linear(0.0, 0.0, 0.125))))
    assert sizes(chain(hand)) == [4, 4]
    hand.emit([1, 1], [0, 0])
    assert sizes(chain(hand)) == [0, 0]
    assert hand.scheduler.proposal.average.of(np.arange(2)).tolist() == [0.0, 0.0]


def test_nothing_is_learnt_from_a_step_without_drafts() -> None:
    hand = prefilled(play(smart(), DEAR))
    chain(hand)
    hand.emit([1, 1])
    assert hand.scheduler.proposal.average.of(np.arange(2)).tolist() == [0.7, 0.7]


def test_a_request_of_its_own_rate_gets_a_length_of_its_own() -> None:
    made = Hardware(Linear(0.0, 0.02, 1.0), Linear(0.0, 0.0, 0.125))
    hand = prefilled(play(smart(acceptance="per_request", window=1, first_acceptance=0.9), made))
    assert sizes(chain(hand)) == [4, 4]
    hand.emit([5, 1], [4, 0])
    assert sizes(chain(hand)) == [4, 0]
    hand.emit([5, 1], [4, 0])
    assert sizes(chain(hand)) == [4, 0], "who drafts nothing is not heard of again"


def test_a_chain_ends_where_its_request_does() -> None:
    assert sizes(chain(prefilled(play(smart(), most=4)))) == [2, 2], "1 of 4 is out: two drafts and the bonus"


def test_the_drafter_catches_up_when_a_plain_step_went_before() -> None:
    hand = prefilled(play(smart(), DEAR))
    chain(hand)
    hand.emit([1, 1])
    hand.view.belief = CHEAP
    assert fed(hand.begin()) == [2, 2]


def test_a_prefix_runs_where_the_youngest_costs_too_much_context() -> None:
    """A context of 64 tokens more than doubles the pass for one token more: the first two run, it waits its turn."""
    told = requests([0.0] * 3, [5, 5, 64], [40, 9, 9])
    hand = Hand(smart(num_speculative_tokens=0, max_num_batched_tokens=128), told, memory(told, 9.0, block_tokens=1))
    hand.view.belief = Hardware(Linear(0.1, 0.0, 1.0), Linear(0.0, 0.0, 1.0))
    prefilled(hand)
    assert chain(hand).requests.tolist() == [0, 1]
    hand.emit([1, 8], ends=[1])
    assert chain(hand).requests.tolist() == [0]
    hand.emit([39], ends=[0])
    assert chain(hand).requests.tolist() == [2], "the oldest always runs: nobody starves"


def test_a_prefix_is_by_age_not_by_admission() -> None:
    """The oldest, let in last, is still the first of every prefix."""
    told = requests([0.0] * 2, [64, 5], [9, 9])
    hand = Hand(smart(num_speculative_tokens=0, max_num_batched_tokens=128), told, memory(told, 9.0, block_tokens=1))
    hand.view.belief = Hardware(Linear(0.1, 0.0, 1.0), Linear(0.0, 0.0, 1.0))
    prefilled(hand)
    hand.begin()
    hand.emit([1] * len(hand.work.requests))
    hand.ledger.roster._resident = dict.fromkeys((1, 0))
    hand.ledger.roster._resident_ids = None
    assert chain(hand).requests.tolist()[0] == 0


def squeezed(hand: Hand, spare: int) -> Hand:
    """Leave `spare` bytes free: 3 a token of the target, 1 of the drafter."""
    pool = hand.ledger.pool
    pool.memory = replace(pool.memory, capacity_bytes=pool.used_bytes + spare)
    return hand


@pytest.mark.parametrize(("spare", "length"), [(40, 4), (39, 3), (32, 3), (31, 2), (16, 1), (6, 0)])
def test_lengths_without_slots_are_no_candidates(spare: int, length: int) -> None:
    """k drafts take 1 + k slots of each model for each of the two; none takes one of the target."""
    hand = squeezed(prefilled(play(smart())), spare)
    hand.view.belief = Hardware(Linear(0.0, 0.0, 9.0), Linear(0.0, 0.0, 1e-3))
    assert sizes(chain(hand))[:2] == [length] * 2


def test_fewer_with_drafts_may_beat_more_without() -> None:
    """15 bytes hold 2 drafts for the first alone, 2.19 tokens a pass; without drafts the two would make 2."""
    work = chain(squeezed(prefilled(play(smart())), 15))
    assert (work.requests.tolist(), sizes(work)) == ([0], [2])


def test_a_shorter_prefix_runs_where_the_cache_has_slots_for_no_more() -> None:
    """3 bytes free: one token of the target for one request. Nobody is preempted."""
    work = chain(squeezed(prefilled(play(smart())), 3))
    assert (work.requests.tolist(), sizes(work), work.evict.tolist()) == ([0], [0], [])


def test_the_youngest_gives_way_where_the_oldest_has_no_slot() -> None:
    """The 20 bytes of 1 and the 2 that are free hold the root and 4 drafts of 0: 4 bytes a token of both models."""
    hand = squeezed(prefilled(play(smart())), 2)
    first = hand.begin()
    assert isinstance(first, DraftPass)
    assert (first.requests.tolist(), first.evict.tolist()) == ([0], [1])
    while isinstance(hand.work, DraftPass):
        hand.propose(0.9)
    assert (hand.work.requests.tolist(), sizes(hand.work), hand.work.evict.tolist()) == ([0], [4], [])


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


def test_the_window_forgets() -> None:
    average = AcceptanceAverage("global", window=2, first=0.7)
    average.begin(4)
    for right in (4, 0, 4, 4):
        learnt(average, [0], [4], [right])
    assert average.of(np.array([0])).tolist() == [1.0]


def test_a_request_without_history_is_taken_for_the_average_one() -> None:
    average = AcceptanceAverage("per_request", window=2, first=0.7)
    average.begin(4)
    learnt(average, [0, 1], [1, 4], [1, 0])
    overall = (1 + 0.7) / (2 + 1)
    assert average.of(np.array([0, 1, 3])) == pytest.approx([(1 + overall) / 2, overall / 2, overall])
    learnt(average, [0, 1], [1, 4], [1, 0])
    assert average.of(np.array([0, 1, 3])) == pytest.approx([1.0, 0.0, 0.5])


@pytest.mark.parametrize(
    "bad", [{"window": 0}, {"first_acceptance": 1.5}, {"num_speculative_tokens": -1}, {"max_num_batched_tokens": 0}]
)
def test_senseless_parameters_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        smart(**bad)


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
    hand.view.belief = DEAR
    prefilled(hand)
    for step in range(3):
        chain(hand)
        hand.emit([1], ends=[0] if step == 2 else [])
    hand.view.belief = CHEAP
    work = hand.begin()
    assert isinstance(work, TargetPass), "3 of 3 steps proposed nothing: no draft prefill"
    assert work.requests.tolist() == [1]
    hand.emit([1])
    feedback = hand.scheduler.feedback
    for step in range(4, 10):
        assert sizes(chain(hand)) == [0]
        hand.emit([1])
        assert (feedback.idle, feedback.steps, feedback.drafting) == (step, step, False)


def test_with_a_threshold_of_one_the_drafter_always_reads_along() -> None:
    told = requests([0.0] * 2, [5, 5], [12, 40])
    hand = Hand(smart(max_num_seqs=1, prefill_threshold=1.0), told, memory(told, 9.0, block_tokens=1))
    hand.view.belief = DEAR
    prefilled(hand)
    chain(hand)
    hand.emit([1], ends=[0])
    assert isinstance(hand.begin(), DraftPass)


def test_who_may_speculate_does_beside_one_who_may_not() -> None:
    hand = prefilled(play(smart()))
    hand.scheduler.feedback.admit(np.array([0]), drafting=False)
    work = hand.begin()
    assert (fed(work), work.forest.row[work.leaves].tolist()) == ([0, 1], [1])
    for _ in range(4):
        work = hand.propose(0.9)
    assert (work.requests.tolist(), sizes(work)) == ([0, 1], [0, 4])


# --- trees ------------------------------------------------------------------------------------------------------------


def trees(tree_tokens: int = 12) -> SmartSpec:
    return serving(GoodputTrees(heads=2, width=3, tree_tokens=tree_tokens, window=4, first_acceptance=0.5))


def test_a_tree_is_full_and_as_wide_as_goodput_says() -> None:
    hand = prefilled(play(trees(), rows=1))
    work = hand.begin()
    assert (work.width, work.beam, len(work.leaves)) == (3, None, 1)
    work = hand.propose(0.5, 0.3, 0.1)
    assert (work.width, len(work.leaves)) == (3, 3)
    assert sizes(hand.propose(0.5, 0.3, 0.1)) == [12]


def test_the_bound_on_nodes_binds() -> None:
    work = chain(prefilled(play(trees(tree_tokens=8), rows=1)), 0.5, 0.3, 0.1)
    assert sizes(work) == [8], "2 x 3 + 2: 3 x 2 + 3 would be 9"


def test_trees_shrink_to_chains_and_then_to_nothing_under_load() -> None:
    """Verification tokens dearer and dearer: fewer candidates a head, then fewer heads, then none."""
    nodes = []
    for gamma in (1e-3, 0.1, 0.3, 2.0):
        hand = prefilled(play(trees(), Hardware(Linear(0.0, gamma, 1.0), Linear(0.0, 0.0, 1e-3)), rows=1))
        nodes += sizes(chain(hand, 0.5, 0.3, 0.1))
    assert nodes == sorted(nodes, reverse=True)
    assert (nodes[0], nodes[-1]) == (12, 0)
    assert len(set(nodes)) >= 3


# --- confidence -------------------------------------------------------------------------------------------------------


def sure() -> SmartSpec:
    return serving(ConfidentChains(num_speculative_tokens=3, threshold=0.5))


def test_all_draft_once_and_only_the_confident_go_on() -> None:
    hand = prefilled(play(sure()))
    work = hand.begin()
    assert work.leaves.tolist() == [0, 1]
    work = hand.propose(0.5)
    assert isinstance(work, TargetPass), "0.5 does not exceed 0.5"
    assert sizes(work) == [0, 0], "a token predicted to be rejected brings nothing"


def test_a_step_that_verifies_no_draft_counts_as_one_without_a_proposal() -> None:
    hand = prefilled(play(sure()))
    chain(hand, 0.5)
    assert (hand.scheduler.feedback.idle, hand.scheduler.feedback.steps) == (1, 1)
    hand.emit([1, 1])
    chain(hand, 0.9)
    assert (hand.scheduler.feedback.idle, hand.scheduler.feedback.steps) == (1, 2)


def test_at_most_p_passes_run() -> None:
    assert sizes(chain(prefilled(play(sure())), 0.9)) == [3, 3], "the printed loop would run four"


def test_the_verified_length_is_goodputs() -> None:
    """All sure, but a verified token costs as much as the pass: 2 tokens in 2.003 s, 4 in 4.003 s, 1 in 1.003 s."""
    dear = Hardware(Linear(0.0, 1.0, 1e-3), Linear(0.0, 0.0, 0.0))
    hand = prefilled(play(sure(), dear, rows=1))
    assert sizes(chain(hand, 0.9)) == [3], "more tokens share what is spent already"
    hand.emit([1], [0])
    hand.view.belief = Hardware(Linear(0.0, 50.0, 1.0), Linear(0.0, 0.0, 0.0))
    spent = hand.view.now_s
    work = chain(hand, 0.9)
    assert hand.view.now_s - spent == pytest.approx(0.03)
    rates = [(1 + k) / (0.03 + 1.0 + 50.0 * (1 + k)) for k in range(4)]
    assert sizes(work) == [int(np.argmax(rates))]


# --- estimators -------------------------------------------------------------------------------------------------------


class Sees:
    """Foresight of a step in which request i's next `ahead[i]` drafted tokens are right."""

    def __init__(self, ahead: list[int]) -> None:
        self.ahead = np.array(ahead)

    def right_ahead(self, ids: Any, most: int) -> Any:
        return np.minimum(self.ahead[ids], most)

    def output_tokens(self, ids: Any) -> Any:
        raise AssertionError("lengths of outputs are nothing to it")


def foreseeing(ahead: list[int]) -> SmartSpec:
    oracle: Any = serving(ForeseenChains(4), kind=Foreseeing)
    oracle.foresee(Sees(ahead))
    return oracle


def test_the_oracle_drafts_for_each_request_what_will_be_right() -> None:
    oracle = foreseeing([2, 0])
    hand = prefilled(play(oracle))
    work, leaves = hand.begin(), []
    while isinstance(work, DraftPass):
        leaves.append(work.forest.row[work.leaves].tolist())
        work = hand.propose(0.9)
    assert leaves == [[0], [0]]
    assert sizes(work) == [2, 0]


def test_the_oracle_does_not_begin_what_does_not_pay() -> None:
    assert sizes(chain(prefilled(play(foreseeing([5, 5]), DEAR)))) == [0, 0]


def test_the_oracle_cannot_do_without_the_future() -> None:
    hand = prefilled(play(serving(ForeseenChains(4))))
    with pytest.raises(ValueError, match="use a clairvoyant scheduler"):
        hand.begin()


def test_random_lengths_are_uniform_and_belong_to_request_and_position() -> None:
    def lengths(seed: int) -> list[int]:
        found, hand = [], prefilled(play(serving(RandomChains(3, seed)), DEAR, rows=4, most=200))
        for _ in range(60):
            found += sizes(chain(hand))
            hand.emit([1] * 4)
        return found

    first = lengths(0)
    assert first == lengths(0)
    assert first != lengths(1)
    assert np.bincount(first).tolist() == pytest.approx([60] * 4, abs=25)
