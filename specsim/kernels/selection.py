"""AdaServe's two selections among the drafted nodes of a batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from specsim.kernels.arrays import Bools, Floats, Ints


class Bounds(NamedTuple):
    """What ends a selection; see `specsim.schedulers.parts.selection.select` and `Stop` there."""

    most_nodes: int
    budget: int
    fill: bool
    slo_below: float
    fill_below: float
    tile: int


def numpy_select(row: Ints, path: Floats, need: Floats, order: Ints, bounds: Bounds) -> Bools:
    """Return which nodes are taken, (nodes,).

    Parameters
    ----------
    row, path : (nodes,) of each drafted node. need : (n,) of each row. order : (n,) rows in the order of selection.
    """
    most_nodes, budget, fill, slo_below, fill_below, tile = bounds
    rows, chosen = len(need), np.zeros(len(row), dtype=np.bool_)
    likeliest = np.argsort(-path, kind="stable")
    by_row = likeliest[np.argsort(row[likeliest].astype(np.uint16), kind="stable")]
    sizes = np.bincount(row, minlength=rows)
    columns = np.arange(int(sizes.max()))
    filled = columns < sizes[:, None]
    ranked = np.zeros(filled.shape)
    ranked[filled] = path[by_row]
    likely = sizes if not slo_below else (ranked >= slo_below).sum(axis=1)
    wanted = nodes_for_slo(ranked, need, np.minimum(likely, most_nodes))
    taken = within_budget(wanted, order, budget - rows)
    chosen[by_row[(columns < taken[:, None])[filled]]] = True
    if not fill:
        return chosen
    spent = rows + int(taken.sum())
    left = budget - spent
    rest = likeliest[~chosen[likeliest]]
    if fill_below:
        wished = spent + int(np.count_nonzero(path[rest] >= fill_below))
        left = min(left, -(-wished // tile) * tile - spent)
    chosen[rest[:left]] = True
    return chosen


def nodes_for_slo(path: Floats, need: Floats, most: Ints) -> Ints:
    """Return how many of its likeliest nodes each row takes to reach `need`, (rows,), at most `most` (rows,).

    `path` (rows, m) holds path probabilities in descending order, padded with zeros.
    """
    reached = 1.0 + np.cumsum(path, axis=1)
    count = (need > 1.0) + (reached < need[:, None]).sum(axis=1)
    wanted: Ints = np.minimum(count, most)
    return wanted


def within_budget(wanted: Ints, order: Ints, budget: int) -> Ints:
    """Return the nodes of each row, (rows,), when rows take what they want in `order` until the budget is spent."""
    queue = wanted[order]
    before = np.cumsum(queue) - queue
    taken = np.zeros_like(wanted)
    taken[order] = np.minimum(np.maximum(budget - before, 0), queue)
    return taken
