"""Drafts of the simulated drafter, layer by layer."""

from __future__ import annotations

import numpy as np

from specsim.acceptance.trace import AcceptanceTrace
from specsim.core.passes import NOBODY, Drafted, DraftPass, Level
from specsim.core.protocols import DraftCosts, View
from specsim.core.request import Bools, Ids, Ints
from specsim.core.trees import Forest
from specsim.errors import SpecsimError
from specsim.kernels.growth import ALL, DEPTH, ROW, SLOT, Front, Grown, Growth, grow, next_keys
from specsim.pass_shape import PassShape
from specsim.rng import Words


def layers_of(grown: Grown, depth: int, max_depth: Ints | None, cached: Ints) -> tuple[list[PassShape], Ints]:
    """Return the shapes of the passes behind the first, and the nodes (m,) of `grown` that they extend.

    There are as many as have anything to extend, up to `depth` passes in all.

    Parameters
    ----------
    max_depth : (n,) no node that deep is extended; None: none is too deep.
    cached : (n,) tokens that the drafter's cache holds of each row behind the first pass.
    """
    row, ends, rows, low = grown.numbers[ROW], grown.ends.tolist(), b"", 0
    shallow = None if max_depth is None else grown.numbers[DEPTH] < max_depth[row]
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
    return shapes, extended if shallow is None else extended[shallow[:low]]


SLOTS = 4096
"""Extended nodes that there is room for at first."""
MOST_PROPOSED = 1 << 21
"""The most proposals of one pass."""
BONUS_CHUNK = 2
"""Tokens that the drafter's cache lacks of a request whose drafts were all accepted: the last draft, and the bonus."""


class SimulatedDrafter:
    """Answer draft passes.

    `verified` says that a verification has run: forests that then grow from roots may reuse the slots of earlier ones.
    `words` and `rows` hold what was read behind each extended node of this step, by `Forest.slot`: the key and the
    hashed key; the row of the acceptance trace and the rank of the target's token in it.

    Parameters
    ----------
    acceptance_trace : its proposals, and which are right. model : pass times. view : the replica's ledger, for
        positions.
    """

    def __init__(self, acceptance_trace: AcceptanceTrace, model: DraftCosts, view: View) -> None:
        self.words, self.rows = np.zeros((2, SLOTS), dtype=np.uint64), np.zeros((2, SLOTS), dtype=np.int64)
        self._used = 0
        self._acceptance_trace, self._model, self._view = acceptance_trace, model, view
        self.verified = False
        self._bonus: Ids = NOBODY

    def draft(self, work: DraftPass, shape: PassShape) -> Drafted:
        """Return the forest grown by the likeliest tokens of each leaf, pass after pass, and the seconds of each pass.

        A leaf without a proposal stays a leaf.

        Raises
        ------
        SpecsimError
            When a pass is wider than the acceptance trace, or has more than `MOST_PROPOSED` proposals.
        """
        forest, nodes = work.forest, work.forest.draft_nodes
        feeds = len(work.scheduled_tokens) > 0
        if feeds and self._model.expands:
            self._bonus = work.requests[work.scheduled_tokens == BONUS_CHUNK]
        paid = self._doubled(work, shape, forest.row[work.leaves], feeds)
        proposed = self._model.one_pass and len(work.leaves) > 0 and work.leaves.min() >= forest.rows
        seconds = 0.0 if proposed else self._model.seconds(paid)
        if not len(work.leaves) or not work.width:
            return Drafted(forest, [Level(paid, seconds, nodes)])
        grown = self._grow(work)
        ends = grown.ends.tolist()
        levels = [Level(paid, seconds, nodes + ends[0])]
        if work.depth == 1:
            return Drafted(self._with(forest, grown, 0), levels)
        cached = self._view.draft_cached[work.requests]
        behind = cached + work.scheduled_tokens if feeds else cached
        shapes, extends = layers_of(grown, work.depth, work.max_depth, behind)
        plain, drafted = None, 0
        for level, each in enumerate(shapes, 1):
            if each is not plain:
                paid = plain = each
                if len(self._bonus):
                    extended = extends[drafted : drafted + int(each.batched_tokens)]
                    paid = self._doubled(work, each, grown.numbers[ROW].take(extended), False)
                seconds = 0.0 if self._model.one_pass else self._model.seconds(paid)
            drafted += int(each.batched_tokens)
            levels.append(Level(paid, seconds, nodes + ends[level]))
        fresh = ends[len(levels) - 2] if len(levels) > 1 else 0
        return Drafted(self._with(forest, grown, fresh), levels, extends + len(forest))

    def _with(self, forest: Forest, grown: Grown, fresh: int) -> Forest:
        """Return a forest with the nodes that were grown, the first `fresh` of which have been extended."""
        return forest.with_nodes(grown.numbers, grown.odds, len(forest) + fresh) if grown.numbers.size else forest

    def _add(self, words: Words, rows: Ints) -> int:
        """Store what was read behind extended nodes, (2, read) each, and return the first one's slot."""
        first, last = self._used, self._used + words.shape[1]
        if last > self.rows.shape[1]:
            more = max(last, self.rows.shape[1])
            self.words = np.concatenate((self.words, np.zeros((2, more), dtype=np.uint64)), axis=1)
            self.rows = np.concatenate((self.rows, np.zeros((2, more), dtype=np.int64)), axis=1)
        self.words[:, first:last] = words
        self.rows[:, first:last] = rows
        self._used = last
        return first

    def right(self, slot: Ints, token: Ints) -> Bools:
        """Return which drafted tokens are the target's, path included."""
        right: Bools = self.rows[1][slot] == token
        return right

    def _doubled(self, work: DraftPass, shape: PassShape, row: Ints, feeds: bool) -> PassShape:
        """Return the shape of a pass that extends nodes of these rows, (m,), with the sequences of batch expansion.

        vLLM's V0 engine drafts a request whose tokens were all accepted as two sequences, through all passes of a step:
        with its last token, and without (vLLM pull request 5765). A drafter that missed one plain step lacks two tokens
        as well and is fed so too. A request that missed more is fed as one sequence; V0 would not draft for it again.
        A pass that `feeds` holds the token of the second sequence already.
        """
        if not len(self._bonus):
            return shape
        requests = work.requests[np.unique(row)]
        requests = requests[np.isin(requests, self._bonus)]
        sequences, context_tokens = len(requests), int(self._view.draft_cached[requests].sum())
        tokens, pairs = (0, 0) if feeds else (sequences, context_tokens + sequences)
        return shape._replace(
            batched_tokens=shape.batched_tokens + tokens,
            attention_pairs=shape.attention_pairs + pairs,
            logit_tokens=shape.logit_tokens + sequences,
            repeated_tokens=shape.repeated_tokens + context_tokens,
        )

    def _grow(self, work: DraftPass) -> Grown:
        """Return the nodes of all levels, with their slots."""
        width, limit = work.width, np.full(len(work.requests), self._model.max_depth)
        if width > self._acceptance_trace.width:
            raise SpecsimError(
                f"tree width {width} exceeds the {self._acceptance_trace.width} proposals of the acceptance trace"
            )
        if work.max_depth is not None:
            limit = np.minimum(limit, work.max_depth)
        front, requests = self._front(work)
        growth = Growth(limit, work.depth, width, work.beam or ALL, len(work.forest), MOST_PROPOSED)
        grown = grow(self._acceptance_trace.text(requests), front, growth)
        if grown.refused:
            raise SpecsimError(f"a draft pass proposes {grown.refused:,} tokens; expected at most {MOST_PROPOSED:,}")
        first = self._add(grown.words, grown.rows)
        if first:
            grown.numbers[SLOT] += first
        return grown

    def _front(self, work: DraftPass) -> tuple[Front, Ids]:
        """Return the leaves of a pass, and the request of each, (m,)."""
        acceptance_trace, forest, leaves = self._acceptance_trace, work.forest, work.leaves
        row = forest.row[leaves]
        requests = work.requests[row]
        if not forest.draft_nodes:
            if self.verified:
                self.verified, self._used = False, 0
            key = acceptance_trace.on_path(requests, self._view.emitted_tokens[requests])
            on = np.ones(len(leaves), dtype=np.bool_)
        else:
            slot, token = forest.slot[leaves], forest.token[leaves]
            on = self.right(slot, token)
            keys, hashed = self.words.take(slot, axis=1)
            key = next_keys(keys, hashed, on, token)
            roots = leaves < forest.rows
            if np.count_nonzero(roots):
                key[roots] = acceptance_trace.on_path(requests[roots], self._view.emitted_tokens[requests[roots]])
                on[roots] = True
        return Front(
            np.ascontiguousarray(leaves), row, forest.depth[leaves], forest.path_probability[leaves], key, on
        ), requests
