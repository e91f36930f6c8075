"""Figures for print: one column or two, lines named inside the axes, the caption a string beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from specsim.errors import SpecsimError, nearest
from specsim.figures.style import (
    CHARACTER_IN,
    GREY,
    MARKER_POINTS,
    MARKERS,
    PALETTE,
    WIDE_IN,
    Marks,
    mark,
    marks_of,
    name_ends,
    new_figure,
    style,
    table_said,
)
from specsim.figures.sweep import ATTAINMENT, GOODPUT, Panel, caption_of, is_share, named, panels_of, told
from specsim.metrics.sweep_table import SweepAxes, rows_with, values_of, without_failures, word

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame


COLUMN_IN, PANEL_IN, AROUND_IN = 3.35, 1.9, 0.75
"""Width of a column of a paper; height of a panel; width of what stands left of its axes, with the labels' offset."""
MOST_NAMED = 0.45
"""The largest share of a panel that names of lines take."""
WHOLE = {"all": "all classes", "worst": "worst class"}


class PaperFigure(NamedTuple):
    """A figure, and its caption: what its means are over, what its intervals cover, what its marks mean."""

    figure: Figure
    caption: str

    def save(self, file: str | Path) -> Path:
        """Write the figure, as PNG, PDF or SVG by the suffix, and return the file.

        Raises
        ------
        SpecsimError
            When the suffix is another, or the file cannot be written.
        """
        from specsim.figures.plots import save

        file = Path(file)
        (saved,) = save({file.stem: self.figure}, file.parent, [file.suffix.removeprefix(".")])
        return saved

    def _repr_png_(self) -> bytes:
        written = BytesIO()
        with style():
            self.figure.savefig(written, format="png")
        return written.getvalue()


def paper_figure(
    table: DataFrame,
    axes: SweepAxes,
    measures: Sequence[str] = (),
    *,
    against: Any = None,
    of: str = "all",
    names: Mapping[Any, str] | None = None,
    columns: int = 2,
) -> PaperFigure:
    """Return a panel a measure against `axes.x`: means over seeds with 95% intervals, up to six lines with their names.

    With `against` the lines are the differences of the others from it, paired by seed, with their intervals as bands.

    Parameters
    ----------
    table : rows of `Sweep.table` that differ in nothing but the class, the seed, `axes.x` and `axes.line`.
    measures : by default attainment and goodput; with `against` attainment. of : a class, ``"all"`` or ``"worst"``.
    names : labels of lines by their value. columns : 2: 7 inches, panels side by side; 1: 3.35 inches, panels stacked.

    Raises
    ------
    SpecsimError
        When no number differs, there are more lines than can be named, or an argument names nothing that is there.
    """
    measured = without_failures(table)
    lines = values_of(measured, axes.line)
    labels = {**{line: word(line) for line in lines}, **(names or {})}
    for line in names or ():
        if line not in lines:
            raise SpecsimError(f"figure: names={line}: no such line{nearest(str(line), map(word, lines))}")
    if axes.x is None:
        raise SpecsimError("figure: the runs differ in no number; expected several rates or scales")
    if len(lines) > len(PALETTE):
        raise SpecsimError(f"figure: {len(lines)} lines of {axes.line}; expected {len(PALETTE)} or fewer: select some")
    if columns not in (1, 2):
        raise SpecsimError(f"figure: columns={columns}: expected 1 or 2")
    measures = measures or ((ATTAINMENT,) if against is not None else (ATTAINMENT, GOODPUT))
    marks, chosen = marks_of(measured, axes, against), []
    for measure in measures:
        panels = {panel.title: panel for panel in panels_of(measured, axes, measure, against)}
        title = WHOLE.get(of, of)
        if title not in panels:
            raise SpecsimError(f"figure: of={of}: {measure} is of no such class{nearest(of, [*WHOLE, *panels])}")
        chosen.append(panels[title])
    down = len(measures) if columns == 1 else 1
    with style():
        figure = new_figure(0.25 + PANEL_IN * down, WIDE_IN if columns == 2 else COLUMN_IN)
        grid = figure.subplots(down, len(measures) // down, squeeze=False, sharex=columns == 1).ravel()
        around_in = AROUND_IN if against is None else AROUND_IN + 0.2
        width_in = figure.get_figwidth() * down / len(measures) - around_in
        for panel_axes, measure, panel in zip(grid, measures, chosen, strict=True):
            _draw(panel_axes, panel, axes, (labels, marks, against), measure)
            _make_room(panel_axes, [labels[line] for line in lines if against is None or line != against], width_in)
            panel_axes.set_xlabel(named(axes.x) if panel_axes.get_subplotspec().is_last_row() else "")
    said = [*caption_of([panel.means for panel in chosen], axes, against), *table_said(table)]
    return PaperFigure(figure, " ".join([*([] if of == "all" else [f"Requests of {of}."]), *said]))


def _draw(
    axes: Axes, panel: Panel, sweep: SweepAxes, shown: tuple[Mapping[Any, str], Marks, Any], measure: str
) -> None:
    """Draw the lines of a panel, its limits and the name of each line at its end."""
    assert sweep.x is not None
    (labels, marks, against), means = shown, panel.means
    ends, ink = {}, {}
    for place, (line, label) in enumerate(labels.items()):
        if against is not None and line == against:
            continue
        rows = rows_with(means, sweep.line, line).sort_values(sweep.x)
        look: dict[str, Any] = {"color": PALETTE[place], "marker": MARKERS[place]}
        look |= {"markersize": MARKER_POINTS, "clip_on": False}
        at, middle, low, high = rows[sweep.x], rows["mean"], rows["mean"] - rows["below"], rows["mean"] + rows["above"]
        if against is None:
            bars: dict[str, Any] = {"elinewidth": 0.8, "capsize": 1.5, **look, "marker": ""}
            axes.errorbar(at, middle, [rows["below"], rows["above"]], **bars)
        else:
            axes.fill_between(at, low, high, color=PALETTE[place], alpha=0.18, linewidth=0)
            axes.plot(at, middle, **{**look, "marker": ""})
        mark(axes, zip(at, middle, strict=True), [marks[line, x] for x in at], **look)
        ends[label], ink[label] = (float(at.iloc[-1]), float(middle.iloc[-1])), PALETTE[place]
    if against is None:
        top = float((means["mean"] + means["above"]).max())
        axes.set_ylim(0, 104 if is_share(measure) else 1.05 * (top if top > 0 and not isnan(top) else 1.0))
        axes.set_ylabel(named(measure))
    else:
        axes.axhline(0, color=GREY, linewidth=0.8, zorder=1)
        axes.set_ylabel(f"{named(measure, difference=True)}\nminus {labels.get(against, told(sweep.line, against))}")
        axes.set_ylim(axes.get_ylim())
    ticks = values_of(means, sweep.x)
    axes.set_xticks(ticks, [f"{each:g}" for each in ticks])
    name_ends(axes, ends, ink, PANEL_IN)


def _make_room(axes: Axes, labels: Sequence[str], width_in: float) -> None:
    """Widen the x axis so that the names behind the last points stand inside; `width_in` is that of the axes."""
    share = min((max(map(len, labels)) * CHARACTER_IN + 0.12) / width_in, MOST_NAMED)
    first, last = axes.get_xticks()[[0, -1]]
    span = (last - first) or 1.0
    axes.set_xlim(first - 0.04 * span, last + span * share / (1 - share))
