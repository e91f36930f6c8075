"""The rows of a pass as a server has them, laid out as one packed pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from profiler.attention.packing import Ints, Work
from profiler.backend.known import Known
from profiler.backend.rows import CachedSequences
from profiler.backend.stopwatch import Stopwatch
from profiler.passes.forward import PackedForward

NO_TOKENS: Ints = np.zeros(0, dtype=np.int64)


class LaidRow(NamedTuple):
    """One request in a pass.

    Attributes
    ----------
    context : tokens of it that are cached. chunk : (c,) tokens to feed behind them.
    cached : parents of the tree's nodes whose keys earlier passes have cached, by place among the row's nodes; -1: the
        last token before the tree.
    parents, tokens : of the nodes that this pass computes, which stand behind those.
    """

    request: int
    context: int
    chunk: Ints
    cached: Sequence[int] = ()
    parents: Sequence[int] = ()
    tokens: Sequence[int] = ()

    @property
    def keys(self) -> int:
        """Tokens in the cache after the pass."""
        return self.context + len(self.chunk) + len(self.cached) + len(self.parents)


class LaidOut(NamedTuple):
    """A pass of n rows.

    Attributes
    ----------
    work : what is computed. tokens : (T,) of the queries, row after row: the chunk, then the new nodes.
    chunk_logit : (n,) place of the logits behind each row's chunk, -1 without one.
    node_logit : (m,) places of the logits behind the new nodes of all rows.
    """

    work: Work
    tokens: Ints
    chunk_logit: Ints
    node_logit: Ints


def laid_out(rows: Sequence[LaidRow]) -> LaidOut:
    """Return the pass of these rows."""
    node_row: list[int] = []
    node_parent: list[int] = []
    node_cached: list[bool] = []
    tokens: list[Ints] = []
    chunk_logit: list[int] = []
    node_logit: list[int] = []
    nodes = logits = 0
    for place, row in enumerate(rows):
        new, old = len(row.parents), len(row.cached)
        node_row += [place] * (old + new)
        node_parent += [nodes + parent if parent >= 0 else -1 for parent in (*row.cached, *row.parents)]
        node_cached += [True] * old + [False] * new
        tokens += [row.chunk, np.array(row.tokens, dtype=np.int64)]
        nodes += old + new
        chunk_logit.append(logits if len(row.chunk) else -1)
        logits += len(row.chunk) > 0
        node_logit += range(logits, logits + new)
        logits += new
    work = Work.of(
        [row.context for row in rows], [len(row.chunk) for row in rows], node_row, node_parent, np.array(node_cached)
    )
    return LaidOut(
        work,
        np.concatenate(tokens),
        np.array(chunk_logit, dtype=np.int64),
        np.array(node_logit, dtype=np.int64),
    )


def fill(
    forward: PackedForward, held: CachedSequences, known: Known, stopwatch: Stopwatch, requests: Ints, cached: Ints
) -> None:
    """Compute the beginnings of prompts, up to `cached` (n,), that requests (n,) are taken to have from others.

    It is not timed.
    """
    rows = [
        LaidRow(request, have, known.between(request, have, due))
        for request, have, due in zip(requests.tolist(), held.held[requests].tolist(), cached.tolist(), strict=True)
        if have < due
    ]
    if rows:
        stopwatch.untimed(lambda: passed(forward, held, rows, laid_out(rows))())
    held.held[requests] = cached


def passed(
    forward: PackedForward, held: CachedSequences, rows: Sequence[LaidRow], laid: LaidOut
) -> Callable[[], torch.Tensor]:
    """Take the pages of a pass; return what lays its inputs out on the device, runs it and returns its logits.

    Raises
    ------
    NoRoom
        When the pages do not suffice.
    """
    for row in rows:
        held.reserve(row.request, row.keys)
    tables = held.tables([row.request for row in rows])
    return forward.prepared(laid.work, tables, laid.tokens)
