"""The shape of a forward pass: the counts of tokens that its seconds depend on, of one pass or of many."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class PassShape(NamedTuple):
    """All that a latency model may see of a pass.

    Attributes
    ----------
    context_tokens : cached tokens read, once per request whatever its tree (SmartSpec's N_context).
    batched_tokens : query tokens, roots and tree nodes included (SmartSpec's N_batched).
    attention_pairs : sum over query tokens of the keys each attends to; of its own tree, a node is taken to see itself
        alone, which leaves out a fraction of depth / context.
    prefill_tokens : those of the batched tokens that are scheduled for rows which are not decoding.
    logit_tokens : those of the batched tokens whose logits are computed: tree nodes, and the last scheduled token of
        each row.
    requests : requests with a token in the pass.
    repeated_tokens : cached tokens that are read again where every tree node reads its request's context for itself.
    moved_bytes : cache that goes to the host or comes back from there before the pass, or weights that come back.
    """

    context_tokens: float
    batched_tokens: float
    attention_pairs: float
    prefill_tokens: int
    logit_tokens: float
    requests: int
    repeated_tokens: float = 0
    moved_bytes: int = 0

    @classmethod
    def of(cls, cached: Ints, scheduled: Ints, nodes: Ints | None = None, prefill_tokens: int = 0) -> PassShape:
        """Return the shape of `scheduled` and `nodes` of trees behind `cached` tokens, (n,) each: a row a request."""
        queries, drafted = (scheduled, 0) if nodes is None else (scheduled + nodes, int(np.add.reduce(nodes)))
        total, own = int(np.add.reduce(scheduled)), int(scheduled.dot(scheduled))
        attended = int(queries.dot(cached)) + int(queries.dot(scheduled)) + total + drafted
        pairs = float(attended) - float(own + total) / 2
        requests, logits = int(np.count_nonzero(queries)), drafted + int(np.count_nonzero(scheduled))
        context = int(np.add.reduce(cached)) if requests == len(cached) else int(cached.dot(queries > 0))
        again = 0 if nodes is None else int(cached.dot(nodes)) + int(cached.dot(scheduled > 0)) - context
        return cls(context, total + drafted, pairs, prefill_tokens, logits, requests, again)

    @classmethod
    def of_decoding(cls, cached: Ints, nodes: Ints | None = None, drafted: int = 0) -> PassShape:
        """Return `of` the same for 1 token a row, quicker; `drafted` nodes in all, and those of each row unless 0."""
        rows, context = len(cached), int(np.add.reduce(cached))
        again = 0 if nodes is None else int(np.dot(nodes, cached))
        batched = rows + drafted
        return cls(context, batched, float(context + again + batched + drafted), 0, batched, rows, again)

    @classmethod
    def of_nodes(cls, cached: Ints, nodes: Ints) -> PassShape:
        """Return `of` the same without scheduled tokens, quicker."""
        seen, batched, rows = int(np.dot(nodes, cached)), int(np.add.reduce(nodes)), int(np.count_nonzero(nodes))
        context = seen if rows == batched else int(np.dot(cached, nodes > 0))
        return cls(context, batched, float(seen + batched), 0, batched, rows, seen - context)

    @classmethod
    def decode(cls, context_tokens: float, rows: int = 1) -> PassShape:
        """Return the shape of one token for each of `rows` requests with so much context in all."""
        return cls(context_tokens, rows, context_tokens + rows, 0, rows, rows)

    @classmethod
    def prompt(cls, tokens: int, rows: int = 1) -> PassShape:
        """Return the shape of reading a prompt of so many tokens for each of `rows` requests."""
        return cls(0, tokens * rows, rows * tokens * (tokens + 1) / 2, tokens * rows, rows, rows)

    def plus(self, other: PassShape) -> PassShape:
        """Return the shape of the rows of both."""
        added: Any = (here + there for here, there in zip(self, other, strict=True))
        return PassShape(*added)

    def with_nodes(self, nodes: float, pairs: float) -> PassShape:
        """Return the shape with so many more tree nodes below roots of decoding requests, which attend to `pairs`."""
        context, batched, attended, prefill, logits, requests, again, moved = self
        return PassShape(
            context,
            batched + nodes,
            attended + pairs,
            prefill,
            logits + nodes,
            requests,
            again + pairs - 2 * nodes,
            moved,
        )


class PassShapes(NamedTuple):
    """The same counts of many passes: arrays that broadcast together, numbers for what all have in common."""

    context_tokens: Any
    batched_tokens: Any
    attention_pairs: Any
    logit_tokens: Any
    requests: Any
    repeated_tokens: Any
    prefill_tokens: Any = 0

    @classmethod
    def each(cls, cached: Any, scheduled: Any, nodes: Any = 0) -> PassShapes:
        """Return the shapes of passes of one row, broadcast: `scheduled`, a prompt's if above 1, and `nodes`."""
        queries, with_chunk = scheduled + nodes, np.minimum(scheduled, 1)
        pairs = queries * (cached + scheduled + 1) - scheduled * (scheduled + 1) / 2
        requests = np.minimum(queries, 1)
        return cls(
            np.where(queries > 0, cached, 0),
            queries,
            pairs,
            nodes + with_chunk,
            requests,
            cached * (nodes - requests + with_chunk),
            scheduled * (with_chunk < scheduled),
        )

    @classmethod
    def decode(cls, context_tokens: Any, rows: Any = 1) -> PassShapes:
        """Return the shapes of one token for each of `rows` requests with so much context in all."""
        return cls(context_tokens, rows, context_tokens + rows, rows, rows, 0)

    @classmethod
    def with_nodes(cls, shape: PassShape | PassShapes, nodes: Any, pairs: Any) -> PassShapes:
        """Return shapes with so many more tree nodes, as `PassShape.with_nodes`; all broadcast together."""
        return cls(
            shape.context_tokens,
            shape.batched_tokens + nodes,
            shape.attention_pairs + pairs,
            shape.logit_tokens + nodes,
            shape.requests,
            shape.repeated_tokens + pairs - 2 * nodes,
            shape.prefill_tokens,
        )

    def first(self, count: int) -> PassShapes:
        """Return the first so many along the last axis."""
        return PassShapes(*(each[..., :count] if isinstance(each, np.ndarray) else each for each in self))

    def only(self, those: Any) -> PassShapes:
        """Return zeros where `those` (broadcast) does not hold."""
        return PassShapes(*(np.where(those, column, 0) for column in self))

    def cumulated(self, axis: int) -> PassShapes:
        """Return the shapes of the passes that hold the first 1, 2, ... rows along an axis."""
        return PassShapes(*(np.add.accumulate(column, axis=axis) for column in self))

    def seconds(self, model: Any) -> npt.NDArray[np.float64]:
        """Return what a model says of each, 0 where nothing is batched."""
        return np.where(np.asarray(self.batched_tokens) > 0, model.seconds_array(self), 0.0)


def of_rounds(known: Ints, scheduled: Ints, matched: Ints, depth: int, cached: bool) -> tuple[PassShapes, PassShapes]:
    """Return the shapes of rounds of chains of `depth`: of the draft passes, (2, rounds), and verifications, (rounds,).

    The draft passes are the first of each round, which feeds what the cache lacks, and each later one.

    Parameters
    ----------
    known : (n,) tokens of each row before the first round. scheduled : (n,) 1 or 2 of them that the drafter's cache
        lacks.
    matched : (rounds, n). cached : whether the drafter keeps a cache of its own.
    """
    rounds, rows = matched.shape
    texts, catch_up = both = np.empty((2, rounds, rows), dtype=np.int64)
    texts[0], catch_up[0], catch_up[1:] = known, scheduled, 1
    np.add(matched[:-1], 1, out=texts[1:])
    np.add.accumulate(texts, axis=0, out=texts)
    if cached:
        # The last token of a chain is not in the drafter's cache: nothing was drafted behind it.
        catch_up[1:] += matched[:-1] == depth
    text, text_tokens = np.add.reduce(both, axis=2)
    context, batched, pairs = np.empty((3, 2, rounds), dtype=np.int64)
    context[0], context[1] = text - text_tokens, text
    batched[0], batched[1] = text_tokens, rows
    # The second of two tokens sees one more than the first: c tokens see c times the text, less c (c - 1) / 2.
    pairs[0], pairs[1] = np.einsum("ij,ij->i", catch_up, texts) - (text_tokens - rows), text + rows
    read, again = text - rows, (text - rows) * depth
    queries = rows * (depth + 1)
    verify = PassShapes(read, queries, read + again + queries + rows * depth, queries, rows, again)
    return PassShapes(context, batched, pairs, rows, rows, 0), verify
