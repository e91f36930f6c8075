"""The ledger's books after each kind of pass: caches, stamps, counts, evictions, and what a step leaves behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsim.core.passes import NOBODY, DraftPass, Emitted, Pass, TargetPass
from specsim.core.trees import Forest
from specsim.pass_shape import PassShape
from specsim.server.events import Gaps
from specsim.server.ledger import Ledger
from tests.made import grown, ledger_and_view, memory, requests

PROMPT = 6


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def begin(rows: int = 2) -> Ledger:
    told = requests([0.0] * rows, [PROMPT] * rows, [30] * rows)
    return ledger_and_view(told, memory(told, 9.0, block_tokens=1))[0]


def drafts(ledger: Ledger, work: DraftPass, start_s: float, *sure: float) -> tuple[PassShape, Forest]:
    """Run a draft pass that answers ranks 0, 1, ... of these confidences behind every leaf."""
    shape = ledger.reserve(work)
    leaves, width = len(work.leaves), len(sure)
    forest = grown(work.forest, np.repeat(work.leaves, width), list(sure) * leaves, list(range(width)) * leaves)
    ledger.commit_draft(work, forest, start_s)
    return shape, forest


def does(ledger: Ledger, work: Pass, start_s: float, tokens: Any = (), right: Any = (), ends: Any = ()) -> PassShape:
    if isinstance(work, DraftPass):
        return drafts(ledger, work, start_s)[0]
    shape = ledger.reserve(work)
    rows = len(work.requests)
    matched = np.array(right or [0] * rows)
    answer = Emitted(np.array(tokens), np.minimum(matched, tokens), matched, np.isin(np.arange(rows), ends))
    does.gaps = ledger.commit_verify(work, answer, start_s, start_s + 1.0)  # type: ignore[attr-defined]
    return shape


def gaps() -> Gaps:
    return does.gaps  # type: ignore[attr-defined, no-any-return]


def prefilled(rows: int = 2, drafter: bool = False) -> Ledger:
    ledger = begin(rows)
    ids, roots = np.arange(rows), Forest.roots(rows)
    if drafter:
        does(ledger, DraftPass(ids, np.full(rows, PROMPT), roots), 0.0)
    does(ledger, TargetPass(ids, np.full(rows, PROMPT), roots), 0.0, [1] * rows)
    ledger.end_step()
    return ledger


def test_a_prompt_in_two_chunks() -> None:
    ledger = begin(1)
    assert does(ledger, TargetPass(ints(0), ints(4), Forest.roots(1)), 0.0, [0]) == PassShape(0, 4, 10.0, 4, 1, 1)
    assert ledger.roster.running.tolist() == [0]
    assert list(ledger.roster.waiting) == []
    assert np.isnan(ledger.progress.first_token_s[0])
    # Two tokens on four cached: each sees those, itself and who is before it in the chunk: 5 + 6 pairs.
    assert does(ledger, TargetPass(ints(0), ints(2), Forest.roots(1)), 1.0, [1]) == PassShape(4, 2, 11.0, 2, 1, 1)
    progress = ledger.progress
    assert (progress.target_cached[0], progress.emitted_tokens[0], progress.first_token_s[0]) == (6, 1, 2.0)
    assert (progress.verifications[0], progress.decoded_tokens[0]) == (0, 0), "a prompt is not decoding"
    assert np.isnan(progress.first_decode_s[0])
    assert len(gaps().requests) == 0


def test_decoding_counts_and_gaps() -> None:
    ledger = prefilled()
    shape = does(ledger, TargetPass(ints(0, 1), ints(1, 1), Forest.roots(2)), 3.0, [1, 1])
    assert shape == PassShape(12, 2, 14.0, 0, 2, 2)
    progress = ledger.progress
    assert progress.first_decode_s.tolist() == [3.0, 3.0]
    assert progress.verifications.tolist() == [1, 1]
    assert progress.decoded_tokens.tolist() == [1, 1]
    assert progress.speculations.tolist() == [0, 0]
    assert gaps().requests.tolist() == [0, 1]
    assert gaps().seconds.tolist() == [3.0, 3.0], "from the first token at 1 s to 4 s"


def speculate(ledger: Ledger, depth: int, start_s: float = 5.0) -> Forest:
    """Draft a chain of `depth` for every resident."""
    ids = ledger.roster.running
    rows = len(ids)
    lacks = ledger.known(ids) - ledger.progress.draft_cached[ids]
    forest, leaves, chunks = Forest.roots(rows), np.arange(rows), lacks
    for _ in range(depth):
        before = len(forest)
        forest = drafts(ledger, DraftPass(ids, chunks, forest, leaves, 1), start_s, 0.5)[1]
        leaves, chunks = np.arange(before, len(forest)), NOBODY
    return forest


def test_speculation_keeps_the_accepted_path_in_both_caches() -> None:
    ledger = prefilled(3, drafter=True)
    forest = speculate(ledger, 3)
    assert ledger.progress.first_decode_s.tolist() == [5.0] * 3, "decoding began with the first draft pass"
    assert ledger.pool.held_bytes(ints(0)).tolist() == [6 * 3 + (7 + 2) * 1], "the chunk, and two nodes were fed"
    shape = does(ledger, TargetPass(ints(0, 1, 2), ints(1, 1, 1), forest), 6.0, [4, 2, 1], [3, 1, 0])
    # Each root sees 6 + itself; each node the same and itself: 7 + 3 * 8, three times.
    assert shape == PassShape(18, 12, 93.0, 0, 12, 3, 54)
    progress = ledger.progress
    assert progress.emitted_tokens.tolist() == [5, 3, 2]
    assert progress.target_cached.tolist() == [10, 8, 7]
    assert progress.draft_cached.tolist() == [9, 8, 7], "its own last proposal was never fed to the drafter"
    assert progress.draft_tokens.tolist() == [3, 3, 3]
    assert progress.accepted_tokens.tolist() == [3, 1, 0]
    assert progress.decoded_tokens.tolist() == [4, 2, 1]
    assert ledger.pool.held_bytes(ints(0, 1, 2)).tolist() == [39, 32, 28], "the wrong nodes' slots are free again"


def test_accepted_tokens_behind_the_end_are_not_counted() -> None:
    ledger = prefilled(1, drafter=True)
    forest = speculate(ledger, 3)
    does(ledger, TargetPass(ints(0), ints(1), forest), 6.0, [2], [3], ends=[0])
    progress = ledger.progress
    assert (progress.accepted_tokens[0], progress.emitted_tokens[0], progress.finish_s[0]) == (2, 3, 7.0)
    assert ledger.roster.live == 0
    assert ledger.finished == 1
    assert ledger.pool.used_bytes == 0


def test_logits_are_those_of_nodes_and_of_the_last_token_of_each_chunk() -> None:
    ledger = begin(2)
    does(ledger, TargetPass(ints(0), ints(PROMPT), Forest.roots(1)), 0.0, [1])
    forest, ids = Forest.roots(2), ints(0, 1)
    fed, forest = drafts(ledger, DraftPass(ids, ints(PROMPT + 1, 2), forest, ints(0), 2), 1.0, 0.5, 0.3)
    assert (fed.batched_tokens, fed.logit_tokens) == (PROMPT + 1 + 2, 2)
    deeper, _ = drafts(ledger, DraftPass(ids, NOBODY, forest, ints(2, 3), 1), 1.0, 0.5)
    assert (deeper.batched_tokens, deeper.logit_tokens) == (2, 2)
    mixed = does(ledger, TargetPass(ids, ints(1, 4), forest), 2.0, [1, 0])
    assert (mixed.batched_tokens, mixed.logit_tokens) == (1 + 2 + 4, 1 + 2 + 1)


def test_what_was_drafted_and_not_verified_is_dropped_at_the_end_of_the_step() -> None:
    ledger = prefilled(2, drafter=True)
    speculate(ledger, 3)
    before = ledger.pool.used_bytes
    ledger.end_step()
    assert ledger.pool.used_bytes == before - 2 * 2
    assert ledger.progress.draft_cached.tolist() == [7, 7]


def test_who_runs_without_its_tree_loses_it() -> None:
    ledger = prefilled(2, drafter=True)
    speculate(ledger, 2)
    does(ledger, TargetPass(ints(1, 0), ints(1, 1), Forest.roots(2)), 6.0, [1, 1])
    ledger.end_step()
    assert ledger.progress.draft_cached.tolist() == [7, 7]
    assert ledger.pool.used_bytes == 2 * (7 * 3 + 7)


def test_an_evicted_request_starts_again_and_keeps_what_it_emitted() -> None:
    ledger = prefilled(2, drafter=True)
    does(ledger, TargetPass(ints(0), ints(1), Forest.roots(1), ints(1)), 2.0, [1])
    progress = ledger.progress
    assert list(ledger.roster.waiting) == [1]
    assert ledger.roster.running.tolist() == [0]
    assert ledger.roster.live == 2
    assert (progress.target_cached[1], progress.draft_cached[1], progress.emitted_tokens[1]) == (0, 0, 1)
    assert progress.preemptions.tolist() == [0, 1]
    assert ledger.pool.held_bytes(ints(1)).tolist() == [0]
    shape = does(ledger, TargetPass(ints(1), ints(7), Forest.roots(1)), 3.0, [1])
    assert shape == PassShape(0, 7, 28.0, 7, 1, 1), "the prompt and the token are computed again"
    assert progress.verifications.tolist() == [1, 1], "the end of a recompute emits beyond the first token"
    assert progress.first_token_s[1] == 1.0
    assert gaps().seconds.tolist() == [3.0]


def test_the_line_is_in_order_of_arrival_and_residents_in_order_of_admission() -> None:
    ledger = begin(4)
    does(ledger, TargetPass(ints(2), ints(6), Forest.roots(1)), 0.0, [1])
    does(ledger, TargetPass(ints(3, 0), ints(6, 6), Forest.roots(2)), 0.0, [1, 1])
    assert ledger.roster.running.tolist() == [2, 3, 0]
    does(ledger, TargetPass(ints(2), ints(1), Forest.roots(1), ints(3, 0)), 0.0, [1])
    assert list(ledger.roster.waiting) == [0, 1, 3]


def test_emitted_tokens_of_a_finished_request_stay() -> None:
    ledger = prefilled()
    does(ledger, TargetPass(ints(0), ints(1), Forest.roots(1)), 2.0, [1], ends=[0])
    assert ledger.progress.emitted_tokens.tolist() == [2, 1]
    assert ledger.progress.finish_s[0] == pytest.approx(3.0)
    assert np.isnan(ledger.progress.finish_s[1])
    assert ledger.roster.running.tolist() == [1]


def test_a_backend_that_accepts_more_than_a_tree_holds_is_stopped() -> None:
    ledger = begin(1)
    does(ledger, TargetPass(ints(0), ints(PROMPT), Forest.roots(1)), 0.0, [1])
    forest = speculate(ledger, 2)
    with pytest.raises(AssertionError, match="accepts more than a tree holds"):
        does(ledger, TargetPass(ints(0), ints(1), forest), 6.0, [4], right=[3])


def test_who_comes_later_with_a_lower_number_is_not_queued_before() -> None:
    told = requests([0.0] * 4, [PROMPT] * 4, [30] * 4)
    ledger = Ledger(4, memory(told, 9.0, block_tokens=1), True)
    for request, now_s in ((3, 0.1), (1, 0.2), (2, 0.3)):
        ledger.arrive(request, told, now_s)
    assert [ledger.queued(at_s) for at_s in (0.05, 0.1, 0.25, 0.3)] == [0, 1, 2, 3]
