"""Passes whose shapes come again, captured once as CUDA graphs and replayed over other rows.

A pass comes again if all of its rows have equally many queries, each behind the one before: decodes, levels of chains,
verifications of chains of one length. Rows are padded to the next size, keys to the next power of two pages; a row of
padding writes to the page of no row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from profiler.passes.graphs import capture
from profiler.passes.packing import Ints, Work, is_causal, pack
from profiler.passes.pages import Tables

if TYPE_CHECKING:
    from profiler.passes.forward import Inputs, PackedForward

ROWS = (1, 2, 4, *range(8, 257, 8))
"""The rows of graphs, those that vLLM captures by default."""
Capture = Callable[[Callable[[], Any], Callable[[], object]], tuple[Any, Any]]


class Captured(NamedTuple):
    """A graph with a `replay`, the inputs that it reads and the logits that it writes."""

    graph: Any
    inputs: Inputs
    logits: torch.Tensor


class Replays:
    """The graphs of one model, by rows, queries of a row and pages of a row; each is captured when first asked for."""

    def __init__(self, forward: PackedForward, captured: Capture = capture) -> None:
        self._forward, self._capture = forward, captured
        self._graphs: dict[tuple[int, int, int], Captured] = {}

    def __len__(self) -> int:
        return len(self._graphs)

    def prepared(self, work: Work, tables: Tables, tokens: Ints) -> Callable[[], torch.Tensor] | None:
        """Return what lays a pass out and replays it, its graph captured; None if its shape does not come again.

        The logits that it returns hold until the next replay.
        """
        queries = _queries_of(work)
        if not queries or work.rows > ROWS[-1] or queries > tables.page_tokens:
            return None
        rows = ROWS[bisect_left(ROWS, work.rows)]
        room = _power_of_two(-(-int(work.key_tokens.max()) // tables.page_tokens))
        shape = self._forward.cache.shape
        padded, pages = _padded(work, queries, rows), _with_padding(tables, rows - work.rows, shape.pages - 1)
        words = np.concatenate([tokens, np.zeros((rows - work.rows) * queries, np.int64)])

        def inputs() -> Inputs:
            return self._forward.inputs(padded, pages, words, room=room * tables.page_tokens)

        key = rows, queries, room
        if key not in self._graphs:
            self._graphs[key] = self._captured(inputs())
        held, wanted = self._graphs[key], work.rows * queries

        def run() -> torch.Tensor:
            held.inputs.load(inputs())
            held.graph.replay()
            return held.logits[:wanted]

        return run

    def _captured(self, inputs: Inputs) -> Captured:
        run = partial(self._forward.run, inputs)
        graph, logits = self._capture(run, run)
        return Captured(graph, inputs, logits)


def _queries_of(work: Work) -> int:
    """Return the queries of each row; 0 unless all have as many, one behind the other, and the logits of all count."""
    queries = work.batched_tokens // max(work.rows, 1)
    if work.logit_tokens != work.batched_tokens or np.any(work.new_tokens != queries):
        return 0
    return queries if is_causal(work, pack(work)) else 0


def _padded(work: Work, queries: int, rows: int) -> Work:
    """Return the pass as one token and a chain behind it in each row, whichever of them are tokens of a chain."""
    context = np.zeros(rows, np.int64)
    context[: work.rows] = work.key_tokens - queries
    chain = np.arange(rows * (queries - 1))
    first = chain % max(queries - 1, 1) == 0
    return Work.of(context, np.ones(rows), np.repeat(np.arange(rows), queries - 1), np.where(first, -1, chain - 1))


def _with_padding(tables: Tables, rows: int, page: int) -> Tables:
    """Return the tables with rows behind them that have one page, which is nobody's."""
    more = np.full((rows, tables.pages.shape[1]), -1, dtype=np.int64)
    more[:, 0] = page
    return Tables(np.concatenate([tables.pages, more]), tables.page_tokens)


def _power_of_two(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()
