"""Resampling of a recorded trace by the moving-block bootstrap (Kuensch 1989).

Blocks of equal length begin anywhere in the recording, may overlap and may be drawn more than once. They are laid end
to end until they fill its span. A block keeps its bursts, lengths, classes and objectives.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from specsim.errors import SpecsimError
from specsim.rng import stream_keys, uniforms
from specsim.workload.trace import Floats, Ints, Trace

MOST_BLOCKS = 100_000


def resample(trace: Trace, block_s: float, *, seed: int, requests: int | None = None) -> Trace:
    """Return a trace of the same span whose blocks of `block_s` seconds are drawn from `trace`, rows numbered anew.

    Block i depends only on (seed, i), so a shorter trace is the beginning of a longer one. If the span holds fewer than
    `requests`, blocks are added after it.

    Raises
    ------
    SpecsimError
        When a block is not shorter than the trace, blocks are too many, or the trace holds fewer than `requests`.
    """
    span_s = float(trace.arrival_s[-1])
    if span_s == 0:
        raise SpecsimError(f"trace.resample={block_s:g}: trace {trace.source.name!r} has no span to draw blocks from")
    least_s = span_s / MOST_BLOCKS
    if not least_s <= block_s < span_s:
        raise SpecsimError(
            f"trace.resample={block_s:g}: expected seconds of at least {least_s:g} and below {span_s:g}, "
            f"the span of trace {trace.source.name!r}"
        )
    blocks, wanted = ceil(span_s / block_s), 1 if requests is None else len(trace.head(requests))
    rows, arrival_s, block = _drawn(trace, block_s, blocks, seed)
    inside = int(np.searchsorted(arrival_s, span_s, side="right"))
    while inside < wanted:
        blocks *= 2
        rows, arrival_s, block = _drawn(trace, block_s, blocks, seed)
        inside = min(len(rows), wanted)
    return trace.redrawn(rows[:inside], arrival_s[:inside], block[:inside])


def _drawn(trace: Trace, block_s: float, blocks: int, seed: int) -> tuple[Ints, Floats, Ints]:
    """Return rows of the trace, their rising arrivals in seconds since the first block's beginning, and their block."""
    block = np.arange(blocks)
    start_s = uniforms(stream_keys(seed, "trace_block", block)) * (trace.arrival_s[-1] - block_s)
    first = np.searchsorted(trace.arrival_s, start_s, side="left")
    size = np.searchsorted(trace.arrival_s, start_s + block_s, side="left") - first
    place = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
    rows = np.repeat(first, size) + place
    arrival_s = trace.arrival_s[rows] + np.repeat(block * block_s - start_s, size)
    # Rounding may put an arrival before the one that it follows.
    return rows, np.maximum.accumulate(arrival_s) if len(rows) else arrival_s, np.repeat(block, size)
