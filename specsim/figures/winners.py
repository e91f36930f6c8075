"""A map of which scheduler is best where: a panel per value of a third setting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.patches import Patch, Rectangle

from specsim.figures.style import GREY, WIDE_IN, colours, new_figure, style
from specsim.figures.sweep_panels import is_share, named, told

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

CELL_IN, AROUND_IN = 0.42, 1.25
UNDECIDED: Any = {"facecolor": "white", "hatch": "////"}


def winner_map(found: DataFrame, measure: str, x: str, y: str, panel: str) -> Figure:
    """Return a cell for each `x` and `y`: the winner's colour and mean, and its lead over the second.

    A cell is hatched where the paired seeds do not decide between the two.

    Parameters
    ----------
    found : rows of `specsim.results.winners.winners`, by `x`, `y` and `panel`.
    """
    columns, rows = sorted(found[x].unique()), sorted(found[y].unique(), reverse=True)
    parts = sorted(found[panel].unique())
    names = sorted(found["winner"].unique())
    colour = colours(names)
    with style():
        figure = new_figure(AROUND_IN + CELL_IN * len(rows), WIDE_IN)
        grid = figure.subplots(1, len(parts), sharey=True, squeeze=False).ravel()
        for axes, part in zip(grid, parts, strict=True):
            for cell in found[found[panel] == part].to_dict("records"):
                _cell(axes, columns.index(cell[x]), rows.index(cell[y]), cell, colour, share=is_share(measure))
            axes.set_title(told(panel, part))
            axes.set_xticks(range(len(columns)), [f"{each:g}" for each in columns])
            axes.set_yticks(range(len(rows)), [f"{each:g}" for each in rows])
            axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
            axes.tick_params(length=0)
            axes.grid(visible=False)
            axes.set_xlabel(named(x))
        grid[0].set_ylabel(named(y))
        handles = [Patch(facecolor=colour[name], label=name) for name in names]
        if not found["decided"].all():
            handles.append(Patch(edgecolor=GREY, linewidth=0.5, label="undecided by the seeds", **UNDECIDED))
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), handlelength=1.4)
        figure.supxlabel(f"In a cell: {named(measure)} of the best, and its lead over the second.", fontsize=7)
        return figure


def _cell(axes: Axes, column: int, row: int, cell: dict[str, Any], colour: dict[str, str], *, share: bool) -> None:
    ink = colour[cell["winner"]]
    look: Any = {"facecolor": ink, "edgecolor": "white"} if cell["decided"] else {**UNDECIDED, "edgecolor": ink}
    axes.add_patch(Rectangle((column - 0.47, row - 0.46), 0.94, 0.92, linewidth=0.6, **look))
    scale = 100 if share else 1
    said = f"{scale * cell['mean']:.0f}\n+{scale * cell['lead']:.1f}"
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.9}
    axes.text(column, row, said, ha="center", va="center", fontsize=7, bbox=box)
