"""Attainment over rate, rankings and winners."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import isfinite, nan
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.patches import Patch, Rectangle

from specsim.errors import SpecsimError
from specsim.figures.style import (
    FAILED_MARK,
    FILLS,
    GLYPHS,
    GREY,
    HALF,
    HOLLOW,
    MARKER_POINTS,
    PALETTE,
    WIDE_IN,
    caption_below,
    colours,
    mark,
    new_figure,
    style,
    table_said,
)
from specsim.figures.sweep import along_said, around, aside, is_share, legend_of, look_of, named, shifts_of, told
from specsim.metrics.capacity import LEAST_SEEDS, Capacity, capacity, mean_interval
from specsim.metrics.seeds import KEPT_UP, OVERLOADED, SHORT, worst
from specsim.metrics.sweep_table import (
    SEED,
    differing,
    following,
    rows_with,
    values_of,
    with_none,
    without_failures,
    word,
)
from specsim.metrics.tables import number, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from specsim.metrics.capacity import Asked, Tested


CELL_IN, AROUND_WINNERS_IN = 0.42, 1.12
UNDECIDED: Any = {"facecolor": "white", "hatch": "////"}
TIE = "#cccccc"


def winner_map(found: DataFrame, table: DataFrame, measure: str, x: str, y: str, panel: str | None, of: str) -> Figure:
    """Return a cell for each `x` and `y`: the winner's colour and mean, and its lead over the second.

    A cell is hatched where the paired seeds do not decide between the two, and grey where several are best. The mark
    behind a mean is that of the winner's and the second's load, as in `specsim.figures.sweep.curves`.

    Parameters
    ----------
    found : rows of `specsim.metrics.seeds.winners` of `of`, by `x`, `y` and `panel`.
    table : rows of the `Sweep.table` that they are of; the caption counts its failed runs.
    """
    columns, rows = values_of(found, x), values_of(found, y)[::-1]
    parts = [None] if panel is None else values_of(found, panel)
    ahead = found[found["tied"] <= 1]
    names = values_of(ahead, "winner")
    colour = colours(names)
    with style():
        figure = new_figure(AROUND_WINNERS_IN + CELL_IN * len(rows), WIDE_IN)
        grid = figure.subplots(1, len(parts), sharey=True, squeeze=False).ravel()
        for axes, part in zip(grid, parts, strict=True):
            here: Any = found if panel is None else rows_with(found, panel, part)
            for cell in here.assign(**with_none(here, [x, y, "winner"])).to_dict("records"):
                _cell(axes, columns.index(cell[x]), rows.index(cell[y]), cell, colour, share=is_share(measure))
            axes.set_title("" if panel is None else told(panel, part))
            axes.set_xticks(range(len(columns)), [*map(word, columns)])
            axes.set_yticks(range(len(rows)), [*map(word, rows)])
            axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
            axes.tick_params(length=0)
            axes.grid(visible=False)
            axes.set_xlabel(named(x))
        grid[0].set_ylabel(named(y))
        handles = [Patch(facecolor=colour[name], label=told(of, name)) for name in names]
        if len(ahead) < len(found):
            handles.append(Patch(facecolor=TIE, label="tie: several are best"))
        if not ahead["decided"].all():
            handles.append(Patch(edgecolor=GREY, linewidth=0.5, label="undecided by the seeds", **UNDECIDED))
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), handlelength=1.4)
        measured, axes_are = without_failures(table), (x, y) if panel is None else (x, y, panel)
        seeds, left = measured[SEED].nunique(), set(differing(measured)) - {of, *axes_are}
        along = {key: sorted(left.intersection(following(measured, [key]))) for key in axes_are}
        along[of] = sorted(left.difference(*along.values()))
        over = "of one seed" if seeds == 1 else f"mean over {seeds} seeds"
        said = f"In a cell: {named(measure)} of the best, {over}, and its lead over the second."
        caption_below(figure, [said, *along_said(along), *table_said(table, of, *axes_are)])
        return figure


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
    said = f"{number(cell['mean'], scale, 0)} {glyph}".rstrip() + f"\n{lead}"
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

    A dot stands at the highest tested rate that keeps the target, and a bar spans the 95% interval over seeds,
    `LEAST_SEEDS` or more, of the rate at which it falls below. A system that misses the target nowhere has a triangle
    to the right behind its dot; a system that misses it everywhere has one to the left at the lowest tested rate.
    Points with failed, overloaded or short runs look as in `attained_up_to`.

    Parameters
    ----------
    label : of the x axis. title : what the systems differ in. covered : sentences about what the intervals cover.
    """
    found: dict[str, Capacity] = {name: capacity(asked, curve.tested) for name, curve in lines.items()}
    for name, each in found.items():
        if len(each.by_seed) < LEAST_SEEDS:
            found[name] = each._replace(half_width=nan)
    # Rows go upwards: of equals the first one is the higher one, too.
    names = sorted(reversed(found), key=lambda name: _place(found[name]))
    with style():
        figure = new_figure(AROUND_IN + ROW_IN * len(names), WIDE_IN)
        axes = figure.subplots()
        highest = [each.mean + each.half_width for each in found.values() if isfinite(each.half_width)]
        rates = [rate for curve in lines.values() for rate in curve.tested]
        left, right = around(min(rates), max([*rates, *highest]), logarithmic=True)
        for row, name in enumerate(names):
            _draw_ranked(axes, row, lines[name], found[name], left)
        axes.set_xscale("log", base=2)
        axes.set_xlim(left, right)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_yticks(range(len(names)), [shorten(name, MOST_CHARACTERS) for name in names])
        axes.set_ylim(-0.7, len(names) - 0.3)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(label)
        axes.set_ylabel(title)
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
    axes.plot([each.keeps], [row], **{**look, **FILLS[curve.doubts.get(each.keeps, KEPT_UP)]})
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
    kinds = {lines[name].doubts.get(each.keeps) for name, each in found.items() if each.keeps is not None}
    parts += [said for kind, said in SAID.items() if kind in kinds]
    if any(each.keeps is None for each in found.values()):
        parts += ["Triangle to the left: misses the target at the lowest tested rate."]
    if any(each.misses is None for each in found.values()):
        parts += ["Triangle to the right: keeps the target at the highest tested rate."]
    return parts


HIGH_IN = 2.85
SAID = {
    FAILED_MARK: "Cross \N{MULTIPLICATION SIGN}: a run failed, and counts as 0%.",
    OVERLOADED: f"Hollow {HOLLOW}: a run is overloaded or near saturation, and would attain less if longer.",
    SHORT: f"Half-filled {HALF}: a run is too short to judge its load or its attainment.",
}
"""Caveats of a point, the strongest first."""


class AttainmentCurve(NamedTuple):
    """One system.

    Attributes
    ----------
    tested : by rate in requests/s, the attained share of each seed.
    answer : the table's rate: a mean over seeds, or the highest tested one that keeps the target; None: there is none.
    doubts : the key of `SAID` of the rates that have one.
    """

    tested: Tested
    answer: float | None
    doubts: Mapping[float, str]


def attained_up_to(
    asked: Asked, label: str, lines: Mapping[str, AttainmentCurve], *, title: str = "", covered: Sequence[str] = ()
) -> Figure:
    """Return attainment in % against the rate in requests/s: a line a system, means over seeds with 95% intervals.

    Fewer than `LEAST_SEEDS` have no interval. A dotted line stands at the rate that the table says keeps the target.
    Points with a failed run are crosses, others with an overloaded run hollow, others with a run that is too short to
    judge half filled.

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
        axes.axhline(100 * asked.target, color=GREY, linewidth=0.8, linestyle="--", zorder=1)
        for place, (curve, shift) in enumerate(zip(lines.values(), shifts_of([*lines]).values(), strict=True)):
            _draw(axes, curve, {**look_of(place), "transform": aside(axes, shift)}, asked.target)
        axes.set_xscale("log", base=2)
        # matplotlib's limits leave out points that are drawn with an offset.
        rates = [rate for curve in lines.values() for rate in curve.tested]
        axes.set_xlim(*around(min(rates), max(rates), logarithmic=True))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_ylim(0, 104)
        axes.set_xlabel("Request rate (requests/s)")
        axes.set_ylabel(label)
        legend_of(figure, {name: look_of(place) for place, name in enumerate(lines)}, title)
        caption_below(figure, _caption(lines.values(), covered))
        return figure


def _draw(axes: Axes, curve: AttainmentCurve, look: Mapping[str, Any], target: float) -> None:
    rates = sorted(curve.tested)
    middle, half = np.array([mean_interval(100 * np.array(curve.tested[rate])) for rate in rates]).T
    enough = _seeds([curve]) >= LEAST_SEEDS
    reach = (np.minimum(half, middle), np.minimum(half, 100 - middle)) if enough else None
    axes.errorbar(rates, middle, reach, **{**look, "marker": ""}, elinewidth=0.8, capsize=1.5)
    mark(axes, zip(rates, middle, strict=True), [curve.doubts.get(rate, KEPT_UP) for rate in rates], **look)
    if curve.answer is not None:
        # The answer is drawn at its own rate, whatever is beside it.
        dotted = {"color": look["color"], "linestyle": ":", "linewidth": 0.9}
        axes.plot([curve.answer] * 2, [0, 100 * target], **dotted)


def _seeds(curves: Collection[AttainmentCurve]) -> int:
    return max(len(shares) for curve in curves for shares in curve.tested.values())


def _caption(curves: Collection[AttainmentCurve], covered: Sequence[str]) -> list[str]:
    """Return the sentences of the caption."""
    seeds = _seeds(curves)
    few = f"Means over {seeds} seeds, too few for an interval." if seeds > 1 else "One seed: no interval."
    parts = [few if seeds < LEAST_SEEDS else "Means over seeds with 95% intervals."]
    parts += [f"{each}." for each in covered]
    parts += ["Dotted: the rate in the table, above which attainment falls below the target."]
    if len(curves) > 1:
        parts += ["Markers of one rate stand side by side; dotted lines stand at their rate."]
    kinds = {kind for curve in curves for kind in curve.doubts.values()}
    return parts + [said for kind, said in SAID.items() if kind in kinds]
