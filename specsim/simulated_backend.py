"""The simulated backend: drafts layer by layer and answers from acceptance traces, seconds from the latency model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.acceptance.trace import AcceptanceTrace
from specsim.core.passes import NOBODY, Decodes, Drafted, DraftPass, Emitted, Level, Pass, Rounds, TargetPass, by_pass
from specsim.core.protocols import CostModel, DraftCosts, View
from specsim.core.request import Bools, Floats, Ids, Ints
from specsim.core.trees import Forest
from specsim.errors import SpecsimError
from specsim.kernels.growth import (
    ALL,
    DEPTH,
    OFF_PATH,
    ROW,
    SLOT,
    Front,
    Grown,
    Growth,
    Pooled,
    Texts,
    answer,
    grow,
    next_keys,
    rounds,
)
from specsim.pass_shape import PassShape, PassShapes, of_rounds
from specsim.rng import Words, mix


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


@dataclass(frozen=True, slots=True)
class GroundTruth:
    """Ground truth, which no scheduler may know: the output lengths (N,), at least 1, and the acceptance trace."""

    output_tokens: Ints
    acceptance_trace: AcceptanceTrace

    def of_one_token(self) -> GroundTruth:
        """Return that of a replica that reads prompts: every output ends with its first token."""
        return GroundTruth(np.ones_like(self.output_tokens), self.acceptance_trace)


class SimulatedBackend:
    """Answer passes from the `GroundTruth`, in the time that the true latency model gives.

    A forest is valid until, after a verification, trees grow from roots again: then its slots are reused.

    Parameters
    ----------
    ground_truth : the output lengths and the acceptance trace.
    truth : the latency model that passes really take.
    view : the replica's ledger, for positions.
    host_bytes_per_s : bandwidth of a cache's transfer to the host and back.
    """

    def __init__(
        self, ground_truth: GroundTruth, truth: CostModel, view: View, host_bytes_per_s: float = float("inf")
    ) -> None:
        self._ground_truth = ground_truth
        self._host_bytes_per_s = host_bytes_per_s
        self._truth = truth
        self._view = view
        output_tokens = np.ascontiguousarray(ground_truth.output_tokens, dtype=np.int64)
        self._texts = Texts(view.prompt_tokens, view.emitted_tokens, view.target_cached, output_tokens)
        self._drafter = SimulatedDrafter(ground_truth.acceptance_trace, truth.draft, view)

    def move(self, work: Pass, shape: PassShape) -> float:
        """Return the seconds that the pass's moved bytes take on the link to the host."""
        return shape.moved_bytes / self._host_bytes_per_s

    def draft(self, work: DraftPass, shape: PassShape) -> Drafted:
        """Return the grown forest and the seconds of each pass; see `SimulatedDrafter.draft`."""
        return self._drafter.draft(work, shape)

    def verify(self, work: TargetPass, shape: PassShape) -> tuple[Emitted, float]:
        """Return what each row emits and the seconds of one target pass; acceptance never changes the cost."""
        seconds = self._truth.target.seconds(shape)
        forest = work.forest
        told = answer(self._texts, work.requests, work.scheduled_tokens, forest.numbers, self._drafter.rows[1])
        self._drafter.verified = True
        return Emitted(*told), seconds

    def decodes(self, work: TargetPass, most: int, past_finishes: bool) -> Decodes:
        """Return passes of decoding rows; see `specsim.core.protocols.MultiStepBackend`."""
        ids, cached = work.requests, self._view.target_cached[work.requests]
        left = self._ground_truth.output_tokens[ids] - self._view.emitted_tokens[ids]
        first_end = int(np.minimum.reduce(left))
        rows: Ints | int = len(ids)
        if first_end >= most or not past_finishes:
            context = int(np.add.reduce(cached)) + rows * np.arange(min(most, first_end))
        else:
            rows, context = _thinning(left, cached, min(most, int(np.maximum.reduce(left))))
        seconds = self._truth.target.seconds_array(PassShapes.decode(context, rows))
        return Decodes(seconds, context, rows, left)

    def rounds(self, work: DraftPass, least: int, most: int, within_s: float, further: int) -> Rounds | None:
        """Return rounds of chains; see `specsim.core.protocols.MultiStepBackend`.

        None, too, where a chain may stop short, or where somebody's own code reads the acceptance trace.
        """
        view, drafter, ids, depth = self._view, self._truth.draft, work.requests, work.depth
        text = self._ground_truth.acceptance_trace.text(ids)
        if not isinstance(text, Pooled) or text.silent or drafter.expands or drafter.max_depth < depth:
            return None
        emitted, known = view.emitted_tokens[ids], view.target_cached[ids] + 1
        left = self._ground_truth.output_tokens[ids] - emitted
        most = self._most(known, depth, min(most, int(left.min())), within_s, further)
        if most < least:
            return None
        room = view.max_tokens[ids] - depth - emitted
        matched = rounds(text, self._ground_truth.acceptance_trace.on_path(ids, emitted), depth, left, room, most)
        if len(matched) < least:
            return None
        tokens = matched + 1
        over = np.add.reduce(tokens, axis=0) - left
        tokens[-1] -= np.maximum(over, 0)
        draft, verify = of_rounds(known, work.scheduled_tokens, matched, depth, drafter.cached)
        seconds = self._truth.draft.seconds_array(draft)
        if drafter.one_pass:
            seconds[1] = 0.0
        seconds = by_pass(seconds, self._truth.target.seconds_array(verify), len(matched), depth)
        return Rounds(matched, tokens, over >= 0, draft, verify, seconds)

    def _most(self, known: Ints, depth: int, most: int, within_s: float, further: int) -> int:
        """Return how many rounds are worth looking at: about as many as end in time, and `further` ones."""
        truth, rows = self._truth, len(known)
        plain = PassShape.decode(int(np.add.reduce(known)) - rows, rows)
        passes = 1 if truth.draft.one_pass else depth
        round_s = passes * truth.draft.seconds(plain)
        round_s += truth.target.seconds(plain.with_nodes(depth * rows, depth * (plain.context_tokens + 2 * rows)))
        return min(int(within_s / round_s) + further, most) if within_s < most * round_s else most

    def output_tokens(self, ids: Ids) -> Ints:
        """Return how many tokens each request will emit in all, (n,); see `specsim.core.protocols.Oracle`."""
        return self._ground_truth.output_tokens[ids]

    def right(self, forest: Forest) -> Bools:
        """Return which nodes of a forest drafted in this step are tokens of the target, roots included, (nodes,)."""
        right = np.ones(len(forest), dtype=np.bool_)
        nodes = slice(forest.rows, None)
        right[nodes] = self._drafter.right(forest.slot[nodes], forest.token[nodes])
        return right

    def right_ahead(self, ids: Ids, most: int) -> Ints:
        """Return how many tokens of the drafter's likeliest chain would be right if drafted now, up to `most`, (n,)."""
        requests, ahead = np.repeat(ids, most), np.tile(np.arange(most), len(ids))
        right = self._likeliest_right(requests, self._view.emitted_tokens[requests] + ahead, ahead)
        ahead_right: Ints = np.logical_and.accumulate(right.reshape(len(ids), most), axis=1).sum(axis=1)
        return ahead_right

    def _likeliest_right(self, requests: Ints, positions: Ints, depth: Ints) -> Bools:
        """Return whether the drafter's likeliest token is right on the target's path, (n,).

        `positions` are of the output, `depth` draft positions behind the last verified token.
        """
        acceptance_trace = self._ground_truth.acceptance_trace
        keys = acceptance_trace.on_path(requests, positions)
        rows = acceptance_trace.rows(requests, keys, mix(keys), np.ones(len(requests), dtype=np.bool_), depth)
        right: Bools = (acceptance_trace.rank[rows] == 0) & (acceptance_trace.likeliest[rows] > 0)
        return right

    def rounds_left(self, ids: Ids, most: int) -> Ints:
        """Return the rounds of chains of `most` that are left, (n,); see `specsim.core.protocols.Oracle`."""
        first, end = np.maximum(self._view.emitted_tokens[ids], 1), self._ground_truth.output_tokens[ids]
        rounds = np.zeros(len(ids), dtype=np.int64)
        for place, (request, at, stop) in enumerate(zip(ids.tolist(), first.tolist(), end.tolist(), strict=True)):
            right = self._right_by_depth(request, np.arange(at, stop), most)
            while at < stop:
                ahead = 0
                while ahead < most and at + ahead < stop and right[ahead][at + ahead - int(first[place])]:
                    ahead += 1
                at += ahead + 1
                rounds[place] += 1
        return rounds

    def _right_by_depth(self, request: int, positions: Ints, most: int) -> list[list[bool]]:
        """Return by draft position, up to `most`, and output position whether the likeliest token is right."""
        own = min(most, self._ground_truth.acceptance_trace.depths)
        same = np.full(len(positions), request), positions
        right = [self._likeliest_right(*same, np.full(len(positions), depth)).tolist() for depth in range(own)]
        return right + right[-1:] * (most - own)

    def agreement(self, ids: Ids) -> Floats:
        """Return how often the likeliest token is right, (n,); see `specsim.core.protocols.Oracle`."""
        acceptance_trace = self._ground_truth.acceptance_trace
        rows = [acceptance_trace.text_rows(ids[place : place + 1]) for place in range(len(ids))]
        return np.array(
            [np.mean((acceptance_trace.rank[each] == 0) & (acceptance_trace.likeliest[each] > 0)) for each in rows]
        )

    def target_probability(self, forest: Forest) -> Floats:
        """Return the target's own probability of each drafted node; see `specsim.core.protocols.Oracle`."""
        acceptance_trace, nodes = self._ground_truth.acceptance_trace, slice(forest.rows, None)
        probability = forest.probability.copy()
        row, rank = self._drafter.rows[:, forest.slot[nodes]]
        truth = acceptance_trace.truth[row, forest.token[nodes]]
        probability[nodes] = np.where(rank == OFF_PATH, probability[nodes], truth)
        return probability


def _thinning(left: Ints, cached: Ints, passes: int) -> tuple[Ints, Ints]:
    """Return rows and context tokens of each pass, (passes,), of rows (n,) that end after `left` passes."""
    order, number = left.argsort(), np.arange(passes)
    gone = left[order].searchsorted(number, side="right")
    gone_tokens = np.zeros(len(left) + 1, dtype=np.int64)
    np.add.accumulate(cached[order], out=gone_tokens[1:])
    rows = len(left) - gone
    return rows, gone_tokens[-1] - gone_tokens[gone] + rows * number
