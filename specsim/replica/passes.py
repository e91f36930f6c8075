"""The two kinds of pass that a scheduler may ask for, what they cost by, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from specsim.pass_shape import PassShape
from specsim.replica.request import Bools, Ids, Ints
from specsim.replica.trees import Forest

NOBODY: Ids = np.zeros(0, dtype=np.int64)
"""No request."""
NOBODY.flags.writeable = False


class DraftPass(NamedTuple):
    """`depth` forward passes of the drafter, one behind the other; the answer is the grown Forest.

    A scheduler that decides between passes asks for one at a time. One that does not asks for all at once, as an
    engine replays one captured graph for k draft steps; they cost the same.

    Attributes
    ----------
    requests : (n,) request of each row.
    chunks : (n,) tokens that each row first feeds into the drafter's cache: its prompt, or what was emitted since;
        empty when nobody feeds any, as in all but the first pass of a step.
    forest : n trees; `leaves` (m,) are the nodes to extend, grouped by row.
    width : likeliest tokens proposed behind each leaf; 0 asks for no proposals (draft prefill).
    beam : of a row's new nodes keep only this many, by path probability; None keeps all.
    evict, transfer : as in `TargetPass`.
    depth : passes, at least 1. Each behind the first extends the new nodes of the one before; where there are none the
        answer comes early.
    deepest : (n,) depth up to which each row's tree may grow: a chain of row i gets at most `deepest[i]` tokens. None:
        as deep as `depth` brings it.
    """

    requests: Ids
    chunks: Ints
    forest: Forest
    leaves: Ints = NOBODY
    width: int = 0
    beam: int | None = None
    evict: Ids = NOBODY
    transfer: bool = False
    depth: int = 1
    deepest: Ints | None = None


class TargetPass(NamedTuple):
    """One forward pass of the target: `chunks` pending tokens of each row, then its tree behind them.

    Prefill is a chunk of many tokens, decoding a chunk of one with an empty tree, speculation one with a tree.

    Attributes
    ----------
    requests : (n,) request of each row.
    chunks : (n,) pending tokens fed into the target's cache, at least 1.
    forest : n trees; only a row whose chunk is all that is pending may carry one.
    evict : (m,) requests that lose their cache before the pass: preemption by recompute. In a step that drafts, the
        first draft pass evicts, so that what it frees holds the trees.
    transfer : their caches go to the host instead, and come back with the next pass that names them; both take time.
    repeat : whether the next steps would be this pass again, as long as each row emits one token, nobody arrives or
        ends and more cache surely fits. The engine may then run several; the answer is the last one's.
    """

    requests: Ids
    chunks: Ints
    forest: Forest
    evict: Ids = NOBODY
    transfer: bool = False
    repeat: bool = False


Pass = DraftPass | TargetPass
"""What a scheduler yields."""


class Level(NamedTuple):
    """One of the passes of a `DraftPass`: its shape, its seconds, and how many nodes are drafted by its end."""

    shape: PassShape
    seconds: float
    draft_nodes: int


class Drafted(NamedTuple):
    """What a `DraftPass` answers: the grown forest, and what each pass did.

    Attributes
    ----------
    levels : one for each pass that ran, at least one.
    extended : (m,) nodes that the passes behind the first extended.
    """

    forest: Forest
    levels: Sequence[Level]
    extended: Ints = NOBODY


class Emitted(NamedTuple):
    """What a verification answers, (n,) each: tokens emitted, draft tokens accepted among them, rows that finished.

    A row that is still prefilling emits 0; others emit their accepted tokens and the target's own next one (bonus),
    cut at the end of the output. `matched` are the draft tokens that agreed with the target before that cut.
    """

    tokens: Ints
    accepted: Ints
    matched: Ints
    finished: Bools
