"""Timelines of a run, and its overview."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from specsim.errors import SpecsimError
from specsim.figures.style import (
    GREY,
    MARKER_POINTS,
    MARKERS,
    PALETTE,
    WIDE_IN,
    Marks,
    caption_below,
    mark,
    marks_of,
    name_ends,
    new_figure,
    style,
    table_said,
)
from specsim.figures.sweep import ATTAINMENT, GOODPUT, caption_of, in_units, is_share, named, word
from specsim.metrics.requests import VERIFY_PASS
from specsim.metrics.seeds import over_seeds
from specsim.metrics.sweep_table import ALL, CLASS, SweepAxes, rows_with, values_of, without_failures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from specsim.core.request import Floats


PANEL_IN = 2.1


def overview(table: DataFrame, axes: SweepAxes) -> Figure:
    """Return two panels against `axes.x`: SLO attainment in % and SLO goodput, means over seeds with 95% intervals.

    Marks and caption are those of `specsim.figures.sweep.curves`.

    Parameters
    ----------
    table : rows of `Sweep.table` that differ in nothing but the class, the seed, `axes.x` and `axes.line`.

    Raises
    ------
    SpecsimError
        When no number differs, or there are more lines than can be named.
    """
    every, table = table, without_failures(table)
    lines = values_of(table, axes.line)
    if axes.x is None:
        raise SpecsimError("overview: the runs differ in no number; expected several rates or scales")
    if len(lines) > len(PALETTE):
        raise SpecsimError(
            f"overview: {len(lines)} lines of {axes.line}; expected {len(PALETTE)} or fewer: select some"
        )
    whole, marks = table[table[CLASS] == ALL], marks_of(table, axes)
    by = [axes.line, axes.x]
    means = {measure: in_units(over_seeds(whole, measure, by), measure) for measure in (ATTAINMENT, GOODPUT)}
    with style():
        figure = new_figure(PANEL_IN + 0.62, WIDE_IN)
        for panel, measure in zip(figure.subplots(1, 2), means, strict=True):
            _panel(panel, means[measure], axes, marks, measure)
        caption_below(figure, [*caption_of(list(means.values()), axes), *table_said(every)])
        return figure


def _panel(panel: Axes, means: DataFrame, axes: SweepAxes, marks: Marks, measure: str) -> None:
    assert axes.x is not None
    ends, ink = {}, {}
    for place, line in enumerate(values_of(means, axes.line)):
        rows = rows_with(means, axes.line, line).sort_values(axes.x)
        look: dict[str, Any] = {"color": PALETTE[place], "marker": MARKERS[place]}
        look |= {"markersize": MARKER_POINTS, "clip_on": False}
        middle, reach = rows["mean"], [rows["below"], rows["above"]]
        panel.errorbar(rows[axes.x], middle, reach, elinewidth=0.8, capsize=1.5, **look)
        points = zip(rows[axes.x], middle, strict=True)
        mark(panel, points, [marks[line, x] for x in rows[axes.x]], **look)
        ends[word(line)], ink[word(line)] = (float(rows[axes.x].iloc[-1]), float(middle.iloc[-1])), PALETTE[place]
    high = float((means["mean"] + means["above"]).max())
    panel.set_ylim(0, 104 if is_share(measure) else 1.05 * (high if high > 0 and not isnan(high) else 1.0))
    at = values_of(means, axes.x)
    panel.set_xticks(at, [f"{each:g}" for each in at])
    panel.set_xlabel(named(axes.x))
    panel.set_ylabel(named(measure))
    name_ends(panel, ends, ink, PANEL_IN)


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
    """Return the mean of a column per span, NaN for spans in which no pass starts."""
    start_s = verify["start_s"].to_numpy(dtype=np.float64)
    seconds = verify["seconds"].to_numpy(dtype=np.float64)
    values = verify[name].to_numpy(dtype=np.float64)
    weight = np.histogram(start_s, edges, weights=seconds)[0]
    total = np.histogram(start_s, edges, weights=seconds * values)[0]
    mean = np.full(len(weight), np.nan)
    np.divide(total, weight, out=mean, where=weight > 0)
    return mean


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
