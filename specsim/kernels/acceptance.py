"""The walk of the target down each tree: how many drafted tokens of each row are its own."""

from __future__ import annotations

import numpy as np

from specsim.kernels.arrays import Ints
from specsim.kernels.growth import DEPTH, ROW, SLOT, TOKEN


def numpy_walk(numbers: Ints, rows: int, rank: Ints) -> Ints:
    """Return the depth of the deepest right node of each row, (rows,); 0 where none is.

    Parameters
    ----------
    numbers : (5, nodes) of a forest; a parent stands before its children, which are right only where it is.
    rank : (slots,) the token that is right in each slot.
    """
    matched = np.zeros(rows, dtype=np.int64)
    right = rows + (rank[numbers[SLOT, rows:]] == numbers[TOKEN, rows:]).nonzero()[0]
    matched[numbers[ROW].take(right)] = numbers[DEPTH].take(right)
    return matched
