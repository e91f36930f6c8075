"""The timeline of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import MaxNLocator

from specsim.figures.style import (
    GREY,
    PALETTE,
    caption_below,
    new_figure,
    style,
)
from specsim.metrics.requests import VERIFY_PASS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from specsim.core.request import Floats


MOST_SPANS = 240


def timeline(passes: DataFrame, said: Sequence[str] = ()) -> Figure:
    """Return five panels over time: requests in a pass, waiting requests, tokens per pass, depth, emitted tokens/s.

    Time is divided into at most `MOST_SPANS` equal spans. Each value is the mean of the target passes that start in a
    span, weighted by their seconds. `said` are sentences of the caption.
    """
    edges, column = spans(passes)
    with style():
        figure = new_figure(6.4)
        batch, waiting, tokens, depth, rate = figure.subplots(5, 1, sharex=True)
        _line(batch, edges, column["requests"], PALETTE[0], "")
        batch.set_ylabel("Requests\nin the pass")
        _line(waiting, edges, column["queued"], PALETTE[4], "")
        waiting.set_ylabel("Requests\nwaiting")
        _stack(tokens, edges, column)
        tokens.set_ylabel("Tokens per\ntarget pass")
        _line(depth, edges, column["depth"], PALETTE[2], "")
        depth.set_ylabel("Depth of trees\n(tokens)")
        _line(rate, edges, column["emitted_per_s"], GREY, "")
        rate.set_ylabel("Emitted\n(tokens/s)")
        rate.set_xlabel("Simulated time (s)")
        depth.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        tokens.legend(loc="lower left", bbox_to_anchor=(0.0, 0.97), ncols=3, borderaxespad=0.2)
        for axes in (batch, waiting, tokens, depth, rate):
            axes.set_ylim(0, 1.08 * axes.dataLim.y1 or 1)
            axes.set_xlim(edges[0], edges[-1])
        figure.align_ylabels()
        if said:
            caption_below(figure, said)
        return figure


def has_timeline(passes: DataFrame) -> bool:
    """Return whether any pass of the target ran."""
    return bool((passes["kind"] == VERIFY_PASS).any())


AVERAGED = ("requests", "queued", "batched_tokens", "prefill_tokens", "draft_tokens", "depth", "context_tokens")


def spans(passes: DataFrame) -> tuple[Floats, dict[str, Floats]]:
    """Return the edges of a timeline's spans, (S + 1,) seconds, and by column the mean of each, NaN without a pass.

    A span in which no pass starts, while one runs, has the value of the last that started.

    ``emitted_per_s`` is a rate in tokens/s.
    """
    verify = passes[passes["kind"] == VERIFY_PASS]
    edges = _edges(verify)
    emitted = np.histogram(verify["start_s"], edges, weights=verify["emitted_tokens"])[0]
    column = {name: _mean_per_span(verify, name, edges) for name in AVERAGED}
    return edges, {**column, "emitted_per_s": emitted / np.diff(edges)}


def _edges(verify: DataFrame) -> Floats:
    start_s = verify["start_s"].to_numpy(dtype=np.float64)
    end_s = float((start_s + verify["seconds"].to_numpy()).max())
    # At least four passes per span on average; with fewer, some spans would have none.
    spans = int(np.clip(len(verify) // 4, 1, MOST_SPANS))
    return np.linspace(start_s.min(), end_s, spans + 1)


def _mean_per_span(verify: DataFrame, name: str, edges: Floats) -> Floats:
    """Return the mean of a column per span, NaN for spans in which no pass starts or runs."""
    verify = verify.sort_values("start_s", kind="stable")
    start_s = verify["start_s"].to_numpy(dtype=np.float64)
    seconds = verify["seconds"].to_numpy(dtype=np.float64)
    values = verify[name].to_numpy(dtype=np.float64)
    weight = np.histogram(start_s, edges, weights=seconds)[0]
    total = np.histogram(start_s, edges, weights=seconds * values)[0]
    mean = np.full(len(weight), np.nan)
    np.divide(total, weight, out=mean, where=weight > 0)
    started = np.searchsorted(start_s, edges[:-1], side="right") - 1
    runs_on = np.maximum.accumulate(start_s + seconds)[np.maximum(started, 0)] > edges[:-1]
    return np.where(np.isnan(mean) & runs_on & (started >= 0), values[started], mean)


def _line(axes: Axes, edges: Floats, values: Floats, colour: str, label: str, dashes: str = "-") -> None:
    # Unclipped, so that a line at zero, on the frame, is visible: the depth without speculation.
    axes.stairs(
        values,
        edges,
        baseline=None,
        color=colour,
        label=label or None,
        linestyle=dashes,
        linewidth=1.0,
        clip_on=False,
        zorder=3,
    )


def _stack(axes: Axes, edges: Floats, column: dict[str, Floats]) -> None:
    prefill, draft = column["prefill_tokens"], column["draft_tokens"]
    # Tokens of neither prompts nor trees are the pending tokens of decoding requests, one each.
    roots = column["batched_tokens"] - prefill - draft
    floor = np.zeros(len(prefill))
    for values, label, colour in (
        (roots, "decode", PALETTE[0]),
        (draft, "draft tokens verified", PALETTE[1]),
        (prefill, "prefill", PALETTE[5]),
    ):
        if not np.nansum(values):
            continue
        top = floor + np.nan_to_num(values)
        axes.stairs(top, edges, baseline=floor, fill=True, color=colour, label=label, linewidth=0)
        floor = top
