"""What a pass takes and leaves is what the reference in numpy says, to the last bit, for any scheduler."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.kernels.growth import DEPTH, PARENT, ROW
from specsim.kernels.ledger import (
    NO_INTS,
    POSITIONS,
    Books,
    ProgressColumns,
    Room,
    commit,
    deepen,
    reserve,
    reserve_draft,
)
from tests.reference import kernels as reference
from tests.unit.test_kernels import assert_equal

N = 10
many = settings(max_examples=300, deadline=None, derandomize=True)


class Scene:
    """Books of which anything may hold, rows of a pass, and a forest behind them."""

    def __init__(self, rng, block_tokens, slack):
        self.rng = rng
        prompt, emitted = rng.integers(1, 30, N), rng.integers(0, 5, N)
        known = prompt + emitted
        target = np.where(rng.random(N) < 0.6, known - 1, rng.integers(0, known))
        draft = np.where(rng.random(N) < 0.4, known - rng.integers(0, 3, N), rng.integers(0, known + 1)).clip(0)
        lent = [rng.integers(0, 2, N) * (cached // block_tokens) * block_tokens for cached in (target, draft)]
        blocks = [-(-(cached - each) // block_tokens) for cached, each in zip((target, draft), lent, strict=True)]
        nodes = rng.integers(0, 3, (2, N)) * (rng.random(N) < 0.3)
        self.books = Books(prompt, emitted, target, draft, *blocks, *lent, *nodes)
        self.ids = rng.permutation(N)[: rng.integers(1, N)]
        self.room = Room(block_tokens, *(int(each) for each in rng.integers(0, slack, 2)))
        self.numbers = self.forest(int(rng.integers(0, 4)))
        least = int(self.numbers[PARENT].max()) + 1
        self.fresh = int(rng.integers(least, self.numbers.shape[1] + 1))

    def forest(self, levels):
        rows = len(self.ids)
        numbers = np.full((5, rows), -1)
        numbers[ROW], numbers[DEPTH] = np.arange(rows), 0
        for _ in range(levels):
            above = np.sort(self.rng.integers(0, numbers.shape[1], self.rng.integers(1, 5)))
            new = np.zeros((5, len(above)), dtype=np.int64)
            new[ROW], new[PARENT], new[DEPTH] = numbers[ROW, above], above, numbers[DEPTH, above] + 1
            numbers = np.concatenate((numbers, new), axis=1)
        return numbers

    def leaves(self):
        """Mostly nodes without children, rarely anything."""
        nodes = self.numbers.shape[1]
        if self.rng.random() < 0.2:
            return self.rng.integers(-1, nodes + 1, self.rng.integers(0, 5))
        if self.rng.random() < 0.4:
            return self.rng.permutation(len(self.ids))[: self.rng.integers(0, len(self.ids) + 1)]
        return np.setdiff1d(np.arange(nodes), self.numbers[PARENT])

    def lacking(self, cached):
        return (self.books.prompt_tokens + self.books.emitted_tokens - cached)[self.ids]

    def twice(self):
        return self.books, Books(*(column.copy() for column in self.books))


def scene(seed, block_tokens, slack):
    return Scene(np.random.default_rng(seed), block_tokens, slack)


scenes = st.builds(scene, st.integers(0, 2**32 - 1), st.sampled_from((1, 2, 16)), st.sampled_from((1, 4, 60)))


def assert_taken(one, other):
    assert one.shape == other.shape
    assert one.shape is None or [type(each) for each in one.shape] == [type(each) for each in other.shape]
    assert one.blocks == other.blocks
    assert_equal([one.rows], [other.rows])


def chunks_of(drawn, lacking):
    """Mostly legal ones."""
    rng, n = drawn.rng, len(lacking)
    chunks = np.where(rng.random(n) < 0.6, lacking, rng.integers(0, np.maximum(lacking, 0) + 1))
    return chunks if rng.random() < 0.9 else chunks + rng.integers(-1, 2, n)


@many
@given(scenes)
def test_a_verification_takes_the_same(drawn):
    one, other = drawn.twice()
    chunks = np.maximum(chunks_of(drawn, drawn.lacking(drawn.books.target_cached)), drawn.rng.integers(0, 2))
    if drawn.rng.random() < 0.3:
        drawn.numbers = drawn.numbers[:, : len(drawn.ids)].copy()
    asked = drawn.ids, chunks, drawn.numbers, drawn.room
    assert_taken(reference.reserve(one, *asked), reserve(other, *asked))
    assert_equal(one, other)


@many
@given(scenes)
def test_a_draft_takes_the_same(drawn):
    one, other = drawn.twice()
    chunks = chunks_of(drawn, drawn.lacking(drawn.books.draft_cached)) if drawn.rng.random() < 0.7 else NO_INTS
    asked = drawn.ids, chunks, drawn.numbers, drawn.fresh, drawn.leaves(), drawn.room
    assert_taken(reference.reserve_draft(one, *asked), reserve_draft(other, *asked))
    assert_equal(one, other)
    extended = np.sort(drawn.rng.integers(0, drawn.numbers.shape[1], drawn.rng.integers(0, 6)))
    asked = drawn.ids, chunks, drawn.numbers, extended, drawn.room
    assert reference.deepen(one, *asked) == deepen(other, *asked)
    assert_equal(one, other)


def test_nodes_that_do_not_exist_are_refused():
    drawn = scene(3, 16, 60)
    with pytest.raises(IndexError, match="a draft extends nodes that are none of its forest"):
        deepen(drawn.books, drawn.ids, NO_INTS, drawn.numbers, np.array([drawn.numbers.shape[1]]), drawn.room)
    numbers = np.concatenate((drawn.numbers, np.full((5, 1), len(drawn.ids))), axis=1)
    assert reserve(drawn.books, drawn.ids, np.ones_like(drawn.ids), numbers, drawn.room).shape is None


@many
@given(scenes)
def test_a_verification_leaves_the_same(drawn):
    rng, n, drafted, feeds = drawn.rng, len(drawn.ids), *(bool(each) for each in drawn.rng.integers(0, 2, 2))
    one, other = drawn.twice()
    counts, at = rng.integers(0, 9, (5, N)), rng.integers(0, 9, (N, POSITIONS)).astype(np.int32)
    tallies = [ProgressColumns(*counts[:2], at, *counts[2:], *rng.random((2, N)))]
    tallies.append(ProgressColumns(*(column.copy() for column in tallies[0])))
    tree = np.bincount(drawn.numbers[ROW, n:], minlength=n) if rng.random() < 0.7 else NO_INTS
    matched = rng.integers(0, tree + 1) if len(tree) else np.zeros(n, dtype=np.int64)
    tokens = (matched + 1) * (rng.random(n) < 0.8)
    answer = tokens, np.minimum(matched, tokens), matched, rng.random(n) < 0.2
    chunks = np.maximum(drawn.lacking(drawn.books.target_cached), 1)
    asked = drawn.ids, chunks, tree, answer, drafted, feeds, 3.25, drawn.room.block_tokens
    assert_equal(reference.commit(one, tallies[0], *asked), commit(other, tallies[1], *asked))
    assert_equal(one, other)
    assert_equal(*tallies)
