"""Attainment and goodput of all classes side by side, each line named at its end."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError
from specsim.figures.line_ends import name_ends
from specsim.figures.style import MARKERS, PALETTE, WIDE_IN, new_figure, style
from specsim.figures.sweep_panels import ATTAINMENT, GOODPUT, named, word
from specsim.results.seeds import over_seeds
from specsim.results.sweep_axes import SweepAxes
from specsim.results.sweep_table import ALL, CLASS, rows_with, values_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

PANEL_IN = 2.1


def overview(table: DataFrame, axes: SweepAxes) -> Figure:
    """Return two panels against `axes.x`: SLO attainment in % and SLO goodput, means over seeds with 95% intervals.

    Parameters
    ----------
    table : rows of `Sweep.table` that differ in nothing but the class, the seed, `axes.x` and `axes.line`.

    Raises
    ------
    SpecsimError
        When no number differs, or there are more lines than can be named.
    """
    lines = values_of(table, axes.line)
    if axes.x is None:
        raise SpecsimError("overview: the runs differ in no number; expected several rates or scales")
    if len(lines) > len(PALETTE):
        raise SpecsimError(
            f"overview: {len(lines)} lines of {axes.line}; expected {len(PALETTE)} or fewer: select some"
        )
    whole = table[table[CLASS] == ALL]
    with style():
        figure = new_figure(PANEL_IN + 0.6, WIDE_IN)
        for panel, measure, scale in zip(figure.subplots(1, 2), (ATTAINMENT, GOODPUT), (100, 1), strict=True):
            _panel(panel, whole, axes, measure, scale)
        return figure


def _panel(panel: Axes, table: DataFrame, axes: SweepAxes, measure: str, scale: float) -> None:
    assert axes.x is not None
    means = over_seeds(table, measure, [axes.line, axes.x])
    ends, ink = {}, {}
    for place, line in enumerate(values_of(table, axes.line)):
        rows = rows_with(means, axes.line, line).sort_values(axes.x)
        look: dict[str, Any] = {"color": PALETTE[place], "marker": MARKERS[place], "markersize": 3.5}
        middle, reach = scale * rows["mean"], scale * rows["half_width"].fillna(0.0)
        panel.errorbar(rows[axes.x], middle, reach, elinewidth=0.8, capsize=1.5, **look)
        ends[word(line)], ink[word(line)] = (float(rows[axes.x].iloc[-1]), float(middle.iloc[-1])), PALETTE[place]
    high = float((scale * (means["mean"] + means["half_width"].fillna(0.0))).max())
    panel.set_ylim(0, 104 if scale == 100 else 1.05 * (high if high > 0 and not isnan(high) else 1.0))
    at = values_of(table, axes.x)
    panel.set_xticks(at, [f"{each:g}" for each in at])
    panel.set_xlabel(named(axes.x))
    panel.set_ylabel(named(measure))
    name_ends(panel, ends, ink, PANEL_IN)
