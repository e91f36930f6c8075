"""Each compiled kernel equals the reference in numpy to the last bit: trees, what a pass takes, and what it leaves."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.acceptance.trace import AcceptanceTrace, Pools
from specsim.core.trees import Forest
from specsim.errors import SpecsimError
from specsim.kernels import ledger
from specsim.kernels.growth import ALL, DEPTH, PARENT, ROW, Front, Growth, Pooled, Texts, answer, grow, rounds
from specsim.rng import STRIDE
from specsim.schedulers.parts.selection import selected
from tests.made import grown
from tests.reference import kernels as reference

CHANCES = (0.0, 0.1, 0.3, 0.3, 0.5, 0.9, 1.0)
"""Few, so that ties are frequent."""
many = settings(max_examples=200, deadline=None, derandomize=True)


def assert_equal(one, other):
    for mine, theirs in zip(one, other, strict=True):
        assert np.asarray(mine).dtype == np.asarray(theirs).dtype
        assert (np.asarray(mine).tobytes(), np.shape(mine)) == (np.asarray(theirs).tobytes(), np.shape(theirs))


@st.composite
def fronts(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    width, trees = draw(st.integers(1, 5)), draw(st.integers(1, 8))
    confidence = np.sort(rng.choice(CHANCES[draw(st.integers(0, 1)) :], (64, width)))[:, ::-1].copy()
    if draw(st.booleans()):
        row = np.repeat(np.arange(trees), draw(st.integers(1, 3)))
    else:
        row = np.sort(rng.integers(0, trees, draw(st.integers(1, 16))))
    leaves = len(row)
    depths = draw(st.integers(1, 3))
    start = rng.integers(0, 5 - depths, leaves) * 16
    off_start = start if draw(st.booleans()) else rng.integers(0, 5 - depths, leaves) * 16
    rank = rng.integers(0, width + 1, 64)
    text = Pooled(confidence, rank, bool((confidence[:, 0] == 0).any()), start, off_start, 15, depths)
    keys = rng.integers(0, 2**64, leaves, dtype=np.uint64, endpoint=False)
    front = Front(
        50 + np.arange(leaves), row, rng.integers(0, 3, leaves), rng.random(leaves), keys, rng.random(leaves) < 0.7
    )
    limit = rng.integers(0, 7, trees) if draw(st.booleans()) else np.full(trees, 1 << 20)
    beam = draw(st.sampled_from((ALL, 1, 2, 3, 4)))
    most = draw(st.sampled_from((40, 1 << 21)))
    return text, front, Growth(limit, draw(st.integers(1, 5)), draw(st.integers(1, width)), beam, 50 + leaves, most)


@many
@given(fronts())
def test_trees_grow_the_same(drawn):
    text, front, growth = drawn
    expected = reference.grow(text, front, growth)
    by_code_of_its_own = SimpleNamespace(confidence=text.confidence, rank=text.rank, silent=text.silent, at=text.at)
    for found in (grow(text, front, growth), grow(by_code_of_its_own, front, growth)):
        assert found.refused == expected.refused
        if not found.refused:
            assert_equal(found, expected)


@many
@given(st.data())
def test_the_same_nodes_are_selected(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    rows, nodes = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 60))
    row, path = (
        rng.integers(0, rows, nodes),
        rng.choice(CHANCES if data.draw(st.booleans()) else rng.random(9), nodes),
    )
    need = rng.choice([-np.inf, 0.0, 1.0, 1.5, 2.0, 3.0, 5.0, np.inf], rows)
    bounds = data.draw(st.integers(0, 10)), data.draw(st.integers(rows, rows + nodes + 4)), data.draw(st.booleans())
    asked = (row, path, need, rng.permutation(rows), *bounds)
    assert reference.select(*asked).tobytes() == selected(*asked).tobytes()


def test_nothing_is_read_beyond_the_end():
    """Compiled loops look at no bounds."""
    asked, bounds = (np.ones(2), np.full(2, 9.0)), (3, 9, True)
    for row, order in (([0, 5], [0, 1]), ([0, 1], [0, 6]), ([0, 1], [1, 1]), ([0, 1], [1])):
        with pytest.raises(ValueError, match="an order of 2 rows that does not name each once"):
            selected(np.array(row), *asked, np.array(order), *bounds)
    with pytest.raises(TypeError):
        selected(np.array([0, 1]), *asked, np.array([0.0, 1.0]), *bounds)
    texts = Texts(*np.ones((4, 3), dtype=np.int64))
    for node in ([2, 0, 1, 0, 0], [0, 0, 1, 0, 7]):
        numbers = np.array([[0, -1, 0, -1, -1], [1, -1, 0, -1, -1], node]).T.copy()
        with pytest.raises(IndexError, match="a forest has nodes of other rows than its 2, or of other slots than 7"):
            answer(texts, np.arange(2), np.ones(2, dtype=np.int64), numbers, np.zeros(7, dtype=np.int64))
    with pytest.raises(ValueError, match="not a tree"):
        grown(grown(Forest.roots(1), [0], [0.5]), [1], [0.5]).subset(np.array([True, False, True]))


@pytest.mark.parametrize("start", [-1, 5, 1 << 40])
def test_a_pool_that_does_not_lie_within_the_trace_is_refused(start):
    ranks, inside = np.zeros(8, dtype=np.int64), np.zeros(2, dtype=np.int64)
    for starts in ((np.array([0, start]), inside), (inside, np.array([0, start]))):
        with pytest.raises(SpecsimError, match=f"a pool of 4 rows begins at row {start:,} of 8 of an acceptance trace"):
            AcceptanceTrace(np.full((8, 2), 0.5), ranks, Pools(*starts, 4), np.zeros(2, dtype=np.uint64))


@st.composite
def trees(draw):
    """Rows, a forest's numbers, what was grown of it, and rng."""
    text, front, growth = draw(fronts())
    grown = reference.grow(text, front, growth._replace(most=1 << 21))
    rows = len(growth.limit)
    numbers = np.concatenate((np.zeros((5, rows), dtype=np.int64), grown.numbers), axis=1)
    numbers[ROW, :rows], numbers[PARENT, :rows] = np.arange(rows), -1
    # The front's nodes count from 50, as if others stood before them.
    numbers[PARENT, rows:] = np.maximum(numbers[PARENT, rows:] - growth.first + rows, numbers[ROW, rows:])
    return rows, numbers, grown, np.random.default_rng(draw(st.integers(0, 2**32 - 1)))


@many
@given(trees())
def test_the_target_says_the_same(drawn):
    rows, numbers, grown, rng = drawn
    rank = rng.integers(-1, 6, max(grown.rows.shape[1], 1))
    prompt, emitted = rng.integers(1, 9, 12), rng.integers(0, 4, 12)
    texts = Texts(prompt, emitted, rng.integers(0, prompt + emitted), emitted + rng.integers(1, 6, 12))
    ids = rng.permutation(12)[:rows]
    chunks = np.where(rng.random(rows) < 0.7, (prompt + emitted - texts.target_cached)[ids], 1)
    asked = texts, ids, chunks, numbers, rank
    assert_equal(reference.answer(*asked), answer(*asked))


@many
@given(fronts(), st.data())
def test_the_target_walks_chain_after_chain_the_same_way(drawn, data):
    """As far as trees of one chain say that are grown anew behind each bonus token."""
    text, front, _ = drawn
    rows, depth, most = len(front.node), data.draw(st.integers(1, 5)), data.draw(st.integers(1, 20))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    left, room = rng.integers(1, 60, rows), rng.integers(0, 90, rows)
    found = reference.rounds(text, front.key, depth, left, room, most)
    assert_equal([found], [rounds(text, front.key, depth, left, room, most)])
    emitted = np.zeros(rows, dtype=np.int64)
    for each in found:
        assert (emitted < np.minimum(left, room)).all()
        on_path = np.arange(rows), np.arange(rows), *np.zeros((1, rows), dtype=np.int64), np.ones(rows)
        key = front.key + STRIDE * emitted.astype(np.uint64)
        growth = Growth(np.full(rows, 1 << 20), depth, 1, ALL, rows, 1 << 21)
        spoken = text._replace(silent=False)
        grown = reference.grow(spoken, Front(*on_path, key, np.ones(rows, dtype=np.bool_)), growth)
        numbers = np.concatenate((np.zeros((5, rows), dtype=np.int64), grown.numbers), axis=1)
        assert np.array_equal(each, reference.walk(numbers, rows, grown.rows[1]))
        emitted += each + 1
    assert len(found) == most or (emitted >= np.minimum(left, room)).any()


N = 10
most = settings(max_examples=300, deadline=None, derandomize=True)


class Scene:
    """Books of which anything may hold, rows of a pass, and a forest behind them."""

    def __init__(self, seed, block_tokens, slack):
        self.rng = rng = np.random.default_rng(seed)
        prompt, emitted = rng.integers(1, 30, N), rng.integers(0, 5, N)
        known = prompt + emitted
        target = np.where(rng.random(N) < 0.6, known - 1, rng.integers(0, known))
        draft = np.where(rng.random(N) < 0.4, known - rng.integers(0, 3, N), rng.integers(0, known + 1)).clip(0)
        lent = [rng.integers(0, 2, N) * (cached // block_tokens) * block_tokens for cached in (target, draft)]
        blocks = [-(-(cached - each) // block_tokens) for cached, each in zip((target, draft), lent, strict=True)]
        nodes = rng.integers(0, 3, (2, N)) * (rng.random(N) < 0.3)
        self.books = ledger.Books(prompt, emitted, target, draft, *blocks, *lent, *nodes)
        self.ids = rng.permutation(N)[: rng.integers(1, N)]
        self.room = ledger.Room(block_tokens, *(int(each) for each in rng.integers(0, slack, 2)))
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
        return self.books, ledger.Books(*(column.copy() for column in self.books))


scenes = st.builds(Scene, st.integers(0, 2**32 - 1), st.sampled_from((1, 2, 16)), st.sampled_from((1, 4, 60)))


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


@most
@given(scenes)
def test_a_verification_takes_the_same(drawn):
    one, other = drawn.twice()
    chunks = np.maximum(chunks_of(drawn, drawn.lacking(drawn.books.target_cached)), drawn.rng.integers(0, 2))
    if drawn.rng.random() < 0.3:
        drawn.numbers = drawn.numbers[:, : len(drawn.ids)].copy()
    asked = drawn.ids, chunks, drawn.numbers, drawn.room
    assert_taken(reference.reserve(one, *asked), ledger.reserve(other, *asked))
    assert_equal(one, other)


@most
@given(scenes)
def test_a_draft_takes_the_same(drawn):
    one, other = drawn.twice()
    chunks = chunks_of(drawn, drawn.lacking(drawn.books.draft_cached)) if drawn.rng.random() < 0.7 else ledger.NO_INTS
    asked = drawn.ids, chunks, drawn.numbers, drawn.fresh, drawn.leaves(), drawn.room
    assert_taken(reference.reserve_draft(one, *asked), ledger.reserve_draft(other, *asked))
    assert_equal(one, other)
    extended = np.sort(drawn.rng.integers(0, drawn.numbers.shape[1], drawn.rng.integers(0, 6)))
    asked = drawn.ids, chunks, drawn.numbers, extended, drawn.room
    assert reference.deepen(one, *asked) == ledger.deepen(other, *asked)
    assert_equal(one, other)


def test_nodes_that_do_not_exist_are_refused():
    drawn = Scene(3, 16, 60)
    none = np.array([drawn.numbers.shape[1]])
    with pytest.raises(IndexError, match="a draft extends nodes that are none of its forest"):
        ledger.deepen(drawn.books, drawn.ids, ledger.NO_INTS, drawn.numbers, none, drawn.room)
    numbers = np.concatenate((drawn.numbers, np.full((5, 1), len(drawn.ids))), axis=1)
    assert ledger.reserve(drawn.books, drawn.ids, np.ones_like(drawn.ids), numbers, drawn.room).shape is None


@most
@given(scenes)
def test_a_verification_leaves_the_same(drawn):
    rng, n, drafted, feeds = drawn.rng, len(drawn.ids), *(bool(each) for each in drawn.rng.integers(0, 2, 2))
    one, other = drawn.twice()
    counts, at = rng.integers(0, 9, (5, N)), rng.integers(0, 9, (N, ledger.POSITIONS)).astype(np.int32)
    tallies = [ledger.ProgressColumns(*counts[:2], at, *counts[2:], *rng.random((2, N)))]
    tallies.append(ledger.ProgressColumns(*(column.copy() for column in tallies[0])))
    tree = np.bincount(drawn.numbers[ROW, n:], minlength=n) if rng.random() < 0.7 else ledger.NO_INTS
    matched = rng.integers(0, tree + 1) if len(tree) else np.zeros(n, dtype=np.int64)
    tokens = (matched + 1) * (rng.random(n) < 0.8)
    answer = tokens, np.minimum(matched, tokens), matched, rng.random(n) < 0.2
    chunks = np.maximum(drawn.lacking(drawn.books.target_cached), 1)
    asked = drawn.ids, chunks, tree, answer, drafted, feeds, 3.25, drawn.room.block_tokens
    assert_equal(reference.commit(one, tallies[0], *asked), ledger.commit(other, tallies[1], *asked))
    assert_equal(one, other)
    assert_equal(*tallies)
