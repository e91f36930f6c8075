"""CUDA graphs: passes captured once and replayed.

Decodes, draft steps, catch-ups and verifications come again by their `PackedRoom`: rows, tokens and logits are padded
to the sizes that an engine captures, and a power of two bounds a row's queries, and its pages. Larger passes are
launched, and those with a chunk that is long enough to be a prompt's. An attention kernel whose plan has other sizes
for each tree replays only decodes and levels of chains.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from profiler.attention.packing import (
    LARGEST_CAPTURED,
    Ints,
    PackedRoom,
    Work,
    captured_size,
    is_causal,
    pack,
    power_of_two,
)
from profiler.attention.pages import PageTables
from profiler.attention.planning import SPLIT
from profiler.attention.split import KEYS_OF_A_QUERY

if TYPE_CHECKING:
    from profiler.passes.forward import Inputs, PackedForward

LONGEST_CHUNK = 16
"""Tokens of the longest chunk that counts as a catch-up; a longer one is a prompt's."""
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
    """A graph with a `replay`, and the inputs that it reads."""

    graph: Any
    inputs: Inputs


class Replays:
    """The graphs of one model by the rooms of their passes; each is captured when first asked for.

    They share their memory and write the same logits, which hold until the next replay. `captured` is by default
    `profiler.passes.graphs.capture`.
    """

    def __init__(self, forward: PackedForward, captured: Capture | None = None) -> None:
        self._forward = forward
        self._capture = captured or partial(capture, pool=torch.cuda.graph_pool_handle())
        self._graphs: dict[PackedRoom, Captured] = {}
        self._logits = torch.empty((LARGEST_CAPTURED, forward.shape.vocab), device=forward.device, dtype=forward.dtype)

    def __len__(self) -> int:
        return len(self._graphs)

    def prepared(self, work: Work, tables: PageTables, tokens: Ints) -> Callable[[], torch.Tensor] | None:
        """Return what lays a pass out and replays it, its graph captured; None if its shape does not come again."""
        if work.batched_tokens > LARGEST_CAPTURED or work.chunk.max() > LONGEST_CHUNK:
            return None
        packed = pack(work)
        causal = is_causal(work, packed)
        if causal and work.logit_tokens == work.rows and np.all(work.new_tokens == 1):
            work = Work.of(work.key_tokens - 1, np.ones(work.rows))
        elif self._forward.planner.name not in SPLIT:
            return None
        room = _room(work, causal, tables.page_tokens)
        if not causal and len(packed.opens) + room.rows > KEYS_OF_A_QUERY * room.tokens:
            return None
        padded, pages = _padded(work, tables, room, self._forward.cache.shape.pages - 1)

        def inputs() -> Inputs:
            return self._forward.inputs(padded, pages, tokens, room.tokens, room)

        if room not in self._graphs:
            self._graphs[room] = self._captured(inputs(), self._logits[: room.logits])
        held = self._graphs[room]

        def run() -> torch.Tensor:
            held.inputs.load(inputs())
            held.graph.replay()
            return self._logits[: work.logit_tokens]

        return run

    def _captured(self, inputs: Inputs, logits: torch.Tensor) -> Captured:
        def run() -> torch.Tensor:
            return logits.copy_(self._forward.run(inputs))

        graph, _ = self._capture(run, run)
        return Captured(graph, inputs)


def _room(work: Work, causal: bool, page_tokens: int) -> PackedRoom:
    return PackedRoom(
        rows=captured_size(work.rows),
        tokens=captured_size(work.batched_tokens),
        logits=captured_size(work.logit_tokens),
        queries=power_of_two(int(work.new_tokens.max())),
        keys=power_of_two(-(-int(work.key_tokens.max()) // page_tokens)) * page_tokens,
        causal=causal,
    )


def _padded(work: Work, tables: PageTables, room: PackedRoom, page: int) -> tuple[Work, PageTables]:
    """Return the pass with rows of padding behind its own; each has a padding token as long as there are any.

    All of them write to `page`, which belongs to no row.
    """
    missing = room.rows - work.rows
    alone = np.arange(missing) < room.tokens - work.batched_tokens
    context, chunk = np.pad(work.context, (0, missing)), np.concatenate([work.chunk, alone])
    padded = Work.of(context, chunk, work.node_row, work.node_parent, work.node_cached)
    more = np.full((missing, tables.pages.shape[1]), -1, dtype=np.int64)
    more[:, 0] = page
    return padded, PageTables(np.concatenate([tables.pages, more]), tables.page_tokens)
