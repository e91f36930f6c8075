"""What a real drafter proposes and keeps: a wrong cache of its own would change no output, only what is right of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from profiler.acceptance.drafters import lookups, match_lengths  # noqa: E402
from profiler.backend.drafting import LookupDrafter  # noqa: E402
from profiler.backend.known import Known  # noqa: E402
from specsim.core.passes import NOBODY, DraftPass, TargetPass  # noqa: E402
from specsim.core.trees import Forest  # noqa: E402
from tests.laws.subjects import factory_of  # noqa: E402
from tests.made import memory, refusal, requests, simulation  # noqa: E402
from tests.profiler.backend.made import Wild, assert_lossless, real, small  # noqa: E402
from tests.profiler.backend.pairs import ITSELF, VOCABULARY  # noqa: E402

pytestmark = pytest.mark.torch
ROOT, ONE = np.array([0]), np.array([1])


def surely_right(seen: Counter[str]):
    """Return what holds each verification of a target that drafts for itself against what that must accept.

    That is the chain of likeliest children, as far as it was submitted.
    """

    def verified(work, answer, likeliest):
        forest = work.forest
        sure = np.ones(len(forest), dtype=bool)
        for node in range(forest.rows, len(forest)):
            own = likeliest[int(forest.slot[node])] == forest.token[node]
            sure[node] = own and sure[forest.parent[node]]
        depth = np.zeros(forest.rows, dtype=int)
        np.maximum.at(depth, forest.row[sure], forest.depth[sure])
        assert (answer.matched >= depth).all()
        seen.update(sure=int(depth.sum()), deeper=int((depth > 2).sum()))

    return verified


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data(), seed=st.integers(0, 10_000))
def test_the_likeliest_chain_of_a_target_that_drafts_for_itself_is_right(data, seed):
    seen: Counter[str] = Counter()
    drawn = replace(data.draw(small(ITSELF)), scheduler=lambda: Wild(seed))
    drawn = replace(drawn, memory=memory(drawn.requests, 100.0, 4, 1))
    ran = real(drawn, ITSELF, verified=surely_right(seen))
    assert_lossless(drawn, ran.record, ran.known)


@pytest.mark.parametrize(("name", "more"), [("vllm_spec", {}), ("adaserve", {"verify_tokens": 48})])
def test_chains_and_trees_of_the_target_itself_are_right(name, more):
    seen: Counter[str] = Counter()
    told = requests([0.0] * 6, [3, 9, 17, 4, 30, 8], [30] * 6)
    run_ = simulation(told, [30] * 6, factory_of(name, **more), pool=memory(told, 3.0))
    assert real(run_, ITSELF, verified=surely_right(seen)).backend.drafter.unpriced_tokens == 0
    assert seen["sure"] > 60
    assert seen["deeper"] > 10


class Script:
    """A scheduler of one turn after another, each a function of the view."""

    def __init__(self, *turns):
        self._turns = list(turns)

    def step(self, view):
        yield from (self._turns.pop(0) if self._turns else decode)(view)


def decode(view):
    ids = np.sort(np.concatenate([view.running, np.array(view.waiting, dtype=np.int64)]))
    yield TargetPass(ids, view.pending(ids), Forest.roots(len(ids)))


def scripted(*turns):
    return simulation(requests([0.0], [5], [9]), [9], lambda: Script(decode, *turns))


def test_a_leaf_that_is_accepted_without_having_been_extended_is_fed_later():
    """The ledger takes its key to be cached, since a node of its depth was extended."""

    def other_child(view):
        forest = yield DraftPass(ROOT, view.draft_pending(ROOT), Forest.roots(1), ROOT, 2)
        forest = yield DraftPass(ROOT, NOBODY, forest, np.array([2]), 1)
        answer = yield TargetPass(ROOT, ONE, forest)
        assert (answer.matched.tolist(), view.draft_pending(ROOT).tolist()) == ([1], [1])

    def chain(view):
        forest = yield DraftPass(ROOT, view.draft_pending(ROOT), Forest.roots(1), ROOT, 1, depth=3)
        answer = yield TargetPass(ROOT, ONE, forest)
        assert answer.matched.tolist() == [3]

    made = scripted(other_child, chain)
    ran = real(made, ITSELF)
    assert_lossless(made, ran.record, ran.known)
    assert ran.backend.drafter.unpriced_tokens == 1


def test_more_tokens_than_there_are_cannot_be_proposed():
    def wide(view):
        yield DraftPass(ROOT, view.draft_pending(ROOT), Forest.roots(1), ROOT, VOCABULARY + 1)

    said = f"tree width {VOCABULARY + 1} exceeds the vocabulary of {VOCABULARY} tokens"
    assert said in refusal(real, scripted(wide), ITSELF)


@settings(deadline=None)
@given(st.lists(st.integers(0, 2), min_size=2, max_size=40), st.integers(1, 3), st.integers(3, 5))
def test_a_lookup_finds_what_the_recording_one_finds(text, fewest, most):
    """Acceptance is recorded with `lookups`: its proposal for the token behind the text, and the match's length."""
    text = np.array(text)
    expected = lookups(np.append(text, 0), len(text), fewest, most)[0][0]
    chain, sure = LookupDrafter(Known([text], np.zeros(1, int)), None, fewest, most, 0.5).search(0)
    assert (int(chain[0]), sure) == (expected.token, 0.5) if len(chain) else (expected.match, sure) == (0, 0.0)
    if len(chain):
        assert match_lengths(text, most)[len(text) - len(chain) - 1] == expected.match
    assert match_lengths(text, most).max() <= most
