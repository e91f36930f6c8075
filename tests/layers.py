"""Forests grown by hand, a layer at a time."""

from __future__ import annotations

from specsim.replica.request import Floats, Ints
from specsim.replica.trees import Forest, Layer


def grow(forest: Forest, parent: Ints, token: Ints, probability: Floats, path: Floats, slot: Ints) -> Forest:
    """Return a forest with new nodes, all arrays (new,), behind the old ones; `path` is theirs already."""
    layer = Layer(forest.row[parent], parent, forest.depth[parent] + 1, token, slot, probability, path)
    return forest.with_layers((layer,))
