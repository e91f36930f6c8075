"""Attainment by class, with the rows of its figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.core.request import Floats
from specsim.figures.style import (
    CHARACTER_IN,
    GLYPHS,
    GREY,
    amount,
    caption_below,
    colours,
    fits_level,
    hatches,
    legend_above,
    legend_name,
    marks_said,
    name_ticks,
    new_figure,
    run_said,
    style,
)
from specsim.metrics.seeds import verdict_of
from specsim.metrics.tables import objective, sentences, stand_ins

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


ROW_IN = 0.19
AROUND_ROWS_IN = 0.95
CLASS_MARKERS = ("o", "s", "^", "D", "v", "P")


def rows_of_runs(labels: Sequence[str], blocks: Sequence[Mapping[str, Any]], names: Sequence[str], what: str) -> Figure:
    """Return two panels with a row per run, the first on top: attainment in %, and goodput in tokens/s by class.

    Parameters
    ----------
    labels, blocks : the name of each run, and the `specsim` block of its metrics. names : the classes.
    what : the setting that the labels are of.
    """
    with style():
        figure = new_figure(AROUND_ROWS_IN + ROW_IN * len(labels))
        left, right = figure.subplots(1, 2, sharey=True)
        _attainment(left, blocks, names)
        _goodput(right, blocks, names)
        left.set_yticks(range(len(labels)), labels)
        left.set_ylim(len(labels) - 0.4, -0.6)
        left.set_ylabel(what)
        for axes in (left, right):
            axes.tick_params(axis="y", length=0)
            axes.grid(axis="y", visible=False)
        legend_above(figure, left)
        return figure


def _attainment(axes: Axes, blocks: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Draw a bar for all requests and a mark for each class; marks of equal value are moved apart."""
    rows = range(len(blocks))
    colour = colours(names)
    step = 0.5 / max(len(names) - 1, 1)
    for place, name in enumerate(names):
        held = [
            (row, block["classes"][name]["slo_attainment"])
            for row, block in enumerate(blocks)
            if name in block["classes"]
        ]
        shown = [(100 * share, row - 0.25 + place * step) for row, share in held if share is not None]
        axes.plot(
            *zip(*shown, strict=True) if shown else ([], []),
            marker=CLASS_MARKERS[place % len(CLASS_MARKERS)],
            color=colour[name],
            linestyle="",
            markersize=3.2,
            label=legend_name(name),
            clip_on=False,
        )
    shares = [100 * (block["slo_attainment"] or 0.0) for block in blocks]
    axes.barh(rows, shares, height=0.72, color=GREY, alpha=0.3, linewidth=0, label="all")
    axes.set_xlabel("SLO attainment (%)")
    axes.set_xlim(0, 100)


def stacked_goodput(blocks: Sequence[Mapping[str, Any]], names: Sequence[str]) -> tuple[Floats, Floats]:
    """Return goodput in tokens/s by class and run, (C, R), and its cumulative sums over classes, (C + 1, R)."""
    key = "slo_goodput_tokens_per_s"
    rates = np.array([[block["classes"].get(name, {}).get(key) or 0.0 for name in names] for block in blocks]).T
    return rates, np.vstack((np.zeros(len(blocks)), rates.cumsum(axis=0)))


def _goodput(axes: Axes, blocks: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    rates, starts = stacked_goodput(blocks, names)
    colour, hatch = colours(names), hatches(names)
    for name, rate, start in zip(names, rates, starts[:-1], strict=True):
        axes.barh(
            range(len(blocks)),
            rate,
            height=0.72,
            left=start,
            color=colour[name],
            hatch=hatch[name],
            edgecolor="white",
            linewidth=0,
        )
    for row, total in enumerate(starts[-1]):
        axes.annotate(amount(total), (total, row), (2, 0), textcoords="offset points", va="center", fontsize=7)
    axes.set_xlabel("SLO goodput (tokens/s)")
    axes.margins(x=0.12)
    axes.set_xlim(left=0)


ALL = "all"
ALONE = {"ttft": "met TTFT alone", "tpot": "met TPOT alone, from the first decoding pass"}
MARKERS = ("o", "D")
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
MOST_LABEL_CHARACTERS = 36
LABEL_ROOM_IN = 6.2
TICK_LINE_IN = 0.13
MOST_GROUPS = 10
# Keeps numbers over bars readable across a grid line.
LABEL_BOX = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}


def slo_by_class(metrics: Mapping[str, Any]) -> Figure:
    """Return two panels, attainment in % and goodput in tokens/s, one bar per class and one for all.

    Marks in front of each attainment are the shares that meet TTFT, and TPOT (AdaServe's measure).
    """
    block = metrics["specsim"]
    parts = {**block["classes"], ALL: block}
    with style():
        figure = new_figure(2.55)
        left, right = figure.subplots(1, 2)
        shares = [100 * (part["slo_attainment"] or 0.0) for part in parts.values()]
        rates = [part["slo_goodput_tokens_per_s"] or 0.0 for part in parts.values()]
        for axes, heights in ((left, shares), (right, rates)):
            bars = axes.bar(range(len(parts)), heights, width=0.62, color=_bar_colours(parts))
            name_ticks(axes, [_with_slo(name, part) for name, part in parts.items()], room_in=3.0)
            axes.grid(axis="x", visible=False)
            axes.set_xlabel("SLO class (TTFT in s, TPOT in ms)")
            axes.tick_params(axis="x", pad=BELOW_MARKS)
        _percent_axis(left)
        for place, share in enumerate(shares):
            left.text(place, ABOVE_MARKS, amount(share), ha="center", fontsize=7.5, bbox=LABEL_BOX)
        _marks(left, parts)
        right.bar_label(bars, fmt=amount, padding=1.5, fontsize=7.5, bbox=LABEL_BOX)
        right.set_ylabel("SLO goodput (tokens/s)")
        right.margins(y=0.12)
        legend_above(figure, left)
        caption_below(figure, [*TPOT_SAID, *run_said(block)])
        return figure


def _marks(axes: Axes, parts: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw the shares that meet TTFT and TPOT, each on its side of the bar's middle."""
    for (measure, label), marker, side in zip(ALONE.items(), MARKERS, (-1, 1), strict=True):
        alone = [100 * (part[f"{measure}_attainment"] or 0.0) for part in parts.values()]
        places = [place + side * MARKS_APART for place in range(len(parts))]
        axes.plot(places, alone, marker, markersize=5, color=GREY, mfc="white", clip_on=False, label=label)


def comparison(runs: Sequence[tuple[str, Mapping[str, Any]]], failed: int = 0) -> Figure:
    """Return two panels of the runs ``(label, metrics)``: a group of bars per run, or a row per run if there are many.

    The upper panel has attainment in % per class and of all, the lower one goodput in tokens/s, stacked by class. A
    ``key=`` with which all labels begin is left out of them. The caption counts the `failed` runs beside these.
    """
    blocks = [metrics["specsim"] for _, metrics in runs]
    names = list(dict.fromkeys(name for block in blocks for name in block["classes"]))
    verdicts = [verdict_of(block["load"]) for block in blocks]
    what, values = _shared_key([label for label, _ in runs])
    many = len(runs) > MOST_GROUPS
    told = _elided(values) if many else _stacked(values)
    labels = [f"{value} {GLYPHS[each]}".rstrip() for value, each in zip(told, verdicts, strict=True)]
    with style():
        figure = rows_of_runs(labels, blocks, names, what) if many else _groups(labels, blocks, names, what)
        caption_below(
            figure, ["One run each: no interval.", *sentences(stand_ins(blocks)), *marks_said(verdicts, failed)]
        )
        return figure


def _groups(labels: Sequence[str], blocks: Sequence[Mapping[str, Any]], names: Sequence[str], what: str) -> Figure:
    level = fits_level(labels, LABEL_ROOM_IN)
    # Slanted labels need height of their own: sin 35 degrees of their length.
    lines = 1 + max(label.count("\n") for label in labels)
    figure = new_figure(3.9 + (TICK_LINE_IN * lines if level else 0.57 * CHARACTER_IN * max(map(len, labels))))
    above, below = figure.subplots(2, 1, sharex=True)
    _group_attainment(above, blocks, names)
    _stack_goodput(below, blocks, names)
    name_ticks(below, labels, room_in=LABEL_ROOM_IN)
    above.tick_params(axis="x", length=0)
    below.set_xlabel(what)
    below.set_xlim(-0.6, len(blocks) - 0.4)
    legend_above(figure, above)
    return figure


def _shared_key(labels: Sequence[str]) -> tuple[str, list[str]]:
    """Return the ``key`` that all labels ``key=value`` share, and their values; else a general name, and the labels."""
    keys = {label.partition("=")[0] for label in labels}
    single = all(label.count("=") == 1 and " " not in label and "," not in label for label in labels)
    if len(keys) != 1 or not single:
        return "Run", list(labels)
    return keys.pop(), [label.partition("=")[2] for label in labels]


def _stacked(labels: Sequence[str]) -> list[str]:
    """Return labels with a line for each of their settings if they then fit side by side; else without their middle."""
    lines = [label.replace(",", "\n") for label in labels]
    return lines if fits_level([f"{each}  " for each in lines], LABEL_ROOM_IN) else _elided(labels)


def _elided(labels: Sequence[str]) -> list[str]:
    """Return labels without their middle where they are long, unless two would become one."""
    kept = MOST_LABEL_CHARACTERS // 2 - 1
    short = [each if len(each) <= MOST_LABEL_CHARACTERS else f"{each[:kept]}..{each[-kept:]}" for each in labels]
    return short if len(set(short)) == len(set(labels)) else list(labels)


def _group_attainment(axes: Axes, blocks: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    width = 0.8 / (len(names) + 1)
    colour, hatch = colours(names) | {ALL: GREY}, hatches(names)
    for place, name in enumerate([*names, ALL]):
        parts = [block if name == ALL else block["classes"].get(name, {}) for block in blocks]
        heights = [100 * (part.get("slo_attainment") or 0.0) for part in parts]
        offset = (place - len(names) / 2) * width
        centres = [run + offset for run in range(len(blocks))]
        axes.bar(
            centres,
            heights,
            width=0.92 * width,
            color=colour[name],
            hatch=hatch.get(name, ""),
            edgecolor="white",
            linewidth=0,
            label=legend_name(name),
        )
    axes.grid(axis="x", visible=False)
    _percent_axis(axes)


def _stack_goodput(axes: Axes, blocks: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    rates, starts = stacked_goodput(blocks, names)
    colour, hatch = colours(names), hatches(names)
    for name, rate, start in zip(names, rates, starts[:-1], strict=True):
        axes.bar(
            range(len(blocks)),
            rate,
            width=0.62,
            bottom=start,
            color=colour[name],
            hatch=hatch[name],
            edgecolor="white",
            linewidth=0,
        )
    for run, total in enumerate(starts[-1]):
        axes.annotate(amount(total), (run, total), (0, 1.5), textcoords="offset points", ha="center", fontsize=7)
    axes.grid(axis="x", visible=False)
    axes.set_ylabel("SLO goodput (tokens/s)")
    axes.margins(y=0.12)


def _percent_axis(axes: Axes) -> None:
    axes.set_ylabel("SLO attainment (%)")
    axes.set_ylim(0, 116)
    axes.set_yticks(range(0, 101, 20))


def _bar_colours(parts: Mapping[str, Any]) -> list[str]:
    return list((colours(name for name in parts if name != ALL) | {ALL: GREY}).values())


def _with_slo(name: str, part: Mapping[str, Any]) -> str:
    if name == ALL:
        return name
    promises = (("slo_ttft_range_s", 1), ("slo_tpot_range_s", 1000))
    shown = [objective(part[key], scale) for key, scale in promises]
    return "\n".join((name, *(f"{what} {value}" for what, value in zip(("TTFT", "TPOT"), shown, strict=True))))
