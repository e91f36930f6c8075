"""Attainment and goodput of many runs, a row per run: groups of bars would be too thin to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.figures.style import GREY, amount, colours, hatches, legend_above, legend_name, new_figure, style
from specsim.replica.request import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW_IN = 0.19
AROUND_ROWS_IN = 0.95
MARKERS = ("o", "s", "^", "D", "v", "P")


def rows_of_runs(labels: Sequence[str], blocks: Sequence[Mapping[str, Any]], names: Sequence[str], what: str) -> Figure:
    """Return two panels with a row per run, the first on top: attainment in %, and goodput in tokens/s by class.

    Parameters
    ----------
    labels, blocks : the name of each run, and the `specsim` block of its metrics. names : the classes.
    what : the setting that the labels are of.
    """
    with style():
        figure = new_figure(AROUND_ROWS_IN + ROW_IN * len(labels))
        left, right = figure.subplots(1, 2, sharey=True)
        _attainment(left, blocks, names)
        _goodput(right, blocks, names)
        left.set_yticks(range(len(labels)), labels)
        left.set_ylim(len(labels) - 0.4, -0.6)
        left.set_ylabel(what)
        for axes in (left, right):
            axes.tick_params(axis="y", length=0)
            axes.grid(axis="y", visible=False)
        legend_above(figure, left)
        return figure


def _attainment(axes: Axes, blocks: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Draw a bar for all requests and a mark for each class; marks of equal value are moved apart."""
    rows = range(len(blocks))
    colour = colours(names)
    step = 0.5 / max(len(names) - 1, 1)
    for place, name in enumerate(names):
        held = [
            (row, block["classes"][name]["slo_attainment"])
            for row, block in enumerate(blocks)
            if name in block["classes"]
        ]
        shown = [(100 * share, row - 0.25 + place * step) for row, share in held if share is not None]
        axes.plot(
            *zip(*shown, strict=True) if shown else ([], []),
            marker=MARKERS[place % len(MARKERS)],
            color=colour[name],
            linestyle="",
            markersize=3.2,
            label=legend_name(name),
            clip_on=False,
        )
    shares = [100 * (block["slo_attainment"] or 0.0) for block in blocks]
    axes.barh(rows, shares, height=0.72, color=GREY, alpha=0.3, linewidth=0, label="all")
    axes.set_xlabel("SLO attainment (%)")
    axes.set_xlim(0, 100)


def stacked_goodput(blocks: Sequence[Mapping[str, Any]], names: Sequence[str]) -> tuple[Floats, Floats]:
    """Return goodput in tokens/s by class and run, (C, R), and its cumulative sums over classes, (C + 1, R)."""
    key = "slo_goodput_tokens_per_s"
    rates = np.array([[block["classes"].get(name, {}).get(key) or 0.0 for name in names] for block in blocks]).T
    return rates, np.vstack((np.zeros(len(blocks)), rates.cumsum(axis=0)))


def _goodput(axes: Axes, blocks: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    rates, starts = stacked_goodput(blocks, names)
    colour, hatch = colours(names), hatches(names)
    for name, rate, start in zip(names, rates, starts[:-1], strict=True):
        axes.barh(
            range(len(blocks)),
            rate,
            height=0.72,
            left=start,
            color=colour[name],
            hatch=hatch[name],
            edgecolor="white",
            linewidth=0,
        )
    for row, total in enumerate(starts[-1]):
        axes.annotate(amount(total), (total, row), (2, 0), textcoords="offset points", va="center", fontsize=7)
    axes.set_xlabel("SLO goodput (tokens/s)")
    axes.margins(x=0.12)
    axes.set_xlim(left=0)
