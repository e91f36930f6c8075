"""Comparison of replayed passes with the same passes launched one by one, before anything is timed with them."""

from __future__ import annotations

import numpy as np

from profiler.passes.attention_check import TOLERANCE
from profiler.passes.forward import PackedForward
from profiler.passes.memory import is_out_of_memory
from profiler.passes.packing import Work
from profiler.passes.pages import CacheShape, deal
from profiler.passes.replays import Replays
from specsim.errors import SpecsimError, first_line

SHORT, MOST = 17, 2048
"""Tokens of the short rows, and the most of the long one."""


def check_replays(forward: PackedForward, replays: Replays) -> None:
    """Replay decodes and levels of chains over other rows than they were captured with, and compare.

    Roundings of a layer add up like steps of a random walk; logits of a wrong row differ by as much as they are.

    Raises
    ------
    SpecsimError
        When a graph cannot be captured, or its logits differ.
    """
    allowed = TOLERANCE[forward.dtype] * (2 * forward.shape.layers) ** 0.5
    for seed, work in enumerate(checked_works(forward.cache.shape)):
        rng = np.random.default_rng(seed)
        tables = deal(work, forward.cache.shape, rng)
        tokens = rng.integers(0, forward.shape.vocab, work.batched_tokens)
        plain = forward.run(forward.inputs(work, tables, tokens)).double()
        try:
            run = replays.prepared(work, tables, tokens)
            assert run is not None, "a pass whose shape comes again is replayed"
            error = float(((run().double() - plain).norm(dim=-1) / plain.norm(dim=-1)).max())
        except RuntimeError as refused:
            if is_out_of_memory(refused):
                raise
            raise SpecsimError(f"graphs: {forward.shape.name} cannot be captured: {first_line(refused)}") from None
        if not error <= allowed:
            raise SpecsimError(f"graphs: a replay of {forward.shape.name} errs by {error:.2g}; expected {allowed:.2g}")


def checked_works(shape: CacheShape) -> list[Work]:
    """Return the passes of the comparison: each graph is captured over three rows and replayed over four.

    Of the second the last row is long, at first just over half of what the graph has room for, then nearly all.
    """
    pages, fewest = 2, shape.pages - 8
    while 2 * pages <= min(fewest, MOST // shape.page_tokens):
        pages *= 2
    room = pages * shape.page_tokens
    works = [decodes(3), decodes(4), levels(3), levels(4)]
    if pages > 2:
        works += [decodes(3, room // 2 + 1), decodes(4, room - 2)]
    return works


def decodes(rows: int, last: int | None = None) -> Work:
    """Return a decode of rows of different contexts, the last of them so long if it is given."""
    context = np.arange(rows) * 4 + SHORT
    if last is not None:
        context[-1] = last
    return Work.of(context, np.ones(rows))


def levels(rows: int) -> Work:
    """Return a level of chains: behind a node that is cached, one node of each row."""
    context, place = np.arange(rows) * 4 + SHORT, np.tile([0, 1], rows)
    parent = np.where(place == 0, -1, np.arange(2 * rows) - 1)
    return Work.of(context, np.zeros(rows), np.repeat(np.arange(rows), 2), parent, place == 0)
