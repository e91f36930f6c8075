"""Attainment and goodput of all classes side by side, each line named at its end."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError
from specsim.figures.line_ends import name_ends
from specsim.figures.load_marks import MARKER_POINTS, Marks, mark, marks_of, table_said
from specsim.figures.style import MARKERS, PALETTE, WIDE_IN, caption_below, new_figure, style
from specsim.figures.sweep_panels import ATTAINMENT, GOODPUT, caption_of, in_units, is_share, named, word
from specsim.results.seeds import over_seeds
from specsim.results.sweep_axes import SweepAxes
from specsim.results.sweep_table import ALL, CLASS, rows_with, values_of, without_failures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

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
