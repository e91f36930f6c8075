"""Forests grown by hand, a layer at a time."""

import numpy as np

from specsim.core.request import Floats, Ints
from specsim.core.trees import Forest


def grow(forest: Forest, parent: Ints, token: Ints, probability: Floats, path: Floats, slot: Ints) -> Forest:
    """Return a forest with new nodes, all arrays (new,), behind the old ones; `path` is theirs already."""
    numbers = np.stack((forest.row[parent], parent, forest.depth[parent] + 1, token, slot))
    return forest.with_nodes(numbers, np.stack((probability, path)), len(forest))
