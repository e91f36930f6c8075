"""A scheduler that draws at random whatever is legal, so that a backend meets what no policy asks for."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from specsim.core.passes import NOBODY, DraftPass, TargetPass
from specsim.core.protocols import Step, View
from specsim.core.request import Ids
from specsim.core.trees import Forest

MOST_ROWS, MOST_WIDTH, MOST_PASSES = 5, 3, 4


class Wild:
    """Run some rows, evict others, feed chunks by halves, grow and prune trees at random, drop some of them."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def step(self, view: View) -> Step:
        rng = self._rng
        running = view.running
        here = np.concatenate([running, np.array(view.waiting, dtype=np.int64)])
        if not len(here):
            return
        batch = np.sort(rng.permutation(here)[: rng.integers(1, MOST_ROWS)])
        others = running[~np.isin(running, batch)]
        evict, transfer = others[rng.random(len(others)) < 0.2], bool(rng.random() < 0.5)
        decoding = (view.pending(batch) == 1) & (view.emitted_tokens[batch] > 0)
        speculated = batch[decoding][: rng.integers(0, MOST_ROWS)]
        if len(speculated):
            forest = yield from self._drafted(view, speculated, evict, transfer)
            if forest is not None:
                evict = NOBODY
            if forest is not None and rng.random() < 0.85:
                yield TargetPass(speculated, np.ones_like(speculated), forest)
                batch = batch[~np.isin(batch, speculated)]
        if len(batch):
            chunks = rng.integers(1, view.pending(batch) + 1)
            yield TargetPass(batch, chunks, Forest.roots(len(batch)), evict, transfer)

    def _drafted(
        self, view: View, rows: Ids, evict: Ids, transfer: bool
    ) -> Generator[DraftPass, Forest, Forest | None]:
        rng, forest = self._rng, Forest.roots(len(rows))
        lacking = view.draft_pending(rows)
        if not lacking.sum():
            return None
        chunks = np.where(rng.random(len(rows)) < 0.8, lacking, rng.integers(0, lacking + 1))
        ready = np.flatnonzero(chunks == lacking)
        if not chunks.sum():
            return None
        roots = ready[rng.random(len(ready)) < 0.7]
        width, beam = int(rng.integers(1, MOST_WIDTH + 1)), rng.choice([None, 2])
        forest = yield DraftPass(rows, chunks, forest, roots, width, beam, evict, transfer)
        for _ in range(rng.integers(0, MOST_PASSES)):
            forest = self._pruned(forest)
            open_ = np.setdiff1d(np.r_[ready, np.arange(forest.rows, len(forest))], forest.parent[forest.rows :])
            leaves = open_[rng.random(len(open_)) < 0.7]
            leaves = leaves[np.lexsort((leaves, forest.row[leaves]))]
            if not (leaves >= forest.rows).any():
                break
            depth, max_depth = int(rng.integers(1, 3)), None
            if rng.random() < 0.3:
                max_depth = np.full(len(rows), int(forest.depth.max()) + 1)
            forest = yield DraftPass(rows, NOBODY, forest, leaves, width, beam, depth=depth, max_depth=max_depth)
        return self._pruned(forest)

    def _pruned(self, forest: Forest) -> Forest:
        keep = self._rng.random(len(forest)) < 0.8
        keep[: forest.rows] = True
        for node in range(forest.rows, len(forest)):
            keep[node] &= keep[forest.parent[node]]
        return forest.subset(keep)
