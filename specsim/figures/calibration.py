"""Measured points against the same loads simulated, one panel a quantity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from specsim.figures.style import GREY, MARKERS, PALETTE, legend_above, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from specsim.replica.request import Floats

BAND = 0.1


class Pairs(NamedTuple):
    """Measured and simulated milliseconds of some points, (n,) each."""

    measured_ms: Floats
    simulated_ms: Floats


def calibration(panels: Mapping[str, Mapping[str, Pairs]]) -> Figure:
    """Return a panel for each quantity: its pairs by group, the diagonal, and 10% to either side of it."""
    with style():
        figure = new_figure(3.4)
        for axes, (quantity, groups) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
            _panel(axes, groups)
            axes.set_xlabel(f"Measured {quantity} (ms)")
            axes.set_ylabel(f"Simulated {quantity} (ms)")
        legend_above(figure, figure.axes[0])
        return figure


def _panel(axes: Axes, groups: Mapping[str, Pairs]) -> None:
    every = [value for pairs in groups.values() for column in pairs for value in column]
    low, high = min(every) / 1.2, max(every) * 1.2
    axes.plot([low, high], [low, high], color=GREY, linewidth=0.8)
    for factor, label in ((1 + BAND, "10% off"), (1 - BAND, None)):
        axes.plot([low, high], [low * factor, high * factor], color=GREY, linewidth=0.6, linestyle="--", label=label)
    for place, (name, pairs) in enumerate(groups.items()):
        look: Any = {"color": PALETTE[place % len(PALETTE)], "marker": MARKERS[place % len(MARKERS)]}
        axes.plot(*pairs, linestyle="none", markersize=4, alpha=0.85, label=name, **look)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
