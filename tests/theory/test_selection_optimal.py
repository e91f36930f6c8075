"""AdaServe's selections against brute force: every connected choice of nodes on small random trees."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.core.trees import Forest
from specsim.schedulers.parts.selection import likeliest_of_all, neediest_first, select, selected
from tests.made import grown

NODES = 6
profile = settings(max_examples=80)
NEEDS = st.lists(st.floats(0.5, 3.0), min_size=3, max_size=3)
SURE = st.sampled_from((1.0, 0.9, 0.7, 0.5, 0.5, 0.31, 0.11))


@st.composite
def forests(draw: st.DrawFn, most_rows: int = 3) -> Forest:
    """Draw a forest node by node: each hangs behind any earlier one of its tree, with ties and certainties."""
    rows = draw(st.integers(1, most_rows))
    forest = Forest.roots(rows)
    for _ in range(NODES):
        row = draw(st.integers(0, rows - 1))
        mine = np.flatnonzero(forest.row == row)
        parent = [int(mine[draw(st.integers(0, len(mine) - 1))])]
        forest = grown(forest, parent, [draw(SURE)])
    return forest


def connected(forest: Forest) -> list[Any]:
    """Return every choice of drafted nodes that holds each node's parent, (nodes,) of bool each."""
    choices = []
    for bits in product((False, True), repeat=forest.draft_nodes):
        keep = np.array([True] * forest.rows + list(bits))
        if keep[forest.parent[forest.rows :][np.array(bits, dtype=bool)]].all():
            choices.append(keep)
    return choices


def worth(forest: Forest, keep: Any) -> Any:
    """Return the expected tokens of each row, (rows,): the sum of path probabilities, its root's 1 included (Eq. 4)."""
    return np.bincount(forest.row[keep], weights=forest.path_probability[keep], minlength=forest.rows)


def chosen(forest: Forest, need: Any, budget: int, most_nodes: int = 99) -> Any:
    need = np.array(need, dtype=np.float64)
    keep = select(forest, need, neediest_first(need), most_nodes, budget)
    forest.subset(keep)  # refuses what is no tree
    return keep


@profile
@given(forest=forests(most_rows=1), need=st.floats(0.0, 4.0))
def test_slo_selection_takes_the_fewest_nodes_that_do(forest: Forest, need: float) -> None:
    """Lemma C.1: the likeliest nodes first reach any sum with the fewest nodes."""
    asked = forest.row[1:], forest.path_probability[1:], np.array([need]), np.array([0])
    count = selected(*asked, NODES, 1 + NODES, False).sum()
    enough = [int(each.sum()) - 1 for each in connected(forest) if worth(forest, each)[0] >= need]
    assert count == (min(enough) if enough else NODES)


@settings(max_examples=160)
@given(forest=forests(), need=NEEDS | st.just([-np.inf] * 3), spare=st.integers(0, NODES + 1))
def test_both_selections_solve_the_constrained_problem(forest: Forest, need: list[float], spare: int) -> None:
    """Algorithm 1 with true path probabilities: the most expected tokens under B and every A(r), where both can hold.

    Where they cannot (INVALID), the budget is kept all the same; without needs it is the best choice within the budget.
    """
    wanted, budget = np.array(need[: forest.rows]), forest.rows + spare
    keep = chosen(forest, wanted, budget)
    assert keep.sum() == min(budget, len(forest))
    assert not np.isneginf(wanted).all() or (keep == likeliest_of_all(forest, spare)).all()
    within = [each for each in connected(forest) if each.sum() <= budget]
    feasible = [each for each in within if (worth(forest, each) >= wanted - 1e-12).all()]
    if feasible:
        assert (worth(forest, keep) >= wanted - 1e-12).all()
        assert worth(forest, keep).sum() >= max(worth(forest, each).sum() for each in feasible) - 1e-12


@profile
@given(forest=forests(), need=NEEDS, spare=st.integers(0, NODES))
def test_who_needs_most_is_served_first(forest: Forest, need: list[float], spare: int) -> None:
    """The neediest row gets what it needs before anybody else gets a node for the same reason."""
    wanted = np.array(need[: forest.rows])
    keep = chosen(forest, wanted, forest.rows + spare)
    first = int(np.argmax(wanted))
    size = int((forest.row == first).sum()) - 1
    path = np.sort(forest.path_probability[(forest.row == first) & (forest.depth > 0)])[::-1]
    fewest = int((1 + np.cumsum(path) < wanted[first]).sum()) + 1 if wanted[first] > 1 else 0
    assert (forest.row[keep] == first).sum() - 1 >= min(fewest, size, spare)


@profile
@given(forest=forests(), cap=st.integers(0, NODES), spare=st.integers(0, NODES))
def test_n_max_bounds_what_is_taken_for_an_slo(forest: Forest, cap: int, spare: int) -> None:
    """With a need no tree can meet, each row takes n_max nodes, and only the rest goes by path probability."""
    order = np.arange(forest.rows)
    keep = select(forest, np.full(forest.rows, 99.0), order, cap, forest.rows + spare)
    left = spare
    for row in order:
        sizes = min(cap, int((forest.row == row).sum()) - 1, left)
        mine = np.flatnonzero((forest.row == row) & keep & (forest.depth > 0))
        best = np.sort(forest.path_probability[(forest.row == row) & (forest.depth > 0)])[::-1]
        assert len(mine) >= sizes
        taken = np.sort(forest.path_probability[mine])[::-1]
        assert np.array_equal(taken, best[: len(mine)])
        left -= sizes


def test_figure_5() -> None:
    """AdaServe, Fig. 5: budget 8 with two roots; 0.7 does for r0, 0.5 + 0.4 for r1; three go to the likeliest.

    The figure's needs of 0.6 and 0.8 leave out the roots' 1. It prints 0.7, 0.5 and 0.4; the others are made up so
    that t3 and t5 of r0 and t3 of r1 are the likeliest that remain, as it says.
    """
    row_0, row_1 = (0.7, 0.2, 0.42, 0.1, 0.3, 0.05), (0.5, 0.4, 0.35, 0.15, 0.12, 0.1)
    layers = [row_0[:2] + row_1[:2], row_0[2:4] + row_1[2:4], row_0[4:] + row_1[4:]]
    parents = ((0, 0, 1, 1), (2, 2, 4, 5), (6, 6, 8, 8))  # nodes: t1 t2 of both, t3 t4 of both, t5 t6 of both
    forest = Forest.roots(2)
    for parent, path in zip(parents, layers, strict=True):
        forest = grown(forest, parent, np.array(path) / forest.path_probability[list(parent)])
    name = {node: (int(forest.row[node]), 1 + 2 * int(forest.depth[node] - 1) + node % 2) for node in range(2, 14)}

    def names(keep: Any) -> set[tuple[int, int]]:
        return {name[node] for node in np.flatnonzero(keep) if node >= 2}

    need = np.array([1.6, 1.8])
    by_slo = select(forest, need, neediest_first(need), 99, budget=5)
    assert names(by_slo) == {(0, 1), (1, 1), (1, 2)}
    both = select(forest, need, neediest_first(need), 99, budget=8)
    assert names(both) - names(by_slo) == {(0, 3), (0, 5), (1, 3)}
    assert both.sum() == 8
