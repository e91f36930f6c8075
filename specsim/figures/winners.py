"""A map of which scheduler is best where: a panel per value of a third setting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.patches import Patch, Rectangle

from specsim.figures.load_marks import GLYPHS, table_said
from specsim.figures.style import GREY, WIDE_IN, caption_below, colours, new_figure, style
from specsim.figures.sweep_panels import is_share, named, told
from specsim.results.sweep_table import SEED, without_failures
from specsim.results.verdicts import worst

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

CELL_IN, AROUND_IN = 0.42, 1.12
UNDECIDED: Any = {"facecolor": "white", "hatch": "////"}
TIE = "#cccccc"


def winner_map(found: DataFrame, table: DataFrame, measure: str, x: str, y: str, panel: str) -> Figure:
    """Return a cell for each `x` and `y`: the winner's colour and mean, and its lead over the second.

    A cell is hatched where the paired seeds do not decide between the two, and grey where several are best. The mark
    behind a mean is that of the winner's and the second's load, as in `specsim.figures.sweep.curves`.

    Parameters
    ----------
    found : rows of `specsim.results.winners.winners`, by `x`, `y` and `panel`. table : rows of the `Sweep.table` that
        they are of; the caption counts its failed runs.
    """
    columns, rows = sorted(found[x].unique()), sorted(found[y].unique(), reverse=True)
    parts = sorted(found[panel].unique())
    ahead = found[found["tied"] <= 1]
    names = sorted(ahead["winner"].unique())
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
        if len(ahead) < len(found):
            handles.append(Patch(facecolor=TIE, label="tie: several are best"))
        if not ahead["decided"].all():
            handles.append(Patch(edgecolor=GREY, linewidth=0.5, label="undecided by the seeds", **UNDECIDED))
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), handlelength=1.4)
        caption_below(figure, [_cells_said(table, measure), *table_said(table)])
        return figure


def _cells_said(table: DataFrame, measure: str) -> str:
    seeds = without_failures(table)[SEED].nunique()
    over = "of one seed" if seeds == 1 else f"mean over {seeds} seeds"
    return f"In a cell: {named(measure)} of the best, {over}, and its lead over the second."


def _cell(axes: Axes, column: int, row: int, cell: dict[str, Any], colour: dict[str, str], *, share: bool) -> None:
    if cell["tied"] > 1:
        look: Any = {"facecolor": TIE, "edgecolor": "white"}
    elif cell["decided"]:
        look = {"facecolor": colour[cell["winner"]], "edgecolor": "white"}
    else:
        look = {**UNDECIDED, "edgecolor": colour[cell["winner"]]}
    axes.add_patch(Rectangle((column - 0.47, row - 0.46), 0.94, 0.92, linewidth=0.6, **look))
    scale = 100 if share else 1
    glyph = GLYPHS[worst((cell["winner_load"], cell["second_load"]))]
    lead = f"+{scale * cell['lead']:.1f}" if cell["tied"] <= 1 else "tie"
    said = f"{scale * cell['mean']:.0f} {glyph}".rstrip() + f"\n{lead}"
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.9}
    axes.text(column, row, said, ha="center", va="center", fontsize=7, bbox=box)
