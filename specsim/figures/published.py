"""A published figure again: theirs as points, ours as lines with their 95% intervals over seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.lines import Line2D

from specsim.figures.style import GREY, WIDE_IN, colours, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

MARKERS = "osD^vP"
COLUMNS = 3
PANEL_IN, AROUND_IN = 1.45, 0.75
BAND = 0.25


def published(rows: DataFrame, *, title: str, x_label: str, y_label: str) -> Figure:
    """Return a panel for each system: its published points, our line and its band, over the other systems' lines.

    Parameters
    ----------
    rows : with the columns ``system``, ``x``, ``theirs``, ``ours`` and ``ours_half_width``.
    """
    systems = list(rows["system"].unique())
    columns = min(COLUMNS, len(systems)) if len(systems) != 4 else 2
    down = -(-len(systems) // columns)
    with style():
        figure = new_figure(AROUND_IN + PANEL_IN * down, WIDE_IN)
        panels = figure.subplots(down, columns, sharex=True, sharey=True, squeeze=False).ravel()
        colour = colours(systems)
        for axes, system in zip(panels, systems, strict=False):
            for other in systems:
                mine = rows[rows["system"] == other].sort_values("x")
                if other != system:
                    axes.plot(mine["x"], mine["ours"], color=GREY, alpha=0.3, linewidth=0.6)
                    continue
                low, high = mine["ours"] - mine["ours_half_width"], mine["ours"] + mine["ours_half_width"]
                axes.fill_between(mine["x"], low, high, color=colour[system], alpha=BAND, linewidth=0)
                axes.plot(mine["x"], mine["ours"], color=colour[system])
                look = {"marker": MARKERS[systems.index(system) % len(MARKERS)], "markersize": 3.5}
                axes.plot(mine["x"], mine["theirs"], color=colour[system], linestyle="none", **look)
            axes.set_title(system)
            axes.set_ylim(bottom=0)
        for spare in panels[len(systems) :]:
            spare.remove()
        _legend(figure, title)
        figure.supxlabel(x_label, fontsize=8)
        figure.supylabel(y_label, fontsize=8)
        return figure


def _legend(figure: Figure, title: str) -> None:
    handles = [
        Line2D([], [], color="black", linestyle="none", marker="o", markersize=3.5),
        Line2D([], [], color="black"),
        Line2D([], [], color="black", alpha=BAND, linewidth=5),
        Line2D([], [], color=GREY, alpha=0.3, linewidth=0.6),
    ]
    labels = ["published", "specsim, mean of the seeds", "its 95% interval", "specsim, the other systems"]
    figure.legend(handles, labels, title=title, loc="outside upper center", ncols=4)
