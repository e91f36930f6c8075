"""The simulated backend: the only room that knows the future, and the price of every pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.errors import SpecsimError
from specsim.replica.passes import DraftPass, Emitted, Pass, TargetPass
from specsim.replica.protocols import Belief, ModelBelief, PassShape, View
from specsim.replica.request import Bools, Floats, Ids, Ints
from specsim.replica.trees import Forest, likeliest
from specsim.rng import Words, mix
from specsim.world.tape import Tape


@dataclass(frozen=True, slots=True)
class World:
    """What only the future knows: true output lengths (N,), at least 1, and the tape."""

    output_tokens: Ints
    tape: Tape


_OFF_PATH = -1


class _Proposals:
    """What was read from the tape behind each extended node of this step; `Forest.slot` points here.

    `words` holds key and hashed key; `rows` the row of the tape and the rank of the target's token in it, -1 off its
    path, where nothing is right.
    """

    __slots__ = ("rows", "used", "words")

    def __init__(self, size: int) -> None:
        self.words = np.zeros((2, size), dtype=np.uint64)
        self.rows = np.zeros((2, size), dtype=np.int64)
        self.used = 0

    def add(self, keys: Words, hashed: Words, rows: Ints, rank: Ints) -> Ints:
        """Note one row per extended node and return their slots."""
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
        """Return which drafted tokens, their path included, are the target's own."""
        right: Bools = self.rows[1][slot] == token
        return right


class SimulatedBackend:
    """Answers passes from the world, in the time that the true latency model gives.

    A forest lives until trees are grown from roots again after a verification; then its slots are used anew.

    Parameters
    ----------
    world : what the future holds.
    truth : the latency model that passes really take.
    view : the replica's ledger, for positions.
    host_bytes_per_s : how fast a cache moves to the host and back.
    """

    def __init__(self, world: World, truth: Belief, view: View, host_bytes_per_s: float = float("inf")) -> None:
        self._world = world
        self._host_bytes_per_s = host_bytes_per_s
        self._truth = truth
        self._view = view
        self._proposals = _Proposals(4096)
        self._verified = False

    def move(self, work: Pass, shape: PassShape) -> float:
        """Return the seconds that the moved bytes take on the link to the host."""
        return shape.moved_bytes / self._host_bytes_per_s

    def draft(self, work: DraftPass, shape: PassShape) -> tuple[Forest, float]:
        """Return the forest grown by each leaf's likeliest tokens, and the seconds of one draft pass.

        A leaf behind which the drafter has no proposal stays one.
        """
        model, tape, forest, leaves = self._truth.draft, self._world.tape, work.forest, work.leaves
        proposed = model.one_pass and len(leaves) and leaves.min() >= forest.rows
        seconds = 0.0 if proposed else _pass_s(model, shape)
        if forest.draft_nodes >= model.deepest:
            leaves = leaves[forest.depth[leaves] < model.deepest]
        if not len(leaves) or not work.width:
            return forest, seconds
        if work.width > tape.width:
            raise SpecsimError(
                f"tree width {work.width} exceeds the {tape.width} proposals per position of the acceptance tape"
            )
        rows, slots = self._read(work.requests, forest, leaves)
        width, above = work.width, forest.path_probability[leaves]
        if width == 1 and work.beam is None and not tape.silent:
            sure = tape.likeliest[rows]
            return forest.grow(leaves, np.zeros(len(leaves), dtype=np.int64), sure, sure * above, slots), seconds
        confidence = tape.confidence.take(rows, axis=0)[:, :width]
        path = confidence * above[:, None]
        kept = np.arange(path.size) if work.beam is None else likeliest(forest.row[leaves], path, work.beam)
        if tape.silent:
            kept = kept[path.take(kept) > 0]
        parents = kept // width
        grown = forest.grow(
            leaves[parents], kept - parents * width, confidence.take(kept), path.take(kept), slots[parents]
        )
        return grown, seconds

    def verify(self, work: TargetPass, shape: PassShape) -> tuple[Emitted, float]:
        """Return what each row emits and the seconds of one target pass; acceptance never changes the cost."""
        seconds = _pass_s(self._truth.target, shape)
        ids, forest = work.requests, work.forest
        emitted = self._view.emitted_tokens[ids]
        complete = work.chunks == self._view.pending(ids)
        matched = np.zeros(len(ids), dtype=np.int64)
        if forest.draft_nodes:
            nodes = slice(forest.rows, None)
            right = forest.rows + self._proposals.right(forest.slot[nodes], forest.token[nodes]).nonzero()[0]
            # A parent stands before its children: what each row keeps is the depth of its deepest right node.
            matched[forest.row.take(right)] = forest.depth.take(right)
        self._verified = True
        left = self._world.output_tokens[ids] - emitted
        tokens = np.where(complete, np.minimum(matched + 1, left), 0)
        return Emitted(tokens, np.minimum(matched, tokens), matched, tokens == left), seconds

    def output_tokens(self, ids: Ids) -> Ints:
        """Return how many tokens each request will emit in all, (n,); see `specsim.replica.protocols.Foresight`."""
        return self._world.output_tokens[ids]

    def right(self, forest: Forest) -> Bools:
        """Return which nodes of a forest drafted in this step are the target's own, roots included, (nodes,)."""
        right = np.ones(len(forest), dtype=np.bool_)
        nodes = slice(forest.rows, None)
        right[nodes] = self._proposals.right(forest.slot[nodes], forest.token[nodes])
        return right

    def right_ahead(self, ids: Ids, most: int) -> Ints:
        """Return how many tokens of the drafter's likeliest chain would be right if drafted now, up to `most`, (n,)."""
        tape = self._world.tape
        requests, ahead = np.repeat(ids, most), np.tile(np.arange(most), len(ids))
        keys = tape.on_path(requests, self._view.emitted_tokens[requests] + ahead)
        rows = tape.rows(requests, keys, mix(keys), np.ones(len(requests), dtype=np.bool_))
        right = (tape.rank[rows] == 0) & (tape.likeliest[rows] > 0)
        ahead_right: Ints = np.logical_and.accumulate(right.reshape(len(ids), most), axis=1).sum(axis=1)
        return ahead_right

    def target_probability(self, forest: Forest) -> Floats:
        """Return the target's own probability of each drafted node; see `specsim.replica.protocols.Foresight`."""
        tape, nodes = self._world.tape, slice(forest.rows, None)
        probability = forest.probability.copy()
        row, rank = self._proposals.rows[:, forest.slot[nodes]]
        truth = tape.truth[row, forest.token[nodes]]
        probability[nodes] = np.where(rank == _OFF_PATH, probability[nodes], truth)
        return probability

    def _read(self, ids: Ids, forest: Forest, leaves: Ints) -> tuple[Ints, Ints]:
        """Read the tape behind each leaf; return its row and where that is noted, (leaves,) each."""
        tape, proposals = self._world.tape, self._proposals
        requests = ids[forest.row[leaves]]
        if not forest.draft_nodes:
            if self._verified:
                self._verified, proposals.used = False, 0
            keys = tape.on_path(requests, self._view.emitted_tokens[requests])
            on = np.ones(len(leaves), dtype=np.bool_)
        else:
            slot, token = forest.slot[leaves], forest.token[leaves]
            on = proposals.right(slot, token)
            keys, hashed = proposals.words.take(slot, axis=1)
            keys = tape.next_keys(keys, hashed, on, token)
            roots = leaves < forest.rows
            if np.count_nonzero(roots):
                keys[roots] = tape.on_path(requests[roots], self._view.emitted_tokens[requests[roots]])
                on[roots] = True
        hashed = mix(keys)
        rows = tape.rows(requests, keys, hashed, on)
        rank = tape.rank[rows]
        rank[~on] = _OFF_PATH
        return rows, proposals.add(keys, hashed, rows, rank)


def _pass_s(model: ModelBelief, shape: PassShape) -> float:
    return model.seconds(shape.context_tokens, shape.batched_tokens, shape.attention_pairs, shape.logit_tokens)
