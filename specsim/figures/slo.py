"""Attainment, TTFT and TPOT by class, of one run and of several, and measured points of a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, pairwise
from math import radians, sin
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axis import Axis
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from specsim.figures.style import (
    CHARACTER_IN,
    GLYPHS,
    GREY,
    HATCHES,
    MARKERS,
    PALETTE,
    amount,
    caption_below,
    colours,
    legend_above,
    legend_name,
    marks_said,
    new_figure,
    run_said,
    style,
)
from specsim.metrics.requests import SLO_RELATIVE_TOLERANCE
from specsim.metrics.seeds import verdict_of
from specsim.metrics.tables import LONGEST_CLASS, number, objective, sentences, shorten, stand_ins

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from specsim.core.request import Floats


ROW_IN = 0.22
AROUND_ROWS_IN = 0.95


def _attainment(axes: Axes, blocks: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Draw a bar for all requests and a mark for each class; marks of equal value are moved apart."""
    rows, colour = np.arange(len(blocks)), colours(names)
    step = 0.5 / max(len(names) - 1, 1)
    for place, name in enumerate(names):
        shares = [block["classes"].get(name, {}).get("slo_attainment") for block in blocks]
        look: dict[str, Any] = {"marker": MARKERS[place % len(MARKERS)], "color": colour[name], "markersize": 3.2}
        look |= {"linestyle": "", "label": legend_name(name), "clip_on": False}
        axes.plot(100 * np.array(shares, dtype=float), rows - 0.25 + place * step, **look)
    axes.barh(
        rows,
        [100 * (block["slo_attainment"] or 0.0) for block in blocks],
        height=0.72,
        color=GREY,
        alpha=0.3,
        linewidth=0,
        label="all",
    )
    axes.set_xlabel("SLO attainment (%)")
    axes.set_xlim(0, 100)


def _goodput(axes: Axes, blocks: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Draw goodput in tokens/s, stacked by class, with its sum behind."""
    start = np.zeros(len(blocks))
    for (name, colour), hatch in zip(colours(names).items(), cycle(HATCHES), strict=False):
        parts = [block["classes"].get(name, {}) for block in blocks]
        rates = np.array([part.get("slo_goodput_tokens_per_s") or 0.0 for part in parts])
        look: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
        axes.barh(range(len(blocks)), rates, height=0.72, left=start, **look)
        start = start + rates
    for row, total in enumerate(start):
        axes.annotate(amount(total), (total, row), (2, 0), textcoords="offset points", va="center", fontsize=7)
    axes.set_xlabel("SLO goodput (tokens/s)")
    axes.margins(x=0.12)
    axes.set_xlim(left=0)


ALL = "all"
ALONE = {"ttft": "met TTFT alone", "tpot": "met TPOT alone, from the first decoding pass"}
MARKS_APART = 0.17
"""The distance of the two marks of a class from the middle of its bar, in bars: equal shares stand side by side."""
ABOVE_MARKS = 107.0
"""The height of the attainments' numbers, where no mark stands, in %."""
BELOW_MARKS = 6.0
"""The distance of the classes' names from the axis, in points: a mark at 0 hangs below the axis."""
TPOT_SAID = (
    "Bars and numbers count requests that met TTFT and TPOT, which runs from the first token as in vLLM (tpot_s).",
    "The diamonds' TPOT runs from the first decoding pass as in AdaServe (decode_tpot_s).",
)
MOST_LABEL_CHARACTERS, LEAST_LABEL_CHARACTERS = 36, 12
SLANT_DEGREES = 35
BARS_IN = 3.0
# Keeps numbers over bars readable across a grid line.
LABEL_BOX = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}


def slo_by_class(metrics: Mapping[str, Any]) -> Figure:
    """Return two panels, attainment in % and goodput in tokens/s, one bar per class and one for all.

    Marks in front of each attainment are the shares that meet TTFT, and TPOT (AdaServe's measure).
    """
    block = metrics["specsim"]
    parts = {**block["classes"], ALL: block}
    with style():
        labels = _labels(parts)
        slanted = len(labels) > 1 and "\n" not in labels[0]
        long_in = max(map(len, labels)) * CHARACTER_IN if slanted else 0.0
        figure = new_figure(2.55 + long_in * sin(radians(SLANT_DEGREES)))
        left, right = figure.subplots(1, 2)
        slant: Any = {"rotation": SLANT_DEGREES, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
        shares = [part["slo_attainment"] for part in parts.values()]
        rates = [part["slo_goodput_tokens_per_s"] or 0.0 for part in parts.values()]
        for axes, heights in ((left, [100 * each for each in shares]), (right, rates)):
            bars = axes.bar(range(len(parts)), heights, width=0.62, color=[*colours(block["classes"]).values(), GREY])
            axes.set_xticks(range(len(labels)), labels, **slant)
            axes.grid(axis="x", visible=False)
            axes.set_xlabel("SLO class (TTFT in s, TPOT in ms)")
            axes.tick_params(axis="x", pad=BELOW_MARKS, length=0)
        left.set_ylabel("SLO attainment (%)")
        left.set_ylim(0, 116)
        left.set_yticks(range(0, 101, 20))
        for place, share in enumerate(shares):
            left.text(place, ABOVE_MARKS, number(share, 100, 1), ha="center", fontsize=7.5, bbox=LABEL_BOX)
        _marks(left, parts)
        right.bar_label(bars, fmt=amount, padding=1.5, fontsize=7.5, bbox=LABEL_BOX)
        right.set_ylabel("SLO goodput (tokens/s)")
        right.margins(y=0.12)
        right.set_ylim(bottom=0)
        legend_above(figure, left)
        caption_below(figure, [*TPOT_SAID, *run_said(block)])
        return figure


def _labels(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return names with their objectives below; where neighbours would touch, shorter names, at last on one line."""
    room = BARS_IN / len(parts) / CHARACTER_IN
    for names in (list(parts), _elided(list(parts), max(int(room) - 1, LEAST_LABEL_CHARACTERS))):
        labels = [_with_slo(name, part) for name, part in zip(names, parts.values(), strict=True)]
        longest = [max(map(len, label.split("\n"))) for label in labels]
        if max(((one + other) / 2 for one, other in pairwise(longest)), default=0.0) + 1 <= room:
            return labels
    names = _elided(list(parts), LONGEST_CLASS)
    return [_with_slo(name, part).replace("\n", " ") for name, part in zip(names, parts.values(), strict=True)]


def _marks(axes: Axes, parts: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw the shares that meet TTFT and TPOT, each on its side of the bar's middle."""
    for (measure, label), marker, side in zip(ALONE.items(), "oD", (-1, 1), strict=True):
        alone = [100 * (part[f"{measure}_attainment"] or 0.0) for part in parts.values()]
        places = [place + side * MARKS_APART for place in range(len(parts))]
        axes.plot(places, alone, marker, markersize=5, color=GREY, mfc="white", clip_on=False, label=label)


def comparison(runs: Sequence[tuple[str, Mapping[str, Any]]], failed: int = 0, served: Sequence[str] = ()) -> Figure:
    """Return two panels with a row for each of the runs ``(label, metrics)``, the first on top.

    The left panel has attainment in % per class and of all, the right one goodput in tokens/s, stacked by class. The
    caption counts the `failed` runs beside these, and has the sentences `served`.
    """
    blocks = [metrics["specsim"] for _, metrics in runs]
    names = list(dict.fromkeys(name for block in blocks for name in block["classes"]))
    verdicts = [verdict_of(block["load"]) for block in blocks]
    short = sum(bool(block["load"].get("too_short")) for block in blocks)
    told = _elided([label for label, _ in runs])
    labels = [f"{label} {GLYPHS[each]}".rstrip() for label, each in zip(told, verdicts, strict=True)]
    with style():
        figure = new_figure(AROUND_ROWS_IN + ROW_IN * len(labels))
        left, right = figure.subplots(1, 2, sharey=True)
        _attainment(left, blocks, names)
        _goodput(right, blocks, names)
        left.set_yticks(range(len(labels)), labels)
        left.set_ylim(len(labels) - 0.4, -0.6)
        left.set_ylabel("Run")
        for axes in (left, right):
            axes.tick_params(axis="y", length=0)
            axes.grid(axis="y", visible=False)
        legend_above(figure, left)
        caption_below(
            figure,
            [
                "One run each: no interval.",
                *served,
                *sentences(stand_ins(blocks)),
                *marks_said(verdicts, short, failed),
            ],
        )
        return figure


def _elided(labels: Sequence[str], most: int = MOST_LABEL_CHARACTERS) -> list[str]:
    """Return labels without their middle where they are long, unless two would become one."""
    short = [shorten(each, most) for each in labels]
    return short if len(set(short)) == len(set(labels)) else list(labels)


def _with_slo(name: str, part: Mapping[str, Any]) -> str:
    if name == ALL:
        return name
    ttft, tpot = objective(part["slo_ttft_range_s"], 1), objective(part["slo_tpot_range_s"], 1000)
    return f"{name}\nTTFT {ttft}\nTPOT {tpot}"


BAND = 0.1
MOST_OF_A_PANEL = 50
"""The ratio of the ends of an axis up to which 2 and 5 have room between its decades in half a figure."""


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
        _label(axis, dense=high < MOST_OF_A_PANEL * low)


def _label(axis: Axis, dense: bool) -> None:
    """Label the decades of a logarithmic axis, and where they are few 2 and 5 times each."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if dense else (1,)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


# More points than a printed line can show only enlarge the PDF.
MOST_POINTS = 1000
DISTRIBUTION_SAID = (
    "TPOT runs from the first token (tpot_s). slo_by_class also marks AdaServe's, from the first decoding pass."
)


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
        caption_below(figure, [DISTRIBUTION_SAID, *run_said(metrics["specsim"])])
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
    """Return about `most` sorted latencies in ms, and the share of requests below the first and up to each in %."""
    column = slo.removeprefix("slo_")
    values_ms = 1000 * part[column].to_numpy(dtype=np.float64)
    completed = (part["rejected_reason"] == "").to_numpy(dtype=bool)
    measured = completed & ~np.isnan(values_ms)
    # One-token outputs have no TPOT and meet any SLO.
    before = int((completed & ~measured).sum())
    values_ms = np.sort(values_ms[measured])
    shares = 100 * (before + np.arange(len(values_ms) + 1)) / len(part)
    # The last that meets the objective is kept: the curve has its share there, however few points it has.
    met = values_ms.searchsorted(1000 * (1 + SLO_RELATIVE_TOLERANCE) * part[slo].to_numpy()[:1], side="right")
    places = [*np.linspace(0, len(values_ms) - 1, min(most, len(values_ms))), *(met[met > 0] - 1)]
    kept = np.unique(np.array(places, dtype=int))
    return values_ms[kept], np.concatenate([shares[:1], shares[1:][kept]])


def _limits(axes: Axes, values: Floats) -> tuple[float, float]:
    """Scale the x axis, logarithmically if the values span more than a decade, and return its ends."""
    values = values[values > 0]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    if low > 0 and high > 10 * low:
        low, high = low / 1.15, high * 1.15
        axes.set_xscale("log")
        _label(axes.xaxis, dense=high < 200 * low)
    else:
        edge = 0.06 * (high - low) or 0.1 * high
        low, high = low - edge, high + edge
    axes.set_xlim(low, high)
    return low, high
