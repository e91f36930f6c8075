"""The passes of a draft behind the first: which of its nodes each of them extends, and what it costs by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from specsim.kernels.growth import DEPTH, ROW, Grown
from specsim.pass_shape import PassShape
from specsim.replica.request import Ints


class Layers(NamedTuple):
    """Passes that ran behind the first: the shape of each, and the nodes (m,) of `Grown` that they extended."""

    shapes: list[PassShape]
    extended: Ints


def layers_of(grown: Grown, depth: int, deepest: Ints | None, cached: Ints) -> Layers:
    """Return the passes of a draft of `depth`, as far as there is anything to extend.

    Parameters
    ----------
    deepest : (n,) no node that deep is extended; None: none is too deep.
    cached : (n,) tokens that the drafter's cache holds of each row behind the first pass.
    """
    row, ends, rows, low = grown.numbers[ROW], grown.ends.tolist(), b"", 0
    shallow = None if deepest is None else grown.numbers[DEPTH] < deepest[row]
    shapes: list[PassShape] = []
    while len(shapes) < depth - 1 and low < ends[len(shapes)]:
        layer = slice(low, ends[len(shapes)])
        each = row[layer] if shallow is None else row[layer][shallow[layer]]
        if not len(each):
            break
        if (now := each.tobytes()) == rows:
            shapes.append(shapes[-1])
        else:
            shapes.append(PassShape.of_nodes(cached, np.bincount(each, minlength=len(cached))))
            rows = now
        low = layer.stop
    extended = np.arange(low)
    return Layers(shapes, extended if shallow is None else extended[shallow[:low]])
