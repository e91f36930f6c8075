"""A published figure again: theirs as points, ours as lines with their 95% intervals over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.lines import Line2D

from specsim.figures.style import GREY, MARKERS, PALETTE, WIDE_IN, colours, new_figure, style
from studies.reproduction.comparison import means

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from studies.reproduction.comparison import ComparedFigure

COLUMNS = 3
PANEL_IN, AROUND_IN = 1.45, 0.75
BAND = 0.25
NAMED_IN = 3.2
MOST_SLANTED = 8
"""Names of points that fit beside each other when they are slanted; more stand upright."""
SPREAD = 0.7
"""The share of the distance between two names over which their lines are spread."""
MOST_CHARACTERS = 90
"""Of all names together, that stand beside each other without being turned."""


def drawn(one: ComparedFigure) -> Figure:
    """Return theirs and ours: a panel for each line along an axis of numbers, one panel along an axis of names."""
    axis, rows = one.experiment.axis, means(one.figure, one.chosen)
    with style():
        if axis.numeric:
            return _by_number(rows, one.figure.title, axis.label, one.figure.label)
        return _by_name(rows, one.figure.title, axis.label, one.figure.label, axis.names)


def _by_number(rows: DataFrame, title: str, x_label: str, y_label: str) -> Figure:
    """Return a panel for each line: its published points, our line and its band, over the other lines."""
    lines = list(rows["line"].unique())
    columns = min(COLUMNS, len(lines)) if len(lines) != 4 else 2
    down = -(-len(lines) // columns)
    figure = new_figure(AROUND_IN + PANEL_IN * down, WIDE_IN)
    panels = figure.subplots(down, columns, sharex=True, sharey=True, squeeze=False).ravel()
    colour = colours(lines)
    for axes, line in zip(panels, lines, strict=False):
        for other in lines:
            mine = rows[rows["line"] == other].sort_values("x")
            if other != line:
                axes.plot(mine["x"], mine["ours"], color=GREY, alpha=0.3, linewidth=0.6)
                continue
            low, high = mine["ours"] - mine["ours_half_width"], mine["ours"] + mine["ours_half_width"]
            axes.fill_between(mine["x"], low, high, color=colour[line], alpha=BAND, linewidth=0)
            axes.plot(mine["x"], mine["ours"], color=colour[line])
            look = {"marker": MARKERS[lines.index(line) % len(MARKERS)], "markersize": 3.5}
            axes.plot(mine["x"], mine["theirs"], color=colour[line], linestyle="none", **look)
        axes.set_title(line)
        axes.set_ylim(bottom=0)
    for spare in panels[len(lines) :]:
        spare.remove()
    _legend(figure, title, published=bool(rows["theirs"].notna().any()))
    figure.supxlabel(x_label, fontsize=8)
    figure.supylabel(y_label, fontsize=8)
    return figure


def _by_name(rows: DataFrame, title: str, x_label: str, y_label: str, names: Sequence[str]) -> Figure:
    """Return one panel: at each name a dot with its interval for each line, and a bar where theirs is published."""
    lines = list(rows["line"].unique())
    figure = new_figure(NAMED_IN, WIDE_IN)
    axes = figure.subplots()
    step = SPREAD / max(len(lines), 1)
    for place, (line, colour) in enumerate(colours(lines).items()):
        mine = rows[rows["line"] == line].sort_values("x")
        x = mine["x"] + step * (place - (len(lines) - 1) / 2)
        marker = MARKERS[place % len(MARKERS)]
        look: Any = {"marker": marker, "markersize": 4, "linestyle": "none", "color": colour}
        if place >= len(PALETTE):
            # Colours and markers begin again: a line of the second round is hollow.
            look["markerfacecolor"] = "white"
        axes.errorbar(x, mine["ours"], mine["ours_half_width"], elinewidth=1, label=line, **look)
        axes.plot(x, mine["theirs"], color="black", linestyle="none", marker="_", markersize=11, markeredgewidth=1.2)
    if rows["theirs"].notna().any():
        axes.plot([], [], color="black", linestyle="none", marker="_", markersize=11, label="published")
    axes.set_xticks(range(len(names)), names)
    if len(names) > MOST_SLANTED:
        axes.tick_params(axis="x", rotation=90)
    elif sum(map(len, names)) > MOST_CHARACTERS:
        axes.tick_params(axis="x", rotation=30)
    axes.grid(visible=False, axis="x")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    figure.legend(title=f"{title}; specsim with 95% intervals over seeds", loc="outside upper center", ncols=4)
    return figure


def _legend(figure: Figure, title: str, *, published: bool) -> None:
    handles = {
        "specsim, mean of the seeds": Line2D([], [], color="black"),
        "its 95% interval": Line2D([], [], color="black", alpha=BAND, linewidth=5),
        "specsim, the other lines": Line2D([], [], color=GREY, alpha=0.3, linewidth=0.6),
    }
    if published:
        dots = Line2D([], [], color="black", linestyle="none", marker="o", markersize=3.5)
        handles = {"published": dots, **handles}
    figure.legend(list(handles.values()), list(handles), title=title, loc="outside upper center", ncols=4)
