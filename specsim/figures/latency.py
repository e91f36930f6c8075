"""Distributions of TPOT and TTFT per class, and measured points of a server beside simulated ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from specsim.figures.style import (
    GREY,
    MARKERS,
    PALETTE,
    caption_below,
    colours,
    legend_above,
    legend_name,
    new_figure,
    run_said,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from specsim.core.request import Floats


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
            _pairs_panel(axes, groups)
            axes.set_xlabel(f"Measured {quantity} (ms)")
            axes.set_ylabel(f"Simulated {quantity} (ms)")
        legend_above(figure, figure.axes[0])
        return figure


def _pairs_panel(axes: Axes, groups: Mapping[str, Pairs]) -> None:
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
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())


# More points than a printed line can show only enlarge the PDF.
MOST_POINTS = 1000
TPOT_SAID = "TPOT runs from the first token (tpot_s). slo_by_class also marks AdaServe's, from the first decoding pass."


def latency_cdf(metrics: Mapping[str, Any], requests: DataFrame) -> Figure:
    """Return two panels, TPOT and TTFT in ms: one cumulative curve per class and its SLO as a dashed line.

    A curve counts all arrived requests of its class, so its height at its SLO line is the share that meets the SLO.
    """
    classes = metrics["specsim"]["classes"]
    with style():
        figure = new_figure(2.6)
        left, right = figure.subplots(1, 2, sharey=True)
        _panel(left, classes, requests, "slo_tpot_s")
        _panel(right, classes, requests, "slo_ttft_s")
        left.set_xlabel("Time per output token, TPOT as in vLLM (ms)")
        right.set_xlabel("Time to first token, TTFT (ms)")
        left.set_ylabel("Share of arrived requests (%)")
        left.set_ylim(0, 102)
        if any(part[slo] is not None for part in classes.values() for slo in ("slo_tpot_s", "slo_ttft_s")):
            # A line without points, for the legend alone.
            left.add_line(Line2D([], [], color=GREY, linestyle="--", linewidth=1.0, label="SLO"))
        legend_above(figure, left)
        caption_below(figure, [TPOT_SAID, *run_said(metrics["specsim"])])
        return figure


def _panel(axes: Axes, classes: Mapping[str, Any], requests: DataFrame, slo: str) -> None:
    colour = colours(classes)
    curves = {name: curve(requests[requests["slo_class"] == name], slo) for name in classes}
    slos_ms = {name: 1000 * part[slo] for name, part in classes.items() if part[slo] is not None}
    shown = [*(values for values, _ in curves.values()), np.array(list(slos_ms.values()))]
    low, high = _limits(axes, np.concatenate(shown))
    for name, (values, shares) in curves.items():
        start = shares[0] if len(shares) else 0.0
        end = shares[-1] if len(shares) else 0.0
        axes.step(
            np.concatenate([[low], values, [high]]),
            np.concatenate([[start], shares[1:], [end]]),
            where="post",
            color=colour[name],
            label=legend_name(name),
        )
    for name, slo_ms in slos_ms.items():
        # Classes that share an SLO: the dashes of one fall into the gaps of another.
        alike = [other for other, value in slos_ms.items() if value == slo_ms]
        dashes = (4 * alike.index(name), (4, 4 * max(len(alike) - 1, 1)))
        axes.axvline(slo_ms, color=colour[name], linestyle=dashes, linewidth=1.0)


def curve(part: DataFrame, slo: str, most: int = MOST_POINTS) -> tuple[Floats, Floats]:
    """Return `most` sorted latencies in ms, and the share of requests below the first and up to each in %."""
    column = slo.removeprefix("slo_")
    values_ms = 1000 * part[column].to_numpy(dtype=np.float64)
    completed = (part["rejected_reason"] == "").to_numpy(dtype=bool)
    measured = completed & ~np.isnan(values_ms)
    # One-token outputs have no TPOT and meet any SLO.
    before = int((completed & ~measured).sum())
    values_ms = np.sort(values_ms[measured])
    shares = 100 * (before + np.arange(len(values_ms) + 1)) / len(part)
    kept = np.unique(np.linspace(0, len(values_ms) - 1, min(most, len(values_ms))).astype(int))
    return values_ms[kept], np.concatenate([shares[:1], shares[1:][kept]])


def _limits(axes: Axes, values: Floats) -> tuple[float, float]:
    """Scale the x axis, logarithmically if the values span more than a decade, and return its ends."""
    values = values[values > 0]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    if low > 0 and high > 10 * low:
        low, high = low / 1.15, high * 1.15
        axes.set_xscale("log")
        subs: Sequence[float] = (1, 2, 5) if high < 200 * low else (1,)
        axes.xaxis.set_major_locator(LogLocator(subs=subs))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        edge = 0.06 * (high - low) or 0.1 * high
        low, high = low - edge, high + edge
    axes.set_xlim(low, high)
    return low, high
