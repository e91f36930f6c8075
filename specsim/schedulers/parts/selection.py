"""Selections of candidate nodes for verification, AdaServe's two among them, as pure functions of arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from specsim.core.request import Bools, Floats, Ints
from specsim.core.trees import Forest
from specsim.kernels import compiled_loops
from specsim.kernels.growth import likeliest

Order = Callable[[Floats], Ints]
"""Returns row indices in the order of selection, (n,), from the tokens that each row needs, (n,)."""
Cap = Callable[[Floats, int], Floats]
"""Returns the expected tokens to reach, (n,), from the tokens that each row needs, (n,), and its tree's depth."""


def neediest_first(need: Floats) -> Ints:
    """Return rows by descending A(r) (AdaServe, section 4.3: slower requests first), ties in row order."""
    return np.argsort(-need, kind="stable")


def least_needy_first(need: Floats) -> Ints:
    """Return rows by ascending A(r), as in the authors' public branch."""
    return np.argsort(need, kind="stable")


def nothing(need: Floats, depth: int) -> Floats:
    """Return 0 for all rows, so that only the throughput selection takes nodes (v1's GlobalGreedy)."""
    return np.zeros_like(need)


def at_most_the_tree(need: Floats, depth: int) -> Floats:
    """Return A_cap(r) = min(A(r), d + 1) (AdaServe, section 4.3)."""
    return np.minimum(need, depth + 1)


def select(forest: Forest, need: Floats, order: Ints, most_nodes: int, budget: int, *, fill: bool = True) -> Bools:
    """Return which nodes of `forest` AdaServe verifies, (nodes,), roots included (Algorithm 2, lines 9-23).

    First each request, in `order`, takes its likeliest nodes until 1 + their path probabilities reach `need`. Then the
    likeliest remaining nodes of all requests are taken. Roots count in the budget, which is never overspent: the
    printed loops run while B >= 0, one node too many. Line 15 adds the conditional probability; the path's is meant.

    Parameters
    ----------
    need : (n,) expected tokens to reach for the first n rows, with 1 for the root (A_cap). Other rows have no drafted
        nodes and do not count.
    order : (n,) these rows in the order of selection.
    most_nodes : n_max, drafted nodes that a request may take for its SLO.
    budget : B, the most nodes, roots included, at least n.
    fill : whether the second selection runs.
    """
    chosen = np.ones(len(forest), dtype=np.bool_)
    if forest.draft_nodes:
        drafted = slice(forest.rows, None)
        nodes = forest.row[drafted], forest.path_probability[drafted]
        chosen[drafted] = selected(*nodes, need, order, most_nodes, budget, fill)
    return chosen


def likeliest_of_all(forest: Forest, most: int) -> Bools:
    """Return the roots and the `most` likeliest drafted nodes of all trees, ties to the earlier one, (nodes,)."""
    return select(forest, np.zeros(forest.rows), np.arange(forest.rows), 0, forest.rows + most)


def likeliest_each(forest: Forest, most: int) -> Bools:
    """Return the roots and the `most` likeliest drafted nodes of each tree, ties to the earlier one, (nodes,)."""
    by_row = forest.rows + np.argsort(forest.row[forest.rows :], kind="stable")
    best = likeliest(forest.row[by_row], forest.path_probability[by_row, None], most)
    chosen = np.arange(len(forest)) < forest.rows
    chosen[by_row[best]] = True
    return chosen


def selected(row: Ints, path: Floats, need: Floats, order: Ints, most_nodes: int, budget: int, fill: bool) -> Bools:
    """Return which of drafted nodes are taken, (nodes,); see `select`.

    Parameters
    ----------
    row, path : (nodes,) row of each node, and the probability of its path.

    Raises
    ------
    ValueError
        When the order does not name each row once, or a node is of another row.
    """
    needs = np.ascontiguousarray(need, dtype=np.float64)
    turns = np.asarray(order).astype(np.int64, order="C", casting="same_kind", copy=False)
    chosen: Bools = compiled_loops().select(row, path, needs, turns, most_nodes, budget, fill)
    if len(chosen) < len(row):
        raise ValueError(f"an order of {len(needs)} rows that does not name each once, or a node of another row")
    return chosen
