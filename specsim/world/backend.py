"""The simulated backend: the only room that knows the future, and the price of every pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.errors import SpecsimError
from specsim.forest import Forest, likeliest
from specsim.protocols import Belief, PassShape, View
from specsim.request import Bools, Floats, Ids, Ints
from specsim.rng import Words, mix
from specsim.work import Draft, Emitted, Verify
from specsim.world.tape import Tape


@dataclass(frozen=True, slots=True)
class World:
    """What only the future knows: true output lengths (N,), at least 1, and the tape."""

    output_tokens: Ints
    tape: Tape


@dataclass(slots=True)
class _Proposals:
    """What was read from the tape behind each extended node of this step; `Forest.slot` points here."""

    keys: Words
    hashed: Words
    on_path: Bools
    rank: Ints
    used: int = 0

    @staticmethod
    def room(size: int) -> _Proposals:
        words = np.zeros(size, dtype=np.uint64)
        return _Proposals(words, words.copy(), np.zeros(size, dtype=np.bool_), np.zeros(size, dtype=np.int64))

    def add(self, keys: Words, hashed: Words, on_path: Bools, rank: Ints) -> Ints:
        """Store one row per extended node and return their slots."""
        first, last = self.used, self.used + len(keys)
        if last > len(self.keys):
            for name in ("keys", "hashed", "on_path", "rank"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate((old, np.zeros(max(last, len(old)), dtype=old.dtype))))
        self.keys[first:last] = keys
        self.hashed[first:last] = hashed
        self.on_path[first:last] = on_path
        self.rank[first:last] = rank
        self.used = last
        return np.arange(first, last)

    def right(self, slot: Ints, token: Ints) -> Bools:
        """Return which drafted tokens, on the path so far, are the target's own."""
        right: Bools = self.on_path[slot] & (self.rank[slot] == token)
        return right


class SimulatedBackend:
    """Answers passes from the world, in the time that the true latency model gives.

    Parameters
    ----------
    world : what the future holds.
    truth : the latency model that passes really take.
    view : the replica's ledger, for positions.
    """

    def __init__(self, world: World, truth: Belief, view: View) -> None:
        self._world = world
        self._truth = truth
        self._view = view
        self._proposals = _Proposals.room(4096)

    def draft(self, work: Draft, shape: PassShape) -> tuple[Forest, float]:
        """Return the forest grown by each leaf's likeliest tokens, and the seconds of one draft pass."""
        seconds = self._truth.draft.seconds(shape.context_tokens, shape.batched_tokens, shape.attention_pairs)
        if not len(work.leaves) or not work.width:
            return work.forest, seconds
        tape, forest, leaves = self._world.tape, work.forest, work.leaves
        if work.width > tape.width:
            raise SpecsimError(
                f"tree width {work.width} exceeds the {tape.width} proposals per position of the acceptance tape"
            )
        rows, slots = self._read(work.requests, forest, leaves)
        confidence = tape.confidence.take(rows, axis=0)[:, : work.width]
        path = confidence * forest.path_probability[leaves, None]
        if work.beam is None:
            kept = np.arange(path.size)
        else:
            kept = likeliest(forest.row[leaves], path, work.beam)
        parents = kept // work.width
        grown = forest.grow(
            leaves[parents], kept % work.width, confidence.ravel()[kept], path.ravel()[kept], slots[parents]
        )
        return grown, seconds

    def verify(self, work: Verify, shape: PassShape) -> tuple[Emitted, float]:
        """Return what each row emits and the seconds of one target pass; acceptance never changes the cost."""
        seconds = self._truth.target.seconds(shape.context_tokens, shape.batched_tokens, shape.attention_pairs)
        ids, forest = work.requests, work.forest
        emitted = self._view.emitted_tokens[ids]
        complete = work.chunks == self._view.pending(ids)
        matched = np.zeros(len(ids), dtype=np.int64)
        if forest.draft_nodes:
            nodes = slice(forest.rows, None)
            right = self._proposals.right(forest.slot[nodes], forest.token[nodes])
            matched = np.bincount(forest.row[nodes][right], minlength=len(ids))
            self._proposals.used = 0
        left = self._world.output_tokens[ids] - emitted
        tokens = np.where(complete, np.minimum(matched + 1, left), 0)
        return Emitted(tokens, np.minimum(matched, tokens), matched, tokens == left), seconds

    def _read(self, ids: Ids, forest: Forest, leaves: Ints) -> tuple[Ints, Ints]:
        """Read the tape behind each leaf; return its row and where that is noted, (leaves,) each."""
        tape, proposals = self._world.tape, self._proposals
        requests = ids[forest.row[leaves]]
        roots = leaves < forest.rows
        root_count = int(np.count_nonzero(roots))
        if root_count == len(leaves):
            keys = tape.on_path(requests, self._view.emitted_tokens[requests])
            on = np.ones(len(leaves), dtype=np.bool_)
        else:
            slot, token = forest.slot[leaves], forest.token[leaves]
            on = proposals.right(slot, token)
            keys = tape.next_keys(proposals.keys[slot], proposals.hashed[slot], on, token)
            if root_count:
                keys[roots] = tape.on_path(requests[roots], self._view.emitted_tokens[requests[roots]])
                on[roots] = True
        hashed = mix(keys)
        rows = tape.rows(requests, hashed, on)
        return rows, proposals.add(keys, hashed, on, tape.rank[rows])
