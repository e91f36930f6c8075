"""The two kinds of pass that a scheduler may ask for, what they cost by, and what they answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np

from specsim.core.request import Bools, Floats, Ids, Ints
from specsim.core.trees import Forest
from specsim.pass_shape import PassShape, PassShapes

NOBODY: Ids = np.zeros(0, dtype=np.int64)
"""No request."""
NOBODY.flags.writeable = False
MOST_AT_ONCE = 128
"""The most steps that run at once: more would save little more, and are mostly asked for in vain."""
MAX_DEPTH = 1024
"""The most levels of a draft, in one pass or in several."""


class DraftPass(NamedTuple):
    """`depth` forward passes of the drafter, one behind the other; the answer is the grown Forest.

    A scheduler that decides between passes asks for one at a time. Any other asks for all at once, as an engine
    replays one captured graph for k draft steps; they cost the same.

    Attributes
    ----------
    requests : (n,) request of each sequence.
    scheduled_tokens : (n,) tokens that each sequence first feeds into the drafter's cache: its prompt, or what was
        emitted since; empty when no sequence feeds any, as in all but the first pass of a step.
    forest : n trees; `leaves` (m,) are the nodes to extend, grouped by sequence.
    width : likeliest tokens proposed behind each leaf; 0 asks for no proposals (draft prefill).
    beam : of a sequence's new nodes keep only this many, by path probability; None keeps all.
    evict, transfer : as in `TargetPass`.
    depth : passes, at least 1. Each behind the first extends the new nodes of the one before; where there are none the
        answer comes early.
    max_depth : (n,) depth up to which each sequence's tree may grow: a chain of sequence i gets at most `max_depth[i]`
        tokens. None: as deep as `depth` brings it.
    stationary_until_s : a guarantee about the steps that start before this time; -inf: none. This step and they are a
        chain of `depth` tokens behind the root of each sequence, fed what the drafter's cache lacks, and its
        verification as a whole, as long as no request arrives or ends, more cache surely fits and no sequence is that
        near to its `max_tokens`. The engine may run several such steps; it then closes this one where it yields, and
        asks for the next.
    """

    requests: Ids
    scheduled_tokens: Ints
    forest: Forest
    leaves: Ints = NOBODY
    width: int = 0
    beam: int | None = None
    evict: Ids = NOBODY
    transfer: bool = False
    depth: int = 1
    max_depth: Ints | None = None
    stationary_until_s: float = -inf


class TargetPass(NamedTuple):
    """One forward pass of the target: `scheduled_tokens` pending tokens of each sequence, then its tree behind them.

    A prefill schedules many tokens, a decode one with an empty tree, speculation one with a tree.

    Attributes
    ----------
    requests : (n,) request of each sequence.
    scheduled_tokens : (n,) pending tokens fed into the target's cache, at least 1.
    forest : n trees; only a sequence that is scheduled all its pending tokens may carry one.
    evict : (m,) requests that lose their cache before the pass: preemption by recompute. In a step that drafts, the
        first draft pass evicts, so that the freed blocks hold the trees.
    transfer : their caches go to the host instead, and come back with the next pass that names them; both take time.
    stationary_until_s : a guarantee about the steps that start before this time; -inf: none. They are this pass again,
        as long as each sequence emits one token, no request arrives and more cache surely fits; a request that ends is
        left out, if this pass has all running requests and none waits. The engine may then run several; the answer is
        the last one's, or none where requests ended before: it closes this step where it yields, and asks for the next.
    drafter_away : whether the drafter is to be on the host, from the end of this pass on: the bytes of its weights then
        hold cache, and no draft pass may run. It comes back at the end of the first pass that says False behind which
        so many bytes are free; the next pass waits for the transfer.
    shares : whether a sequence that has computed nothing yet takes from earlier sequences the whole blocks of a common
        prompt that they compute in this pass, as vLLM V1 registers them when it schedules them; of its scheduled tokens
        it runs those that it then lacks. Without a prefix cache it changes nothing.
    """

    requests: Ids
    scheduled_tokens: Ints
    forest: Forest
    evict: Ids = NOBODY
    transfer: bool = False
    stationary_until_s: float = -inf
    drafter_away: bool = False
    shares: bool = False


Pass = DraftPass | TargetPass
"""A pass that a scheduler yields."""


class Level(NamedTuple):
    """A forward pass of a `DraftPass`: its shape, its seconds, and how many nodes are drafted by its end."""

    shape: PassShape
    seconds: float
    draft_nodes: int


class Drafted(NamedTuple):
    """The answer to a `DraftPass`: the grown forest, and what each pass did.

    Attributes
    ----------
    levels : one for each pass that ran, at least one.
    extended : (m,) nodes that the passes behind the first extended.
    """

    forest: Forest
    levels: Sequence[Level]
    extended: Ints = NOBODY


class Emitted(NamedTuple):
    """The answer to a verification, (n,) each: tokens emitted, draft tokens accepted among them, which finished.

    A sequence that is still prefilling emits 0; others emit their accepted tokens and the target's own next one
    (bonus), cut at the end of the output. `matched` are the draft tokens that agreed with the target before that cut.
    """

    tokens: Ints
    accepted: Ints
    matched: Ints
    finished: Bools


class Decodes(NamedTuple):
    """Passes of n sequences that decode one token each, one behind the other, until their outputs end.

    Attributes
    ----------
    seconds : (passes,) of each. context_tokens : (passes,) of each, in all.
    rows : (passes,) of each; a number where no sequence ends before the last pass.
    left : (n,) tokens that each sequence has still to emit: it is in so many of the passes.
    """

    seconds: Floats
    context_tokens: Ints
    rows: Ints | int
    left: Ints

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def shrinks(self) -> bool:
        """Whether sequences end before the last pass."""
        return not isinstance(self.rows, int)

    @property
    def times(self) -> Ints:
        """The passes that each sequence is in, (n,)."""
        return np.minimum(self.left, len(self))

    @property
    def finished(self) -> Bools:
        """The sequences that end in one of the passes, as truth values, (n,)."""
        finished: Bools = self.left <= len(self)
        return finished

    def first(self, count: int) -> Decodes:
        """Return the first so many passes."""
        if count == len(self):
            return self
        rows = self.rows
        if not isinstance(rows, int):
            rows = int(rows[0]) if rows[count - 1] == rows[0] else rows[:count]
        return Decodes(self.seconds[:count], self.context_tokens[:count], rows, self.left)

    def stretches(self) -> Iterator[tuple[Bools | slice, int, int]]:
        """Yield passes with the same sequences: which (n,), the first such pass, and the first behind the last."""
        if not self.shrinks:
            yield slice(None), 0, len(self)
            return
        first = 0
        for end in sorted({*self.times.tolist(), len(self)}):
            yield self.left >= end, first, end
            first = end

    def last(self) -> Emitted:
        """Return what the last pass answers, where all sequences are in it."""
        tokens, matched = np.ones(len(self.left), dtype=np.int64), np.zeros(len(self.left), dtype=np.int64)
        return Emitted(tokens, matched, matched, self.finished)


class Rounds(NamedTuple):
    """Rounds of n sequences, one behind the other: `depth` draft passes of a chain each, and the verification.

    Attributes
    ----------
    matched : (rounds, n) draft tokens that agreed with the target. tokens : (rounds, n) emitted.
    finished : (n,) sequences whose output ends with the last round; no earlier one ends any.
    draft : shapes of the draft passes, (2, rounds): of the first pass, which feeds, and of each later one.
    verify : shapes of the verifications, (rounds,).
    seconds : (rounds, depth + 1) of each pass, the verification's last.
    """

    matched: Ints
    tokens: Ints
    finished: Bools
    draft: PassShapes
    verify: PassShapes
    seconds: Floats

    @property
    def depth(self) -> int:
        """Tokens of a chain."""
        depth: int = self.seconds.shape[1] - 1
        return depth

    def __len__(self) -> int:
        return len(self.seconds)

    def first(self, count: int) -> Rounds:
        """Return the first so many rounds."""
        if count == len(self):
            return self
        return Rounds(
            self.matched[:count],
            self.tokens[:count],
            np.zeros_like(self.finished),
            self.draft.first(count),
            self.verify.first(count),
            self.seconds[:count],
        )


def by_pass(draft: Any, verify: Any, rounds: int, depth: int) -> Any:
    """Return a number of each pass, (rounds, depth + 1).

    `draft` holds those of the first draft pass of each round and of its later ones, (2, rounds), `verify` those of the
    verifications, or what broadcasts to it.
    """
    draft = np.broadcast_to(draft, (2, rounds))
    each = np.empty((rounds, depth + 1), dtype=draft.dtype)
    each[:, 0], each[:, 1:depth], each[:, depth] = draft[0], draft[1][:, None], verify
    return each
