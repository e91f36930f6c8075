"""Target passes of a real model: pending tokens, trees behind them, and the cache of the accepted path."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from profiler.attention.packing import Bools, Ints
from profiler.backend.drafting import LookupDrafter, ModelDrafter
from profiler.backend.known import Known
from profiler.backend.layout import LaidOut, LaidRow, fill, laid_out, passed
from profiler.backend.rows import CachedSequences
from profiler.backend.stopwatch import TARGET, Stopwatch
from profiler.passes.forward import PackedForward
from specsim.core.passes import Emitted, TargetPass
from specsim.core.protocols import View
from specsim.core.trees import Forest
from specsim.pass_shape import PassShape


class Decision(NamedTuple):
    """The decision of a verification.

    Attributes
    ----------
    emitted : the answer. right : (nodes,) which nodes of the forest are the target's own, roots included.
    tokens : the tokens that each row emits.
    """

    emitted: Emitted
    right: Bools
    tokens: list[Ints]


Judge = Callable[[Ints], Decision]
"""Decides, from the target's likeliest token behind each node, (nodes,)."""


class Verifier:
    """The target over its cache.

    Parameters
    ----------
    forward : the model. rows : what requests hold of its cache. known : the text. view : the replica's ledger.
    drafter : whose cache follows what is accepted. vocabulary : token ids that may be emitted.
    """

    def __init__(
        self,
        forward: PackedForward,
        rows: CachedSequences,
        known: Known,
        view: View,
        drafter: ModelDrafter | LookupDrafter,
        stopwatch: Stopwatch,
        vocabulary: int,
    ) -> None:
        self.rows = rows
        self._forward, self._known, self._view = forward, known, view
        self._drafter, self._stopwatch, self._vocabulary = drafter, stopwatch, vocabulary

    def verify(self, work: TargetPass, shape: PassShape, tokens: Ints, judge: Judge) -> tuple[Emitted, float]:
        """Run one pass over the trees whose nodes are `tokens` (nodes,); return what `judge` says, and the seconds.

        The seconds are those of the pass, of the choice, and of what is copied so that only the accepted path stays.
        """
        cached = self._view.target_cached[work.requests]
        fill(self._forward, self.rows, self._known, self._stopwatch, work.requests, cached)
        forest = work.forest
        order = forest.rows + np.argsort(forest.row[forest.rows :], kind="stable")
        rows = self._rows(work, order, tokens)
        laid = laid_out(rows)
        # A graph is captured here, as a server has done long before.
        run = self._stopwatch.untimed(lambda: passed(self._forward, self.rows, rows, laid))

        def decided() -> Decision:
            likeliest = run()[:, : self._vocabulary].argmax(-1).cpu().numpy()
            behind = np.empty(len(forest), dtype=np.int64)
            behind[: forest.rows] = likeliest[laid.chunk_logit]
            behind[order] = likeliest[laid.node_logit]
            judged = judge(behind)
            self._keep(work, rows, order, laid, judged.right)
            self._drafter.keep(work.requests, forest, judged.right)
            return judged

        judged, seconds = self._stopwatch.timed(TARGET, shape, decided)
        self._book(work, judged)
        return judged.emitted, seconds

    def _rows(self, work: TargetPass, order: Ints, tokens: Ints) -> list[LaidRow]:
        forest = work.forest
        ends = np.cumsum(forest.tree_tokens())
        place = np.full(len(forest), -1)
        rows, first = [], 0
        for index, (request, chunk) in enumerate(
            zip(work.requests.tolist(), work.scheduled_tokens.tolist(), strict=True)
        ):
            mine = order[first : ends[index]]
            place[mine] = np.arange(len(mine))
            held = int(self.rows.held[request])
            fed = self._known.between(request, held, held + chunk)
            rows.append(LaidRow(request, held, fed, (), place[forest.parent[mine]].tolist(), tokens[mine].tolist()))
            first = int(ends[index])
        return rows

    def _keep(self, work: TargetPass, rows: list[LaidRow], order: Ints, laid: LaidOut, right: Bools) -> None:
        """Copy the keys of accepted nodes to where a chain would have them, and forget the others."""
        forest = work.forest
        base = laid.work.context + laid.work.chunk
        trees = forest.tree_tokens()
        place = np.arange(len(order)) - np.repeat(np.cumsum(trees) - trees, trees)
        kept = right[order]
        row, depth, place = forest.row[order][kept], forest.depth[order][kept] - 1, place[kept]
        apart = place != depth
        if apart.any():
            row, place, depth = row[apart], place[apart], depth[apart]
            tables = self.rows.tables([each.request for each in rows])
            self.rows.copy(tables.slots(row, base[row] + place), tables.slots(row, base[row] + depth))
        matched = np.bincount(forest.row[order][kept], minlength=forest.rows)
        for each, held in zip(rows, (base + matched).tolist(), strict=True):
            self.rows.held[each.request] = held
            self.rows.reserve(each.request, held)

    def _book(self, work: TargetPass, judged: Decision) -> None:
        """Append what was emitted; free what the finished held."""
        for request, tokens, ended in zip(
            work.requests.tolist(), judged.tokens, judged.emitted.finished.tolist(), strict=True
        ):
            self._known.emit(request, tokens)
            if ended:
                self.rows.drop(request)
                if self._drafter.rows is not None:
                    self._drafter.rows.drop(request)


def followed(forest: Forest, behind: Ints) -> Bools:
    """Return which nodes are what the target chooses behind their parents, all the way from the root, (nodes,)."""
    right = np.ones(len(forest), dtype=np.bool_)
    nodes = np.arange(forest.rows, len(forest))
    right[nodes] = forest.token[nodes] == behind[forest.parent[nodes]]
    for depth in range(2, int(forest.depth.max(initial=0)) + 1):
        level = np.flatnonzero(forest.depth == depth)
        right[level] &= right[forest.parent[level]]
    return right
