"""The text of a run: whose tokens are drafted, and which of them the target accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from profiler.attention.packing import Ints
from profiler.backend.drafting import Extension, Proposed
from profiler.backend.known import Known, random_tokens
from profiler.backend.verifying import Decision, followed
from specsim.core.passes import NOBODY, Drafted, DraftPass, Emitted, Level, TargetPass
from specsim.core.protocols import View
from specsim.core.trees import Forest
from specsim.kernels.growth import likeliest
from specsim.pass_shape import PassShape
from specsim.simulated_backend import SimulatedBackend

Extend = Callable[[Extension], tuple[Proposed, float]]


class ModelText:
    """Greedy text of the target itself: each output is the target's own choice, with any drafter.

    Nothing ends an output but its length in the trace, as where a benchmark ignores the end of text.

    Parameters
    ----------
    known : the tokens so far. output_tokens : (N,) of each request. view : the replica's ledger.
    """

    def __init__(self, known: Known, output_tokens: Ints, view: View) -> None:
        self._known, self._output_tokens, self._view = known, output_tokens, view
        self._slots = 0

    def draft(self, work: DraftPass, shape: PassShape, extend: Extend) -> Drafted:
        """Grow trees by the drafter's likeliest tokens, level by level; their passes are run by `extend`."""
        forest, leaves, levels, extended = work.forest, work.leaves, [], []
        for number in range(work.depth):
            if number:
                if not len(leaves):
                    break
                extended.append(leaves)
                shape = self._shape(work, forest, leaves)
            pass_ = Extension(work, forest, leaves, self.tokens(forest), feeds=not number, shape=shape)
            proposed, seconds = extend(pass_)
            nodes = len(forest)
            if len(leaves) and work.width:
                forest = grown(forest, leaves, proposed, work.beam, self._slots)
                self._slots += len(leaves)
            levels.append(Level(shape, seconds, forest.draft_nodes))
            leaves = np.arange(nodes, len(forest))
            if work.max_depth is not None:
                leaves = leaves[forest.depth[leaves] < work.max_depth[forest.row[leaves]]]
        return Drafted(forest, levels, np.concatenate([NOBODY, *extended]))

    def _shape(self, work: DraftPass, forest: Forest, leaves: Ints) -> PassShape:
        """Return the shape of a pass behind the first, which extends these nodes."""
        cached = self._view.draft_cached[work.requests]
        if len(work.scheduled_tokens):
            cached = cached + work.scheduled_tokens
        return PassShape.of_nodes(cached, np.bincount(forest.row[leaves], minlength=len(cached)))

    def tokens(self, forest: Forest) -> Ints:
        """Return the token id of each node, (nodes,); those of roots mean nothing."""
        return forest.token

    def judge(self, work: TargetPass, shape: PassShape, behind: Ints) -> Decision:
        """Accept what the target would choose; `behind` (nodes,) is its likeliest token behind each node."""
        ids, forest = work.requests, work.forest
        emitted = self._view.emitted_tokens[ids]
        complete = work.scheduled_tokens == self._view.pending(ids)
        right = followed(forest, behind)
        matched = np.zeros(len(ids), dtype=np.int64)
        np.maximum.at(matched, forest.row[right], forest.depth[right])
        left = self._output_tokens[ids] - emitted
        count = np.where(complete, np.minimum(matched + 1, left), 0)
        path = np.flatnonzero(right)
        path = path[np.lexsort((forest.depth[path], forest.row[path]))]
        # Behind each node of the path, its root first, stands the next token: the accepted ones, then the bonus.
        said = np.split(behind[path], np.cumsum(matched + 1)[:-1])
        tokens = [each[:most] for each, most in zip(said, count.tolist(), strict=True)]
        return Decision(Emitted(count, np.minimum(matched, count), matched, count == left), right, tokens)


class TraceText:
    """Text without meaning: an acceptance trace says what is drafted and accepted, the models only take their time.

    Parameters
    ----------
    simulated : answers from the acceptance trace. known : random tokens so far. seed : of those that are emitted.
    vocabulary : token ids that the models read.
    """

    def __init__(self, simulated: SimulatedBackend, known: Known, seed: int, vocabulary: int) -> None:
        self._simulated, self._known, self._seed, self._vocabulary = simulated, known, seed, vocabulary

    def draft(self, work: DraftPass, shape: PassShape, extend: Extend) -> Drafted:
        """Ask the acceptance trace, then run by `extend` the passes that would have drafted so."""
        drafted = self._simulated.draft(work, shape)
        levels: list[Level] = []
        rows = work.forest.rows
        first = ends = rows + work.forest.draft_nodes
        for number, level in enumerate(drafted.levels):
            leaves = work.leaves
            if number:
                leaves = drafted.extended[(drafted.extended >= first) & (drafted.extended < ends)]
                first = ends
            ends = rows + level.draft_nodes
            forest = drafted.forest if number else work.forest
            _, seconds = extend(Extension(work, forest, leaves, self.tokens(forest), not number, level.shape))
            levels.append(level._replace(seconds=seconds))
        return drafted._replace(levels=levels)

    def tokens(self, forest: Forest) -> Ints:
        """Return some token id for the rank of each node, (nodes,)."""
        return forest.token % self._vocabulary

    def judge(self, work: TargetPass, shape: PassShape, behind: Ints) -> Decision:
        """Accept what the acceptance trace says."""
        right = self._simulated.right(work.forest)
        emitted, _ = self._simulated.verify(work, shape)
        tokens = [
            random_tokens(self._seed + self._known.length(request), request, count, self._vocabulary)
            for request, count in zip(work.requests.tolist(), emitted.tokens.tolist(), strict=True)
        ]
        return Decision(emitted, right, tokens)


RealText: TypeAlias = ModelText | TraceText


def grown(forest: Forest, leaves: Ints, proposed: Proposed, beam: int | None, slot: int) -> Forest:
    """Return the forest with what is proposed behind its leaves, of each row the `beam` likeliest by their path.

    A proposal of probability 0 is none. The new nodes' slots count the leaves, from `slot` on.
    """
    row, width = forest.row[leaves], proposed.token.shape[1]
    ahead = proposed.probability * forest.path_probability[leaves][:, None]
    kept = np.arange(ahead.size) if beam is None else likeliest(row, ahead, beam)
    kept = kept[ahead.take(kept) > 0]
    if not len(kept):
        return forest
    behind = kept // width
    numbers = np.stack(
        (row[behind], leaves[behind], forest.depth[leaves][behind] + 1, proposed.token.take(kept), slot + behind)
    )
    odds = np.stack((proposed.probability.take(kept), ahead.take(kept)))
    return forest.with_nodes(numbers, odds, len(forest))
