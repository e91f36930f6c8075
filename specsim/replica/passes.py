"""The two kinds of pass that a scheduler may ask for, what they cost by, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from specsim.replica.request import Bools, Ids, Ints
from specsim.replica.trees import Forest

NOBODY: Ids = np.zeros(0, dtype=np.int64)
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
    deepest : (n,) passes behind the first extend only what lies less deep than this in its row's tree; None: anything.
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
    """

    requests: Ids
    chunks: Ints
    forest: Forest
    evict: Ids = NOBODY
    transfer: bool = False


Pass = DraftPass | TargetPass


class PassShape(NamedTuple):
    """What a pass costs by: all a latency model may see of it.

    Attributes
    ----------
    context_tokens : cached tokens read, once per request whatever its tree (SmartSpec's N_context).
    batched_tokens : query tokens, roots and tree nodes included (SmartSpec's N_batched).
    attention_pairs : sum over query tokens of the keys each attends to; of its own tree, a node is taken to see itself
        alone, which leaves out a fraction of depth / context.
    prefill_tokens : those of the batched tokens that belong to chunks of rows which are not decoding.
    logit_tokens : those of the batched tokens whose logits are computed: tree nodes, and the last token of each chunk.
    moved_bytes : cache that goes to the host or comes back from there before the pass.
    """

    context_tokens: int
    batched_tokens: int
    attention_pairs: float
    prefill_tokens: int
    logit_tokens: int
    moved_bytes: int = 0

    @classmethod
    def of(cls, cached: Ints, chunks: Ints, nodes: Ints | int = 0, prefill_tokens: int = 0) -> PassShape:
        """Return the shape of `chunks` and `nodes` of trees behind `cached` tokens, (n,) each: a row a request."""
        queries = chunks + nodes
        fed, batched = int(np.add.reduce(chunks)), int(np.add.reduce(queries))
        pairs = float(np.dot(queries, cached + chunks + 1)) - float(np.dot(chunks, chunks + 1)) / 2
        logits = batched - fed + int(np.count_nonzero(chunks))
        return cls(int(np.dot(cached, queries > 0)), batched, pairs, prefill_tokens, logits)

    @classmethod
    def of_decoding(cls, cached: Ints, nodes: Ints | None, drafted: int) -> PassShape:
        """Return `of` the same for chunks of 1, quicker; `drafted` nodes in all, and those of each row unless 0."""
        rows, context = len(cached), int(np.add.reduce(cached))
        seen = context if nodes is None else context + int(np.dot(nodes, cached))
        batched = rows + drafted
        return cls(context, batched, float(seen + batched + drafted), 0, batched)

    @classmethod
    def of_nodes(cls, cached: Ints, nodes: Ints) -> PassShape:
        """Return `of` the same without chunks, quicker."""
        seen, batched = int(np.dot(nodes, cached)), int(np.add.reduce(nodes))
        context = seen if np.count_nonzero(nodes) == batched else int(np.dot(cached, nodes > 0))
        return cls(context, batched, float(seen + batched), 0, batched)


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
    """What a verification answers, all (n,): tokens emitted, draft tokens accepted among them, and who has finished.

    A row that is still prefilling emits 0; others emit their accepted tokens and the target's own next one (bonus),
    cut at the end of the output. `matched` are the draft tokens that agreed with the target before that cut.
    """

    tokens: Ints
    accepted: Ints
    matched: Ints
    finished: Bools
