"""Passes whose shapes come again are replayed over other rows, and say what they say launched one by one."""

from functools import cache, partial
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from profiler.attention.packing import LARGEST_CAPTURED, PackedRoom, Work, pack  # noqa: E402
from profiler.attention.pages import deal  # noqa: E402
from profiler.passes import graphs  # noqa: E402
from profiler.passes.checks import check_replays, checked_works, verified  # noqa: E402
from profiler.passes.forward import Forward  # noqa: E402
from profiler.passes.graphs import LONGEST_CHUNK, Replays  # noqa: E402
from specsim.errors import SpecsimError  # noqa: E402
from tests.profiler.backend.pairs import SHAPE, VOCABULARY, loud  # noqa: E402
from tests.profiler.passes.layouts import TREES, rerun  # noqa: E402
from tests.profiler.passes.test_packing import works  # noqa: E402

pytestmark = pytest.mark.torch
KERNELS = ("sdpa", "split", "flex")


def served(kernel="sdpa", pages=80):
    forward = Forward(loud(), SHAPE, pages, kernel)
    forward.cache.fill(seed=1)
    return forward


def levels(contexts, deep):
    """Return a level of chains: nodes that earlier levels have cached, and one behind them in each row."""
    rows = len(contexts)
    place = np.tile(np.arange(deep + 1), rows)
    row = np.repeat(np.arange(rows), deep + 1)
    return Work.of(contexts, np.zeros(rows), row, np.where(place == 0, -1, np.arange(len(row)) - 1), place < deep)


def both(forward, replays, work, seed):
    rng = np.random.default_rng(seed)
    tables, tokens = deal(work, forward.cache.shape, rng), rng.integers(0, VOCABULARY, work.batched_tokens)
    plain = forward.run(forward.inputs(work, tables, tokens)).clone()
    run = replays.prepared(work, tables, tokens)
    return plain, None if run is None else run()


@pytest.mark.parametrize("kernel", KERNELS)
def test_replays_over_other_rows_say_what_launched_passes_say(kernel):
    forward = served(kernel)
    replays = Replays(forward, rerun)
    rng = np.random.default_rng(0)
    for seed in range(12):
        rows = int(rng.integers(1, 7))
        contexts = rng.integers(1, 60, rows)
        for work in (Work.of(contexts, np.ones(rows)), levels(contexts, 20 if seed == 0 else int(rng.integers(0, 4)))):
            plain, replayed = both(forward, replays, work, seed)
            torch.testing.assert_close(replayed, plain, atol=1e-11, rtol=1e-11)
    assert 5 < len(replays) < 20, "24 passes: some took over the graph of another"


@cache
def of_one_room():
    """Return a model and graphs that replay every pass of the test below by two of them, one for passes with a tree."""
    forward = served("split")
    return forward, Replays(forward, rerun)


@settings(max_examples=60, deadline=None)
@given(works(rows=6, chunk=3, nodes=8), st.integers(0, 2**16))
def test_any_pass_takes_over_a_graph_that_has_room_for_it(work, seed):
    """Trees, chains, draft steps and catch-ups in one pass, rows without queries, and padding of every kind."""
    forward, replays = of_one_room()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphs, "_room", lambda work, causal, page_tokens: PackedRoom(8, 128, 128, 16, 128, causal))
        plain, replayed = both(forward, replays, work, seed)
    torch.testing.assert_close(replayed, plain, atol=1e-11, rtol=1e-11)
    assert len(replays) <= 2


large = cache(partial(served, pages=600))


@pytest.mark.parametrize(
    ("work", "kernels"),
    [
        (TREES["tree of 7"], ("sdpa", "flex")),
        (Work.of([40, 3], [1, 2]), ("sdpa", "flex")),
        (Work.of([5, 9], [1, 1], [0, 0, 1, 1], [-1, 0, -1, 2]), ("sdpa", "flex")),
        (Work.of([0], [LONGEST_CHUNK + 1]), KERNELS),
        (Work.of([9, 4], [LONGEST_CHUNK + 1, 1], [1], [-1]), KERNELS),
        (Work.of(np.ones(LARGEST_CAPTURED + 1), np.ones(LARGEST_CAPTURED + 1)), KERNELS),
        (Work.of([9], [0], np.zeros(17), np.full(17, -1), np.arange(17) < 16), KERNELS),
    ],
)
def test_other_passes_are_launched(work, kernels):
    for kernel in kernels:
        forward = large(kernel)
        replays = Replays(forward, rerun)
        tables = deal(work, forward.cache.shape, np.random.default_rng(0))
        assert replays.prepared(work, tables, np.zeros(work.batched_tokens, np.int64)) is None
        assert not len(replays)


@pytest.mark.parametrize(
    ("kernel", "work"), [("sdpa", Work.of([20, 30, 9], [1, 1, 1])), ("split", verified([4, 0, 3], 2))]
)
def test_a_pass_of_padding_leaves_other_rows_alone(kernel, work):
    """Three rows of four: what the fourth writes, and padding tokens behind it, is on the page of no row."""
    forward = served(kernel)
    forward.replays = Replays(forward, rerun)
    tables = deal(work, forward.cache.shape, np.random.default_rng(3))
    before = forward.cache.keys[0].clone()
    run = forward.prepared(work, tables, np.zeros(work.batched_tokens, np.int64))
    assert len(forward.replays) == 1, "captured before the pass is timed"
    run()
    assert len(forward.replays) == 1
    changed = torch.nonzero((forward.cache.keys[0] != before).any(-1).any(-1)).flatten()
    own = np.sort(tables.query_slots(pack(work)))
    assert changed[: len(own)].tolist() == own.tolist()
    assert changed[len(own)] == forward.cache.shape.padding_slot // 16 * 16


@pytest.mark.parametrize(("kernel", "kinds"), [("sdpa", 2), ("split", 6)])
def test_replays_are_compared_before_they_are_used(kernel, kinds):
    """Short rows, and one that fills nearly all that a graph has room for; in split attention four kinds more."""
    forward = served(kernel)
    replays = Replays(forward, rerun)
    check_replays(forward, replays)
    assert len(replays) == kinds
    assert max(int(work.key_tokens.max()) for work in checked_works(forward.cache.shape, kernel)) == 64 * 16 - 1


def test_replays_that_err_or_cannot_be_captured_are_refused():
    forward = served()

    stuck = Replays(forward, lambda run, warm_up: (SimpleNamespace(replay=lambda: None), run()))
    with pytest.raises(SpecsimError, match=r"^graphs: a replay of tiny errs by \d.*; expected 2e-10$"):
        check_replays(forward, stuck)

    refused = Mock(side_effect=RuntimeError("operation not permitted when stream is capturing"))
    said = "^graphs: tiny cannot be captured: operation not permitted when stream is capturing$"
    with pytest.raises(SpecsimError, match=said):
        check_replays(forward, Replays(forward, refused))
