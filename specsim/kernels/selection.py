"""AdaServe's two selections among the drafted nodes of a batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from specsim.kernels import compiled_loops
from specsim.kernels.arrays import Bools, Floats, Ints


class Bounds(NamedTuple):
    """What ends a selection; see `specsim.schedulers.parts.selection.select` and `Stop` there."""

    most_nodes: int
    budget: int
    fill: bool
    slo_below: float
    fill_below: float
    tile: int


def select(row: Ints, path: Floats, need: Floats, order: Ints, bounds: Bounds) -> Bools:
    """Return which nodes are taken, (nodes,).

    Parameters
    ----------
    row, path : (nodes,) of each drafted node. need : (n,) of each row. order : (n,) rows in the order of selection.

    Raises
    ------
    ValueError
        When the order does not name each row once, or a node is of another row.
    """
    needs = np.ascontiguousarray(need, dtype=np.float64)
    turns = np.asarray(order).astype(np.int64, order="C", casting="same_kind", copy=False)
    chosen: Bools = compiled_loops().select(row, path, needs, turns, *bounds)
    if len(chosen) < len(row):
        raise ValueError(f"an order of {len(needs)} rows that does not name each once, or a node of another row")
    return chosen
