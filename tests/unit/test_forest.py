"""Forests: nodes in order, growth, choices that stay trees, and beams against a plain sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.core.trees import Forest
from specsim.kernels.growth import likeliest
from tests.made import grown


def test_roots_hold_nothing_and_cannot_be_written_to() -> None:
    roots = Forest.roots(3)
    assert (len(roots), roots.draft_nodes, roots.rows) == (3, 0, 3)
    assert roots.row.tolist() == [0, 1, 2]
    assert roots.parent.tolist() == [-1, -1, -1]
    assert roots.depth.tolist() == [0, 0, 0]
    assert roots.path_probability.tolist() == [1, 1, 1]
    assert roots.tree_tokens().tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="read-only"):
        roots.row[0] = 7


def test_growing_leaves_the_old_forest_and_derives_row_and_depth() -> None:
    roots = Forest.roots(2)
    first = grown(roots, [1, 0, 1], [0.5, 0.4, 0.3], [0, 0, 1])
    second = grown(first, [2, 4], [0.5, 0.1], [2, 3])
    assert len(roots) == 2
    assert len(first) == 5
    assert second.row.tolist() == [0, 1, 1, 0, 1, 1, 1]
    assert second.parent.tolist() == [-1, -1, 1, 0, 1, 2, 4]
    assert second.depth.tolist() == [0, 0, 1, 1, 1, 2, 2]
    assert second.token.tolist()[2:] == [0, 0, 1, 2, 3]
    assert second.probability.tolist()[2:] == [0.5, 0.4, 0.3, 0.5, 0.1]
    assert second.path_probability.tolist()[2:] == pytest.approx([0.5, 0.4, 0.3, 0.25, 0.03])
    assert second.tree_tokens().tolist() == [1, 4]
    assert second.draft_nodes == 5


def test_a_subset_renames_parents_and_keeps_roots() -> None:
    forest = grown(grown(Forest.roots(2), [0, 1, 1], [0.5, 0.4, 0.3]), [4, 3], [0.9, 0.8])
    kept = forest.subset(np.array([False, False, False, True, True, True, False]))
    assert kept.row.tolist() == [0, 1, 1, 1, 1]
    assert kept.parent.tolist() == [-1, -1, 1, 1, 3]
    assert kept.probability.tolist()[2:] == [0.4, 0.3, 0.9]
    assert kept.tree_tokens().tolist() == [0, 3]


def test_a_choice_without_a_parent_is_no_tree() -> None:
    forest = grown(grown(Forest.roots(1), [0], [0.5]), [1], [0.5])
    with pytest.raises(ValueError, match="not a tree"):
        forest.subset(np.array([True, False, True]))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    width=st.integers(1, 4),
    count=st.integers(1, 6),
    luck=st.integers(0, 99),
)
def test_a_beam_is_each_rows_highest_ties_to_the_earlier(sizes: list[int], width: int, count: int, luck: int) -> None:
    row = np.repeat(np.arange(len(sizes)), sizes)
    if not len(row):
        return
    score = np.random.default_rng(luck).choice([0.1, 0.2, 0.2, 0.5, 0.9], (len(row), width))
    flat, owner = score.ravel(), np.repeat(row, width)
    expected = []
    for each in range(len(sizes)):
        mine = sorted(np.flatnonzero(owner == each).tolist(), key=lambda place: (-flat[place], place))
        expected += [set(mine[:count])] if mine else []
    found = likeliest(row, score, count)
    assert np.array_equal(owner[found], np.sort(owner[found])), "rows in order"
    assert [set(found[owner[found] == each].tolist()) for each in np.unique(row)] == expected
    assert len(found) == sum(map(len, expected))
