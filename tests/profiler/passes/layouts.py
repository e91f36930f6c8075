"""Passes of every kind over shuffled pages, attention to them by SDPA, and a CUDA graph's stand-in on the CPU."""

import numpy as np
import torch

from profiler.attention.packing import Work, pack
from profiler.attention.pages import CacheShape, deal
from profiler.attention.sdpa import Sdpa

CPU = torch.device("cpu")
PAGE = 16


def tree(context, nodes, rng, rows=1, chunk=1):
    """Return rows with a tree of `nodes` behind a chunk; the parent of a node is one of the three before it."""
    row = np.repeat(np.arange(rows), nodes)
    place = np.tile(np.arange(nodes), rows)
    parent = np.maximum(place - rng.integers(1, 4, len(place)), -1)
    parent = np.where(parent >= 0, parent + row * nodes, -1)
    return Work.of(np.full(rows, context) + np.arange(rows), np.full(rows, chunk), row, parent)


RNG = np.random.default_rng(7)
CAUSAL = {
    "decode": Work.of([40, 1, 333], [1, 1, 1]),
    "prefill": Work.of([0], [70]),
    "chunks": Work.of([64, 0, 5], [17, 33, 1]),
    "chain": Work.of([20, 50], [1, 1], [0, 0, 0, 1], [-1, 0, 1, -1]),
    "draft step of one leaf": Work.of([20, 50], [0, 0], [0, 0, 0, 1, 1], [-1, 0, 1, -1, 3], [1, 1, 0, 1, 0]),
    "rows without queries": Work.of([20, 9, 4], [1, 0, 2]),
}
TREES = {
    **{f"tree of {nodes}": tree(40, nodes, RNG, rows=3) for nodes in (3, 7, 16, 31, 64)},
    "tree behind nothing": tree(0, 8, RNG, rows=2),
    "draft step of three leaves": Work.of(
        [30, 17], [0, 0], np.repeat([0, 1], 9), [-1, -1, -1, 0, 1, 2, 3, 4, 5, -1, -1, -1, 9, 10, 11, 12, 13, 14],
        np.tile([1, 1, 1, 1, 1, 1, 0, 0, 0], 2),
    ),
    "trees beside a chunk": Work.of([70, 0, 17], [1, 40, 1], [0, 0, 0, 2, 2], [-1, 0, -1, -1, -1]),
}  # fmt: skip
PASSES = {**CAUSAL, **TREES}


def pools(work, share, width, dtype=torch.float64, page=PAGE):
    """Return a cache's shape, two dealings of pages, and random query, keys and values for 2 key heads."""
    shape = CacheShape(1, 2, width, int(np.ceil(work.key_tokens / page).sum()) + 4, page)
    rng = np.random.default_rng(0)
    tables = [deal(work, shape, rng) for _ in range(2)]
    generator = torch.Generator().manual_seed(0)
    draw = {"generator": generator, "dtype": dtype}
    query = torch.randn(work.batched_tokens, 2 * share, width, **draw)
    keys, values = (torch.randn(shape.slots, 2, width, **draw) for _ in range(2))
    return shape, tables, query, keys, values


def exact(work, share, tables, query, keys, values, scaling=0.3):
    plan = Sdpa(share, device=CPU, dtype=torch.float64).plan(work, pack(work), tables, len(query))
    return plan(query.double(), keys.double(), values.double(), scaling)


class Rerun:
    """Runs a pass over the inputs that were there at capture, and writes its result to where the captured one did."""

    def __init__(self, run, result):
        self._run, self._result = run, result

    def replay(self):
        with torch.inference_mode():
            self._result.copy_(self._run())


def rerun(run, warm_up):
    warm_up()
    result = run()
    return Rerun(run, result), result
