"""The passes of a grid, and their order: whatever the time, the first part of a sweep can be fitted."""

import re
from dataclasses import replace

import numpy as np
import pytest

from profiler.latency.choice import FEWEST_SHAPES, as_columns, judge
from profiler.latency.points import (
    CPU,
    CPU_QUICK,
    DRAFT_KINDS,
    FULL,
    QUICK,
    TARGET_KINDS,
    GridPoint,
    interleaved,
    read_grid,
)
from specsim.latency.forms import Roofline
from tests.made import refusal
from tests.profiler.latency.made import samples_of

GRIDS = {"full": FULL, "quick": QUICK, "cpu": CPU, "cpu_quick": CPU_QUICK}


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize(("role", "kinds"), [("target", TARGET_KINDS), ("draft", DRAFT_KINDS)])
def test_a_grid_has_every_kind_of_pass_within_its_limits(name, role, kinds):
    grid = GRIDS[name]
    points = grid.passes(role)
    assert ({point.kind for point in points}, len({point.key for point in points})) == (set(kinds), len(points))
    assert len({point.shape for point in points}) > FEWEST_SHAPES + 3, "some may be skipped"
    for point in points:
        work = point.work()
        assert work.batched_tokens == point.tokens_most()[1] <= grid.max_batched_tokens
        assert work.context_tokens == point.tokens_most()[0] <= grid.max_context_tokens
        child = work.node_parent >= 0
        assert np.array_equal(work.node_row[work.node_parent[child]], work.node_row[child])


def test_a_point_is_the_same_pass_every_time_and_ragged():
    work, again = (GridPoint("verify", 8, 100, 5).work() for _ in range(2))
    assert np.array_equal(work.context, again.context)
    assert np.array_equal(work.node_parent, again.node_parent)
    assert len(set(work.context.tolist())) > 3
    assert 75 <= work.context.min() <= work.context.max() <= 125


def test_a_draft_step_asks_for_leaves_behind_cached_levels():
    work = GridPoint("draft", 2, 50, 3).work()
    assert (work.chunk.tolist(), work.new_tokens.tolist()) == ([0, 0], [3, 3])
    assert work.key_tokens.sum() == 100 + 2 * 9
    assert work.node_cached[work.node_parent[np.flatnonzero(~work.node_cached)]].all()


def test_a_mixed_pass_is_a_fresh_chunk_beside_rows_that_may_verify_trees():
    point = GridPoint("mixed", 1, 200, 64, 3, 5)
    work = point.work()
    assert (work.chunk.tolist(), work.context[0], work.new_tokens.tolist()) == ([64, 1, 1, 1], 0, [64, 5, 5, 5])
    assert (work.batched_tokens, work.context_tokens) == point.tokens_most()[::-1] == (79, 600)
    parents = work.node_parent[work.node_parent >= 0]
    assert np.array_equal(work.node_row[parents], work.node_row[work.node_parent >= 0])
    several = point, GridPoint("mixed", 1, 200, 64, 3), GridPoint("mixed", 1, 200, 64, 15)
    assert len({each.key for each in several}) == len({each.shape for each in several}) == 3


def test_a_users_grid_fills_in_the_default_and_rows_that_speculate_stand_beside_the_middle_chunk(tmp_path):
    (tmp_path / "g.yaml").write_text("speculating: [1, 2]\ntrees: [3, 5]\nchunks: [64, 16, 32]\nbeside: [4]\n")
    passes = read_grid(tmp_path / "g.yaml", CPU).passes("target")
    mixed = {(each.queries, each.decoding, each.tree) for each in passes if each.tree > 1}
    assert mixed == {(32, rows, tree) for rows in (1, 2) for tree in (3, 5)}
    (tmp_path / "g.yaml").write_text("requests: [1, 2]\nrepeats: 3\nseconds: 1\n")
    grid = read_grid(tmp_path / "g.yaml", CPU)
    assert replace(grid, behind=(0, 20000)).left_out[0].startswith("1 size left out: behind 20000: in no pass")
    assert (grid.requests, grid.repeats, grid.seconds, grid.contexts) == ((1, 2), 3, 1.0, CPU.contexts)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("request: [1]", "request: unknown key; did you mean 'requests'"),
        ("requests: [0]", r"requests: \(0,\); expected numbers above 0"),
        ("requests: 3", "requests: 3 is not a list"),
        ("behind: [-1]", "behind.0: -1 is not a whole number between 0 and"),
        ("trees: [600]", r"trees 600: in no pass .* limits; expected max_batched_tokens: 600 \(it is 264\)"),
        ("chunks: [1024, 2048]", ": chunks 1024, chunks 2048: in no .* max_batched_tokens: 2048"),
        ("contexts: [100000]\nrequests: [1, 8]", ": contexts 100000: .* max_context_tokens: 100000"),
        ("contexts: [64, 9000]", ": beside 4, beside 8: .* max_context_tokens: 72000"),
        ("- 1", r"\[1\], no mapping; expected keys with values"),
    ],
)
def test_a_wrong_grid_is_one_line(tmp_path, text, told):
    (tmp_path / "g.yaml").write_text(text)
    assert re.search(f"g.yaml.*{told}", refusal(read_grid, tmp_path / "g.yaml", CPU))


LAW = Roofline(0.012, 1e-6, 0.002, 7e-5, 2e-8, 2e-9)
ROLES = ("target", "draft")


ORDER = interleaved({role: FULL.passes(role) for role in ROLES})


def test_every_point_has_one_turn_and_a_fifth_of_them_every_kind_of_both_roles_small_and_large():
    wanted = [(role, point) for role in ROLES for point in FULL.passes(role)]
    assert (len(ORDER), set(ORDER)) == (len(wanted), set(wanted))
    first = ORDER[: len(ORDER) // 5]
    for role, kinds in (("target", TARGET_KINDS), ("draft", DRAFT_KINDS)):
        tokens = [point.tokens_most()[1] for each, point in first if each == role]
        assert ({point.kind for each, point in first if each == role}, min(tokens)) == (set(kinds), 1)
        assert max(tokens) >= 2048


def test_what_is_measured_before_a_cut_can_be_fitted():
    for role in ROLES:
        before = {point.key for each, point in ORDER[: int(0.3 * len(ORDER))] if each == role}
        samples = samples_of(LAW, role)
        found = judge([each for each in samples if each.key in before], role).roofline
        assert max(error.median for error in found.errors.values()) < 0.1
        columns = as_columns([each for each in samples if each.key not in before])
        off = abs(columns.predicted_by(found.fitted.form) / columns.seconds - 1)
        assert sorted(off)[len(off) // 2] < 0.02
