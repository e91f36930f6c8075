"""The simulated drafter: proposals behind each leaf, read from the tape, and the seconds of each draft pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from specsim.errors import SpecsimError
from specsim.pass_shape import PassShape
from specsim.replica.passes import NOBODY, Drafted, DraftPass, Level
from specsim.replica.protocols import DraftBelief, View
from specsim.replica.request import Bools, Floats, Ids, Ints
from specsim.replica.trees import Layer, likeliest
from specsim.rng import Words, mix
from specsim.world.tape import Tape

OFF_PATH = -1
"""The rank of the target's token off the target's path, where no proposal is right."""
MOST_PROPOSED = 1 << 21
"""The most proposals of one pass."""


def with_sequences(shape: PassShape, sequences: int, context_tokens: int, fresh: int = 0) -> PassShape:
    """Return the shape with so many more sequences, their context, and `fresh` tokens that it does not hold yet."""
    if not sequences:
        return shape
    return shape._replace(
        context_tokens=shape.context_tokens + context_tokens,
        batched_tokens=shape.batched_tokens + fresh,
        attention_pairs=shape.attention_pairs + (context_tokens + fresh if fresh else 0),
        logit_tokens=shape.logit_tokens + sequences,
        requests=shape.requests + sequences,
    )


class Proposals:
    """The row of the tape read behind each extended node of this step; `Forest.slot` is an index into it.

    `words` holds the key and the hashed key, `rows` the row of the tape and the rank of the target's token in it.
    """

    __slots__ = ("rows", "used", "words")

    def __init__(self, size: int) -> None:
        self.words = np.zeros((2, size), dtype=np.uint64)
        self.rows = np.zeros((2, size), dtype=np.int64)
        self.used = 0

    def add(self, keys: Words, hashed: Words, rows: Ints, rank: Ints) -> Ints:
        """Store one row per extended node and return their slots."""
        first, last = self.used, self.used + len(keys)
        if last > self.rows.shape[1]:
            more = max(last, self.rows.shape[1])
            self.words = np.concatenate((self.words, np.zeros((2, more), dtype=np.uint64)), axis=1)
            self.rows = np.concatenate((self.rows, np.zeros((2, more), dtype=np.int64)), axis=1)
        self.words[0, first:last] = keys
        self.words[1, first:last] = hashed
        self.rows[0, first:last] = rows
        self.rows[1, first:last] = rank
        self.used = last
        return np.arange(first, last)

    def right(self, slot: Ints, token: Ints) -> Bools:
        """Return which drafted tokens are the target's, path included."""
        right: Bools = self.rows[1][slot] == token
        return right


class Front(NamedTuple):
    """The nodes that a pass extends, (m,) each: their places, and the keys of the text behind them."""

    node: Ints
    row: Ints
    request: Ids
    depth: Ints
    path: Floats
    key: Words
    on_path: Bools

    def where(self, these: Bools) -> Front:
        """Return some of them."""
        return Front._make(column[these] for column in self)


class Read(NamedTuple):
    """What the tape holds behind the nodes of a front, (m,) each."""

    hashed: Words
    row: Ints
    rank: Ints
    slot: Ints


class SimulatedDrafter:
    """Answer draft passes.

    Parameters
    ----------
    tape : its proposals, and which are right. model : pass times. view : the replica's ledger, for positions.
    """

    def __init__(self, tape: Tape, model: DraftBelief, view: View) -> None:
        self.proposals = Proposals(4096)
        self._tape, self._model, self._view = tape, model, view
        self._verified = False

    def verified(self) -> None:
        """Note a verification: forests that grow from roots after it may reuse the slots of earlier ones."""
        self._verified = True

    def draft(self, work: DraftPass, shape: PassShape) -> Drafted:
        """Return the forest grown by the likeliest tokens of each leaf, pass after pass, and the seconds of each pass.

        A leaf without a proposal stays a leaf.

        Raises
        ------
        SpecsimError
            When a pass is wider than the tape, or has more than `MOST_PROPOSED` proposals.
        """
        forest, nodes = work.forest, work.forest.draft_nodes
        twice, context_tokens = self._twice(work) if self._model.expands else (0, 0)
        seconds = self._seconds(with_sequences(shape, twice, context_tokens), work.leaves, forest.rows)
        if not len(work.leaves) or not work.width:
            return Drafted(forest, [Level(shape, seconds, nodes)])
        self._check_width(work.width)
        levels: list[Level] = []
        layers: list[Layer] = []
        extended: list[Ints] = []
        front = self._front(work)
        while True:
            layer, following = self._extend(work, front, forest.rows + nodes)
            nodes += len(layer.row)
            levels.append(Level(shape, seconds, nodes))
            if len(layer.row):
                layers.append(layer)
            if len(levels) == work.depth or not len(layer.row):
                break
            before, front = front.row, following()
            if work.deepest is not None:
                front = front.where(front.depth < work.deepest[front.row])
                if not len(front.node):
                    break
            if not extended or (front.row is not before and before.tobytes() != front.row.tobytes()):
                shape = self._shape(work, front.row)
            doubled = with_sequences(shape, twice, context_tokens, fresh=twice)
            seconds = self._seconds(doubled, front.node, forest.rows)
            extended.append(front.node)
        grown = forest.with_layers(layers) if layers else forest
        return Drafted(grown, levels, np.concatenate(extended) if extended else NOBODY)

    def _seconds(self, shape: PassShape, leaves: Ints, rows: int) -> float:
        """Return the seconds of a pass: 0 if an earlier pass has proposed all depths."""
        if self._model.one_pass and len(leaves) and leaves.min() >= rows:
            return 0.0
        return self._model.seconds(shape)

    def _twice(self, work: DraftPass) -> tuple[int, int]:
        """Return the sequences that batch expansion drafts a second time, those fed two tokens, and their context.

        vLLM's V0 engine drafts a request whose tokens were all accepted as two sequences, through all passes of a step:
        with its last token, and without (vLLM pull request 5765).
        """
        if not len(work.chunks):
            return 0, 0
        row = work.forest.row[work.leaves]
        rows = np.unique(row[work.chunks[row] > 1])
        return len(rows), int(self._view.draft_cached[work.requests[rows]].sum())

    def _shape(self, work: DraftPass, row: Ints) -> PassShape:
        """Return the shape of a pass after the first one, which extends nodes of these rows, (m,)."""
        cached = self._view.draft_cached[work.requests]
        if len(work.chunks):
            cached = cached + work.chunks
        return PassShape.of_nodes(cached, np.bincount(row, minlength=len(cached)))

    def _check_width(self, width: int) -> None:
        if width > self._tape.width:
            raise SpecsimError(
                f"tree width {width} exceeds the {self._tape.width} proposals per position of the acceptance tape"
            )

    def _front(self, work: DraftPass) -> Front:
        """Return the leaves of a pass, (m,)."""
        tape, proposals, forest, leaves = self._tape, self.proposals, work.forest, work.leaves
        row = forest.row[leaves]
        requests = work.requests[row]
        if not forest.draft_nodes:
            if self._verified:
                self._verified, proposals.used = False, 0
            key = tape.on_path(requests, self._view.emitted_tokens[requests])
            on = np.ones(len(leaves), dtype=np.bool_)
        else:
            slot, token = forest.slot[leaves], forest.token[leaves]
            on = proposals.right(slot, token)
            keys, hashed = proposals.words.take(slot, axis=1)
            key = tape.next_keys(keys, hashed, on, token)
            roots = leaves < forest.rows
            if np.count_nonzero(roots):
                key[roots] = tape.on_path(requests[roots], self._view.emitted_tokens[requests[roots]])
                on[roots] = True
        return Front(leaves, row, requests, forest.depth[leaves], forest.path_probability[leaves], key, on)

    def _extend(self, work: DraftPass, front: Front, first: int) -> tuple[Layer, Callable[[], Front]]:
        """Return the new nodes behind a front, numbered from `first` on, and a function that returns the next front."""
        if first >= self._model.deepest:
            front = front.where(front.depth < self._model.deepest)
        read = self._read(front)
        chains = work.width == 1 and work.beam is None and not self._tape.silent
        layer, parent = self._chained(front, read) if chains else self._likeliest(work, front, read)
        return layer, lambda: self._behind(front, read, layer, parent, first)

    def _read(self, front: Front) -> Read:
        """Read the tape behind each node of the front."""
        hashed = mix(front.key)
        row = self._tape.rows(front.request, front.key, hashed, front.on_path)
        rank = self._tape.rank[row]
        rank[~front.on_path] = OFF_PATH
        return Read(hashed, row, rank, self.proposals.add(front.key, hashed, row, rank))

    def _chained(self, front: Front, read: Read) -> tuple[Layer, None]:
        """Return one new node behind each node of the front."""
        sure = self._tape.likeliest[read.row]
        token = np.zeros(len(sure), dtype=np.int64)
        return Layer(front.row, front.node, front.depth + 1, token, read.slot, sure, sure * front.path), None

    def _likeliest(self, work: DraftPass, front: Front, read: Read) -> tuple[Layer, Ints]:
        """Return each row's likeliest new nodes, and the place of each one's parent in the front, (new,)."""
        tape, width = self._tape, work.width
        if len(front.node) * width > MOST_PROPOSED:
            raise SpecsimError(
                f"a draft pass proposes {len(front.node) * width:,} tokens; expected at most {MOST_PROPOSED:,}"
            )
        confidence = tape.confidence.take(read.row, axis=0)[:, :width]
        path = confidence * front.path[:, None]
        kept = np.arange(path.size)
        if work.beam is not None and len(kept):
            kept = likeliest(front.row, path, work.beam)
        if tape.silent:
            kept = kept[path.take(kept) > 0]
        parent = kept // width
        layer = Layer(
            front.row[parent],
            front.node[parent],
            front.depth[parent] + 1,
            kept - parent * width,
            read.slot[parent],
            confidence.take(kept),
            path.take(kept),
        )
        return layer, parent

    def _behind(self, front: Front, read: Read, layer: Layer, parent: Ints | None, first: int) -> Front:
        """Return the new nodes, numbered from `first` on, as the next front; without `parent` one behind each node."""
        request, key, hashed, rank = front.request, front.key, read.hashed, read.rank
        if parent is not None:
            request, key, hashed, rank = request[parent], key[parent], hashed[parent], rank[parent]
        on = rank == layer.token
        node = np.arange(first, first + len(on))
        return Front(
            node, layer.row, request, layer.depth, layer.path, self._tape.next_keys(key, hashed, on, layer.token), on
        )
