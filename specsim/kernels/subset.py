"""The nodes of a forest that are kept, as a forest of their own."""

from __future__ import annotations

import numpy as np

from specsim.kernels.arrays import Bools, Floats, Ints
from specsim.kernels.growth import PARENT


def numpy_subset(numbers: Ints, odds: Floats, rows: int, keep: Bools) -> tuple[Ints, Floats] | None:
    """Return the columns of the roots and of the nodes that `keep` (nodes,) marks; None where a parent is not kept.

    Parameters
    ----------
    numbers, odds : (5, nodes), (2, nodes) of a forest; the first `rows` are roots.
    """
    keep = keep.copy()
    keep[:rows] = True
    kept = keep.nonzero()[0]
    some = numbers.take(kept, axis=1)
    parents = some[PARENT, rows:]
    if np.count_nonzero(keep[parents]) < len(parents):
        return None
    renamed = np.empty(len(keep), dtype=np.int64)
    renamed[kept] = np.arange(len(kept))
    some[PARENT, rows:] = renamed[parents]
    return some, odds.take(kept, axis=1)
