"""The highest rates of many systems, one below the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from specsim.figures.capacity import FILLS, MARKER_POINTS, SAID, Curve, around, doubt
from specsim.figures.style import CHARACTER_IN, PALETTE, WIDE_IN, caption_below, new_figure, style
from specsim.results.capacity import Capacity, capacity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from specsim.results.capacity import Asked

ROW_IN, AROUND_IN = 0.2, 0.75
BAR_POINTS = 5.0
MOST_CHARACTERS = 48
ARROW_POINTS, BESIDE = 4.0, 1.06
BEYOND: dict[str, Any] = {"marker": ">", "color": PALETTE[0]}
BELOW: dict[str, Any] = {"marker": "<", "color": PALETTE[4]}


def ranked(
    asked: Asked, label: str, lines: Mapping[str, Curve], *, title: str = "", covered: Sequence[str] = ()
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
            _draw(axes, row, lines[name], found[name], left)
        axes.set_xscale("log", base=2)
        axes.set_xlim(left, right)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_yticks(range(len(names)), [_shortened(name) for name in names])
        axes.set_ylim(-0.7, len(names) - 0.3)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(label)
        axes.set_title(title, loc="left", x=-CHARACTER_IN)
        caption_below(figure, _caption(asked, lines, found, covered, left))
        return figure


def _place(each: Capacity) -> tuple[float, float]:
    """Return what orders systems, those last that keep the target nowhere."""
    mean = each.mean if isfinite(each.mean) else 0.0
    return (-1.0 if each.keeps is None else each.keeps), mean


def _draw(axes: Axes, row: int, curve: Curve, each: Capacity, left: float) -> None:
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


def _shortened(name: str) -> str:
    return name if len(name) <= MOST_CHARACTERS else f"{name[: MOST_CHARACTERS - 1]}\N{HORIZONTAL ELLIPSIS}"


def _caption(
    asked: Asked, lines: Mapping[str, Curve], found: Mapping[str, Capacity], covered: Sequence[str], left: float
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
