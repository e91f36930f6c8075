"""The parts of AdaServe's selection, each on numbers that fit a hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsim.core.trees import Forest
from specsim.schedulers.parts.selection import select, selected
from tests.made import grown

ROWS, PATHS = np.array([0, 0, 0, 1, 1, 1, 1]), np.array([0.7, 0.4, 0.2, 0.5, 0.5, 0.5, 0.5])


def taken_by(need: list[float], order: list[int], budget: int, most: int = 9) -> list[int]:
    """Return how many nodes each row takes for its SLO."""
    chosen = selected(ROWS, PATHS, np.array(need), np.array(order), most, budget, False)
    return np.bincount(ROWS[chosen], minlength=2).tolist()


@pytest.mark.parametrize(
    ("need", "wanted"),
    [
        ([1.0, 1.0], [0, 0]),
        ([0.2, -np.inf], [0, 0]),
        ([1.1, 1.5], [1, 1]),
        ([1.7, 1.6], [1, 2]),
        ([1.71, 2.5], [2, 3]),
        ([9.0, 9.0], [3, 4]),
    ],
)
def test_nodes_for_an_slo(need: list[float], wanted: list[int]) -> None:
    """The root's own 1 counts; no row takes more than it has."""
    assert taken_by(need, [0, 1], 99) == wanted


def test_n_max_cuts_what_a_row_takes() -> None:
    assert taken_by([9.0, 9.0], [0, 1], 99, most=2) == [2, 2]


@pytest.mark.parametrize(
    ("budget", "taken"),
    [(2, [0, 0]), (3, [0, 1]), (6, [0, 4]), (7, [1, 4]), (9, [3, 4]), (20, [3, 4])],
)
def test_the_budget_is_spent_in_order(budget: int, taken: list[int]) -> None:
    """Each row's root counts."""
    assert taken_by([9.0, 9.0], [1, 0], budget) == taken


def test_equals_go_to_the_lower_node_so_parents_come_first() -> None:
    chain = grown(grown(grown(Forest.roots(1), [0], [0.5]), [1], [1.0]), [2], [1.0])
    for budget in range(1, 5):
        keep = select(chain, np.array([0.0]), np.array([0]), 9, budget)
        assert np.flatnonzero(keep).tolist() == list(range(budget))


def forest() -> Forest:
    """Return rows 0 and 1 with two nodes each (0.9, 0.3 and 0.8, 0.1), and a third row without any."""
    return grown(Forest.roots(3), [0, 0, 1, 1], [0.9, 0.3, 0.8, 0.1])


def picked(need: list[float], order: list[int], budget: int, most: int = 9) -> Any:
    keep = select(forest(), np.array(need), np.array(order), most, budget)
    assert keep[:3].all(), "roots are always in"
    return (np.flatnonzero(keep[3:]) + 3).tolist()


def test_roots_are_charged_to_the_budget() -> None:
    none = [0.0, 0.0, 0.0]
    assert picked(none, [0, 1, 2], 3) == []
    assert picked(none, [0, 1, 2], 4) == [3]
    assert picked(none, [0, 1, 2], 5) == [3, 5]
    assert picked(none, [0, 1, 2], 6) == [3, 4, 5]
    assert picked(none, [0, 1, 2], 7) == [3, 4, 5, 6]


def test_needs_go_before_likelihood_and_in_order() -> None:
    """Row 1 needs both of its nodes; alone, throughput would give row 0 the second place."""
    assert picked([0.0, 1.85, 0.0], [1, 0, 2], 5) == [5, 6]
    assert picked([1.95, 1.85, 0.0], [1, 0, 2], 6) == [3, 5, 6]
    assert picked([1.95, 1.85, 0.0], [0, 1, 2], 6) == [3, 4, 5]


def test_a_forest_without_nodes_is_all_roots() -> None:
    assert select(Forest.roots(2), np.array([3.0, 3.0]), np.array([0, 1]), 4, 8).tolist() == [True, True]
