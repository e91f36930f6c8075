"""CUDA graphs: passes captured once and replayed.

A pass comes again if each of its rows has one query: a decode, or a level of chains. Rows are padded to the next size,
keys to the next power of two pages; a row of padding writes to the page of no row. Verifications are launched: a
profile times them over trees of other shapes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from profiler.passes.packing import Ints, Work, is_causal, pack, power_of_two
from profiler.passes.pages import PageTables

if TYPE_CHECKING:
    from profiler.passes.forward import Inputs, PackedForward

ROWS = (1, 2, 4, *range(8, 257, 8))
"""The rows of graphs, those that vLLM captures by default."""
Capture = Callable[[Callable[[], Any], Callable[[], object]], tuple[Any, Any]]


def capture(
    run: Callable[[], Any], warm_up: Callable[[], object], cuda: Any = torch.cuda, pool: Any = None
) -> tuple[Any, Any]:
    """Return a graph of `run`, and the result that a replay writes to; `warm_up` runs first, on the capture stream.

    Graphs of one `pool` share their memory. `cuda` is ``torch.cuda``, injected so that the order of calls is tested
    without a GPU.
    """
    side = _side_stream(cuda)
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        warm_up()
    cuda.current_stream().wait_stream(side)
    cuda.synchronize()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph, stream=side, **({} if pool is None else {"pool": pool})):
        result = run()
    return graph, result


@cache
def _side_stream(cuda: Any) -> Any:
    """Return the one stream of all captures, since libraries keep a workspace for each stream that they have used."""
    return cuda.Stream()


class Captured(NamedTuple):
    """A graph with a `replay`, the inputs that it reads and the logits that it writes."""

    graph: Any
    inputs: Inputs
    logits: torch.Tensor


class Replays:
    """The graphs of one model, by rows and pages of a row; each is captured when first asked for.

    They share their memory, so the logits of one hold until the next replay. `captured` is by default
    `profiler.passes.graphs.capture`.
    """

    def __init__(self, forward: PackedForward, captured: Capture | None = None) -> None:
        self._forward = forward
        self._capture = captured or partial(capture, pool=torch.cuda.graph_pool_handle())
        self._graphs: dict[tuple[int, int], Captured] = {}

    def __len__(self) -> int:
        return len(self._graphs)

    def prepared(self, work: Work, tables: PageTables, tokens: Ints) -> Callable[[], torch.Tensor] | None:
        """Return what lays a pass out and replays it, its graph captured; None if its shape does not come again."""
        if work.rows > ROWS[-1] or not _one_query_a_row(work):
            return None
        rows = ROWS[bisect_left(ROWS, work.rows)]
        room = power_of_two(-(-int(work.key_tokens.max()) // tables.page_tokens))
        missing = rows - work.rows
        padded = Work.of(np.pad(work.key_tokens - 1, (0, missing)), np.ones(rows))
        pages = _with_padding(tables, missing, self._forward.cache.shape.pages - 1)
        words = np.pad(tokens, (0, missing))

        def inputs() -> Inputs:
            return self._forward.inputs(padded, pages, words, room=room * tables.page_tokens)

        key = rows, room
        if key not in self._graphs:
            self._graphs[key] = self._captured(inputs())
        held, wanted = self._graphs[key], work.rows

        def run() -> torch.Tensor:
            held.inputs.load(inputs())
            held.graph.replay()
            return held.logits[:wanted]

        return run

    def _captured(self, inputs: Inputs) -> Captured:
        run = partial(self._forward.run, inputs)
        graph, logits = self._capture(run, run)
        return Captured(graph, inputs, logits)


def _one_query_a_row(work: Work) -> bool:
    """Return whether each row has one query, behind all that it sees, whose logits count."""
    if work.logit_tokens != work.rows or np.any(work.new_tokens != 1):
        return False
    return is_causal(work, pack(work))


def _with_padding(tables: PageTables, rows: int, page: int) -> PageTables:
    """Return the tables with rows of padding behind them, which have one page that belongs to no row."""
    more = np.full((rows, tables.pages.shape[1]), -1, dtype=np.int64)
    more[:, 0] = page
    return PageTables(np.concatenate([tables.pages, more]), tables.page_tokens)
