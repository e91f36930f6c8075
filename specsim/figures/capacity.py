"""Attainment over rate."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from specsim.figures.style import (
    FAILED_MARK,
    GREY,
    HALF,
    HOLLOW,
    LEGEND_LINE_IN,
    WIDE_IN,
    caption_below,
    legend_columns,
    mark,
    new_figure,
    style,
)
from specsim.figures.sweep import around, aside, legend_of, look_of, shifts_of
from specsim.metrics.capacity import LEAST_SEEDS, mean_interval
from specsim.metrics.seeds import KEPT_UP, OVERLOADED, SHORT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from specsim.metrics.capacity import Asked, Tested


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
    """
    legend_in = LEGEND_LINE_IN * ((len(lines) - 1) // legend_columns(lines))
    with style():
        figure = new_figure(HIGH_IN + legend_in, WIDE_IN)
        axes = figure.subplots()
        axes.axhline(100 * asked.target, color=GREY, linewidth=0.8, linestyle="--", zorder=1)
        for place, (name, shift) in enumerate(shifts_of([*lines]).items()):
            _draw(axes, lines[name], {**look_of(place), "transform": aside(axes, shift)}, asked.target)
        # matplotlib's limits leave out points that are drawn with an offset.
        rates = [rate for curve in lines.values() for rate in curve.tested]
        axes.set_xscale("log", base=2 if max(rates) >= 4 * min(rates) else 2**0.25)
        axes.set_xlim(*around(min(rates), max(rates), logarithmic=True))
        axes.xaxis.set_major_formatter("{x:.4g}")
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
