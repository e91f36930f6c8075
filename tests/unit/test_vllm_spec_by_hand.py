"""`vllm_spec` played by hand: what it feeds the drafter, how deep it goes, and when it does without."""

from __future__ import annotations

from dataclasses import replace

from specsim.core.passes import DraftPass, TargetPass
from specsim.schedulers.composed import Composed
from specsim.schedulers.continuous import PrefillFirst
from specsim.schedulers.vllm_spec import FixedChains
from tests.made import memory, requests
from tests.unit.hand import Hand, fed, sizes


def vllm_spec(k: int) -> Composed:
    return Composed(PrefillFirst(max_num_seqs=8, max_num_batched_tokens=64, watermark=0.0), FixedChains(k))


def play(most: int = 40, rows: int = 1, k: int = 3, **pool: float) -> Hand:
    told = requests([0.0] * rows, [5] * rows, [most] * rows)
    spec = vllm_spec(k)
    return Hand(spec, told, memory(told, pool.get("factor", 9.0), block_tokens=1))


def prefilled(hand: Hand) -> Hand:
    hand.begin()
    hand.propose()
    hand.emit([1] * len(hand.view.waiting or hand.view.running))
    return hand


def chain(hand: Hand) -> TargetPass:
    """Begin a step and answer its drafts until it verifies."""
    work = hand.begin()
    while isinstance(work, DraftPass):
        work = hand.propose(0.5)
    assert isinstance(work, TargetPass)
    return work


def test_a_prompt_is_read_by_the_drafter_and_then_by_the_target() -> None:
    hand = play(rows=2)
    work = hand.begin()
    assert isinstance(work, DraftPass)
    assert (work.requests.tolist(), fed(work), work.leaves.tolist()) == ([0, 1], [5, 5], [])
    work = hand.propose()
    assert isinstance(work, TargetPass)
    assert (work.requests.tolist(), work.chunks.tolist(), sizes(work)) == ([0, 1], [5, 5], [0, 0])
    assert hand.emit([1, 1]) is None
    assert hand.view.draft_pending(hand.view.running).tolist() == [1, 1]


def test_a_step_drafts_k_tokens_one_behind_the_other() -> None:
    hand = prefilled(play(k=3))
    asked = []
    work = hand.begin()
    while isinstance(work, DraftPass):
        asked.append((fed(work), work.forest.depth[work.leaves].tolist(), work.width))
        work = hand.propose(0.5)
    assert asked == [([1], [0], 1), ([0], [1], 1), ([0], [2], 1)]
    assert (work.chunks.tolist(), sizes(work)) == ([1], [3])
    assert work.forest.depth.tolist() == [0, 1, 2, 3]


def test_after_full_acceptance_the_drafter_lacks_two_tokens() -> None:
    """Its own last proposal was never fed to it, and the bonus is new."""
    hand = prefilled(play(k=3))
    chain(hand)
    hand.emit([4], [3])
    assert fed(hand.begin()) == [2]


def test_after_a_rejection_the_drafter_lacks_one_token() -> None:
    for right in (0, 1, 2):
        hand = prefilled(play(k=3))
        chain(hand)
        hand.emit([right + 1], [right])
        assert fed(hand.begin()) == [1], right


def test_what_each_row_lacks_is_its_own() -> None:
    hand = prefilled(play(rows=3, k=2))
    chain(hand)
    hand.emit([3, 1, 2], [2, 0, 1])
    assert fed(hand.begin()) == [2, 1, 1]


def test_no_chain_is_longer_than_what_may_still_be_emitted() -> None:
    hand = prefilled(play(most=7, k=3))
    assert sizes(chain(hand)) == [3]
    hand.emit([3], [2])
    assert sizes(chain(hand)) == [2], "4 of 7 are out: two drafts and the bonus"
    hand.emit([2], [1])
    assert sizes(chain(hand)) == [0], "one token is left, and the target brings it itself"
    assert hand.emit([1], ends=[0]) is None
    assert hand.ledger.roster.live == 0


def test_rows_stop_drafting_one_by_one() -> None:
    told = replace(requests([0.0, 0.0], [5, 5], [40, 3]))
    hand = Hand(vllm_spec(4), told, memory(told, 9.0, block_tokens=1))
    prefilled(hand)
    assert sizes(chain(hand)) == [4, 1]


def test_where_memory_is_short_the_step_decodes_plainly_and_the_drafter_catches_up_later() -> None:
    told = requests([0.0, 0.0], [5, 5], [20, 20])
    hand = Hand(vllm_spec(4), told, replace(memory(told, 1.0, block_tokens=1), capacity_bytes=2 * 4 * 13))
    prefilled(hand)
    assert sizes(chain(hand)) == [4, 4]
    hand.emit([5, 5], [4, 4])
    work = hand.begin()
    assert isinstance(work, TargetPass), "10 known tokens each, 9 and 8 cached: no room for 1 + 4 and 2 + 4 more"
    assert (work.chunks.tolist(), sizes(work), work.evict.tolist()) == ([1, 1], [0, 0], [])
    hand.emit([1, 1], ends=[1])
    work = hand.begin()
    assert isinstance(work, DraftPass)
    assert fed(work) == [3], "two after the full acceptance, one from the plain step"


def test_the_youngest_gives_way_when_not_even_plain_decoding_fits() -> None:
    told = requests([0.0, 0.0], [5, 5], [20, 20])
    hand = Hand(vllm_spec(4), told, replace(memory(told, 1.0, block_tokens=1), capacity_bytes=25 * 4))
    prefilled(hand)
    work = hand.begin()
    while not work.evict.tolist():
        work = hand.propose(0.5) if isinstance(work, DraftPass) else hand.emit([1] * len(work.requests)) or hand.begin()
    assert (work.requests.tolist(), work.evict.tolist()) == ([0], [1])
    assert isinstance(work, DraftPass), "what 1 leaves holds the chain of 0"
    while isinstance(work, DraftPass):
        work = hand.propose(0.5)
    assert sizes(work) == [4]
    hand.emit([1])
    assert list(hand.view.waiting) == [1]
    assert hand.view.running.tolist() == [0]
    assert hand.ledger.progress.preemptions.tolist() == [0, 1]
