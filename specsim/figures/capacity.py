"""Attainment against the rate, up to where each system falls below the target."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from specsim.errors import SpecsimError
from specsim.figures.style import CHARACTER_IN, GREY, MARKERS, PALETTE, WIDE_IN, legend_name, new_figure, style
from specsim.results.capacity import mean_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from specsim.results.capacity import Asked, Tested

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


class Curve(NamedTuple):
    """One system.

    Attributes
    ----------
    tested : by rate in requests/s, the attained share of each seed. keeps : the highest rate that keeps the target.
    failed, overloaded, too_short : rates at which a run is so; overloaded or near saturation.
    """

    tested: Tested
    keeps: float | None
    failed: Collection[float] = ()
    overloaded: Collection[float] = ()
    too_short: Collection[float] = ()


def attained_up_to(
    asked: Asked, label: str, lines: Mapping[str, Curve], *, title: str = "", covered: Sequence[str] = ()
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


def _draw(axes: Axes, curve: Curve, look: Mapping[str, Any], target: float) -> None:
    rates = sorted(curve.tested)
    middle, half = np.array([mean_interval(100 * np.array(curve.tested[rate])) for rate in rates]).T
    half = np.nan_to_num(half)
    reach = np.minimum(half, middle), np.minimum(half, 100 - middle)
    axes.errorbar(rates, middle, reach, **{**look, "marker": ""}, elinewidth=0.8, capsize=1.5)
    for kind, fill_of in {"": {}, **FILLS}.items():
        points = [(rate, at) for rate, at in zip(rates, middle, strict=True) if doubt(curve, rate) == kind]
        if points:
            axes.plot(*zip(*points, strict=True), **{**look, **fill_of, "linestyle": "", "zorder": ABOVE})
    if curve.keeps is not None:
        # The answer stands at its own rate, whatever stands beside it.
        dotted = {"color": look["color"], "linestyle": ":", "linewidth": 0.9}
        axes.plot([curve.keeps] * 2, [0, 100 * target], **dotted)


def doubt(curve: Curve, rate: float) -> str:
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


def _caption(curves: Collection[Curve], covered: Sequence[str]) -> list[str]:
    """Return the sentences of the caption."""
    several = any(len(shares) > 1 for curve in curves for shares in curve.tested.values())
    parts = ["Means over seeds with 95% intervals." if several else "One seed: no interval."]
    parts += [f"{each}." for each in covered]
    parts += ["Dotted: the highest tested rate that keeps the target."]
    if len(curves) > 1:
        parts += ["Markers of one rate stand side by side; dotted lines stand at their rate."]
    kinds = {doubt(curve, rate) for curve in curves for rate in curve.tested}
    return parts + [said for kind, said in SAID.items() if kind in kinds]
