"""Comparison of replayed passes with the same passes launched one by one, before anything is timed with them."""

from __future__ import annotations

import numpy as np

from profiler.passes.attention_check import TOLERANCE
from profiler.passes.forward import PackedForward
from profiler.passes.packing import Work
from profiler.passes.pages import deal
from profiler.passes.replays import Replays
from specsim.errors import SpecsimError, first_line


def check_replays(forward: PackedForward, replays: Replays) -> None:
    """Replay decodes and verifications of chains over other rows than they were captured with, and compare.

    Roundings of a layer add up like steps of a random walk; logits of a wrong row differ by as much as they are.

    Raises
    ------
    SpecsimError
        When a graph cannot be captured, or its logits differ.
    """
    allowed = TOLERANCE[forward.dtype] * (2 * forward.shape.layers) ** 0.5
    for seed, (rows, queries) in enumerate(((3, 1), (4, 1), (3, 3), (4, 3))):
        work, rng = chains(rows, queries), np.random.default_rng(seed)
        tables = deal(work, forward.cache.shape, rng)
        tokens = rng.integers(0, forward.shape.vocab, work.batched_tokens)
        plain = forward.run(forward.inputs(work, tables, tokens)).double()
        try:
            run = replays.prepared(work, tables, tokens)
            assert run is not None, "a pass whose shape comes again is replayed"
            error = float(((run().double() - plain).norm(dim=-1) / plain.norm(dim=-1)).max())
        except RuntimeError as refused:
            raise SpecsimError(f"graphs: {forward.shape.name} cannot be captured: {first_line(refused)}") from None
        if not error <= allowed:
            raise SpecsimError(f"graphs: a replay of {forward.shape.name} errs by {error:.2g}; expected {allowed:.2g}")


def chains(rows: int, queries: int) -> Work:
    """Return a pass of rows of different contexts, each with one token and a chain behind it."""
    parents = [place - 1 for _ in range(rows) for place in range(queries - 1)]
    first = np.repeat(np.arange(rows) * (queries - 1), queries - 1)
    node_parent = np.where(np.array(parents, dtype=np.int64) < 0, -1, first + parents)
    return Work.of(np.arange(rows) * 4 + 17, np.ones(rows), np.repeat(np.arange(rows), queries - 1), node_parent)
