"""Attainment over rate, rankings and winners."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.transforms import ScaledTranslation

from specsim.errors import SpecsimError
from specsim.figures.style import (
    CHARACTER_IN,
    GLYPHS,
    GREY,
    MARKERS,
    PALETTE,
    WIDE_IN,
    caption_below,
    colours,
    legend_name,
    new_figure,
    style,
    table_said,
)
from specsim.figures.sweep import is_share, named, told
from specsim.metrics.capacity import Capacity, capacity, mean_interval
from specsim.metrics.seeds import worst
from specsim.metrics.sweep_table import SEED, without_failures
from specsim.metrics.tables import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from specsim.metrics.capacity import Asked, Tested


CELL_IN, AROUND_WINNERS_IN = 0.42, 1.12
UNDECIDED: Any = {"facecolor": "white", "hatch": "////"}
TIE = "#cccccc"


def winner_map(found: DataFrame, table: DataFrame, measure: str, x: str, y: str, panel: str) -> Figure:
    """Return a cell for each `x` and `y`: the winner's colour and mean, and its lead over the second.

    A cell is hatched where the paired seeds do not decide between the two, and grey where several are best. The mark
    behind a mean is that of the winner's and the second's load, as in `specsim.figures.sweep.curves`.

    Parameters
    ----------
    found : rows of `specsim.metrics.seeds.winners`, by `x`, `y` and `panel`. table : rows of the `Sweep.table` that
        they are of; the caption counts its failed runs.
    """
    columns, rows = sorted(found[x].unique()), sorted(found[y].unique(), reverse=True)
    parts = sorted(found[panel].unique())
    ahead = found[found["tied"] <= 1]
    names = sorted(ahead["winner"].unique())
    colour = colours(names)
    with style():
        figure = new_figure(AROUND_WINNERS_IN + CELL_IN * len(rows), WIDE_IN)
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


ROW_IN, AROUND_IN = 0.2, 0.75
BAR_POINTS = 5.0
MOST_CHARACTERS = 48
ARROW_POINTS, BESIDE = 4.0, 1.06
BEYOND: dict[str, Any] = {"marker": ">", "color": PALETTE[0]}
BELOW: dict[str, Any] = {"marker": "<", "color": PALETTE[4]}


def ranked(
    asked: Asked, label: str, lines: Mapping[str, AttainmentCurve], *, title: str = "", covered: Sequence[str] = ()
) -> Figure:
    """Return the rates of each system in requests/s, the highest on top.

    A dot stands at the highest tested rate that keeps the target, and a bar spans the 95% interval over seeds of the
    rate at which it falls below. A system that misses the target nowhere has a triangle to the right behind its dot;
    one that misses it everywhere has one to the left at the lowest tested rate. Points with failed, overloaded or short
    runs look as in `attained_up_to`.

    Parameters
    ----------
    label : of the x axis. title : what the systems differ in. covered : sentences about what the intervals cover.
    """
    found: dict[str, Capacity] = {name: capacity(asked, curve.tested) for name, curve in lines.items()}
    # Rows go upwards: of equals the first one is the higher one, too.
    names = sorted(reversed(found), key=lambda name: _place(found[name]))
    with style():
        figure = new_figure(AROUND_IN + ROW_IN * len(names), WIDE_IN)
        axes = figure.subplots()
        highest = [each.mean + each.half_width for each in found.values() if isfinite(each.half_width)]
        left, right = around([*highest, *(rate for curve in lines.values() for rate in curve.tested)])
        for row, name in enumerate(names):
            _draw_ranked(axes, row, lines[name], found[name], left)
        axes.set_xscale("log", base=2)
        axes.set_xlim(left, right)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_yticks(range(len(names)), [shorten(name, MOST_CHARACTERS) for name in names])
        axes.set_ylim(-0.7, len(names) - 0.3)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(label)
        axes.set_title(title, loc="left", x=-CHARACTER_IN)
        caption_below(figure, _ranking_caption(asked, lines, found, covered, left))
        return figure


def _place(each: Capacity) -> tuple[float, float]:
    """Return what orders systems, those last that keep the target nowhere."""
    mean = each.mean if isfinite(each.mean) else 0.0
    return (-1.0 if each.keeps is None else each.keeps), mean


def _draw_ranked(axes: Axes, row: int, curve: AttainmentCurve, each: Capacity, left: float) -> None:
    """Draw a system in its row; `left` is where the axis begins."""
    if isfinite(each.half_width):
        bar: dict[str, Any] = {"color": PALETTE[5], "linewidth": BAR_POINTS, "solid_capstyle": "butt"}
        axes.plot([max(left, each.mean - each.half_width), each.mean + each.half_width], [row, row], **bar)
    if each.keeps is None:
        axes.plot([min(curve.tested)], [row], markersize=ARROW_POINTS, **BELOW)
        return
    look: dict[str, Any] = {"marker": "o", "markersize": MARKER_POINTS, "color": PALETTE[0], "linestyle": ""}
    axes.plot([each.keeps], [row], **{**look, **FILLS.get(doubt(curve, each.keeps), {})})
    if each.misses is None:
        axes.plot([each.keeps * BESIDE], [row], markersize=ARROW_POINTS, clip_on=False, **BEYOND)


def _ranking_caption(
    asked: Asked,
    lines: Mapping[str, AttainmentCurve],
    found: Mapping[str, Capacity],
    covered: Sequence[str],
    left: float,
) -> list[str]:
    """Return the sentences of the caption; `left` is where the axis begins."""
    parts = [f"Dot: the highest tested rate up to which all keep the target, {100 * asked.target:g}%."]
    if any(isfinite(each.half_width) for each in found.values()):
        parts += ["Bar: 95% interval over seeds of the rate at which attainment falls below it."]
    if any(each.mean - each.half_width < left for each in found.values()):
        parts += ["A bar from the left edge begins below it."]
    parts += [f"{each}." for each in covered]
    kinds = {doubt(lines[name], each.keeps) for name, each in found.items() if each.keeps is not None}
    parts += [said for kind, said in SAID.items() if kind in kinds]
    if any(each.keeps is None for each in found.values()):
        parts += ["Triangle to the left: misses the target at the lowest tested rate."]
    if any(each.misses is None for each in found.values()):
        parts += ["Triangle to the right: keeps the target at the highest tested rate."]
    return parts


HIGH_IN = 3.1
HANDLE_IN, MOST_COLUMNS, CAPTION_CHARACTERS = 0.65, 6, 132
MARKER_POINTS, SPREAD_POINTS, ABOVE, MARGIN = 4.5, 2.4, 4, 0.05
THIN = 0.4
"""Edge of a half-filled marker in points: the empty half of a triangle is small."""
FILLS: Mapping[str, Mapping[str, Any]] = {
    "failed": {"marker": "x", "markersize": 1.3 * MARKER_POINTS},
    "overloaded": {"markerfacecolor": "white"},
    "too short": {"fillstyle": "left", "markerfacecoloralt": "white", "markeredgewidth": THIN},
}
SAID = {
    "failed": "Cross \N{MULTIPLICATION SIGN}: a run failed, and counts as 0%.",
    "overloaded": "Hollow \N{WHITE CIRCLE}: a run is overloaded or near saturation, and would attain less if longer.",
    "too short": "Half-filled \N{CIRCLE WITH LEFT HALF BLACK}: a run is too short to judge its load or its attainment.",
}


class AttainmentCurve(NamedTuple):
    """One system.

    Attributes
    ----------
    tested : by rate in requests/s, the attained share of each seed.
    answer : the highest rate that keeps the target, as the table has it; None: no tested rate keeps it.
    failed, overloaded, too_short : rates at which a run is so; overloaded or near saturation.
    """

    tested: Tested
    answer: float | None
    failed: Collection[float] = ()
    overloaded: Collection[float] = ()
    too_short: Collection[float] = ()


def attained_up_to(
    asked: Asked, label: str, lines: Mapping[str, AttainmentCurve], *, title: str = "", covered: Sequence[str] = ()
) -> Figure:
    """Return attainment in % against the rate in requests/s: a line a system, means over seeds with 95% intervals.

    A dotted line stands at the rate that the table says keeps the target. Points with a failed run are crosses, others
    with an overloaded run hollow, others with a run that is too short to judge half filled.

    Parameters
    ----------
    label : of the y axis. title : of the legend. covered : sentences about what the intervals cover.

    Raises
    ------
    SpecsimError
        When there are more lines than can be told apart.
    """
    if len(lines) > len(PALETTE):
        raise SpecsimError(f"{len(lines)} lines; expected {len(PALETTE)} or fewer in one figure")
    with style():
        figure = new_figure(HIGH_IN, WIDE_IN)
        axes = figure.subplots()
        looks = {name: _look(place) for place, name in enumerate(lines)}
        axes.axhline(100 * asked.target, color=GREY, linewidth=0.8, linestyle="--", zorder=1)
        for place, (name, curve) in enumerate(lines.items()):
            aside_in = (place - (len(lines) - 1) / 2) * SPREAD_POINTS / 72
            beside = axes.transData + ScaledTranslation(aside_in, 0, figure.dpi_scale_trans)
            _draw(axes, curve, {**looks[name], "transform": beside}, asked.target)
        axes.set_xscale("log", base=2)
        # matplotlib's limits leave out points that are drawn with an offset.
        axes.set_xlim(*around([rate for curve in lines.values() for rate in curve.tested]))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_ylim(0, 104)
        axes.set_xlabel("Request rate (requests/s)")
        axes.set_ylabel(label)
        _legend(figure, looks, title)
        said = fill(" ".join(_caption(lines.values(), covered)), CAPTION_CHARACTERS)
        figure.supxlabel(said, fontsize=7, color=GREY, x=0.01, ha="left")
        return figure


def _look(place: int) -> dict[str, Any]:
    return {"color": PALETTE[place], "marker": MARKERS[place], "markersize": MARKER_POINTS, "clip_on": False}


def _draw(axes: Axes, curve: AttainmentCurve, look: Mapping[str, Any], target: float) -> None:
    rates = sorted(curve.tested)
    middle, half = np.array([mean_interval(100 * np.array(curve.tested[rate])) for rate in rates]).T
    half = np.nan_to_num(half)
    reach = np.minimum(half, middle), np.minimum(half, 100 - middle)
    axes.errorbar(rates, middle, reach, **{**look, "marker": ""}, elinewidth=0.8, capsize=1.5)
    for kind, fill_of in {"": {}, **FILLS}.items():
        points = [(rate, at) for rate, at in zip(rates, middle, strict=True) if doubt(curve, rate) == kind]
        if points:
            axes.plot(*zip(*points, strict=True), **{**look, **fill_of, "linestyle": "", "zorder": ABOVE})
    if curve.answer is not None:
        # The answer stands at its own rate, whatever stands beside it.
        dotted = {"color": look["color"], "linestyle": ":", "linewidth": 0.9}
        axes.plot([curve.answer] * 2, [0, 100 * target], **dotted)


def doubt(curve: AttainmentCurve, rate: float) -> str:
    """Return which caveat a point needs most; an empty one where it needs none."""
    caveats = {"failed": curve.failed, "overloaded": curve.overloaded, "too short": curve.too_short}
    return next((kind for kind, rates in caveats.items() if rate in rates), "")


def around(rates: Collection[float]) -> tuple[float, float]:
    """Return limits a little beyond all rates, by a share of their ratio."""
    low, high = min(rates), max(rates)
    beyond = (high / low) ** MARGIN if high > low else 2**MARGIN
    return low / beyond, high * beyond


def _legend(figure: Figure, looks: Mapping[str, Mapping[str, Any]], title: str) -> None:
    handles = [Line2D([], [], linewidth=1.2, **look) for look in looks.values()]
    columns = int(WIDE_IN / (max(map(len, looks)) * CHARACTER_IN + HANDLE_IN))
    columns = max(1, min(MOST_COLUMNS, columns))
    names = [legend_name(name) for name in looks]
    figure.legend(handles, names, title=title, loc="outside upper center", ncols=columns)


def _caption(curves: Collection[AttainmentCurve], covered: Sequence[str]) -> list[str]:
    """Return the sentences of the caption."""
    several = any(len(shares) > 1 for curve in curves for shares in curve.tested.values())
    parts = ["Means over seeds with 95% intervals." if several else "One seed: no interval."]
    parts += [f"{each}." for each in covered]
    parts += ["Dotted: the highest rate that keeps the target."]
    if len(curves) > 1:
        parts += ["Markers of one rate stand side by side; dotted lines stand at their rate."]
    kinds = {doubt(curve, rate) for curve in curves for rate in curve.tested}
    return parts + [said for kind, said in SAID.items() if kind in kinds]
