"""The figures of a recording; import it late, since it loads matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from profiler.acceptance.curves import (
    BINS,
    FEWEST_TOKENS,
    ComparedCurve,
    OnPath,
    by_confidence,
    on_path,
    request_rates,
    run_before,
    settling,
)
from profiler.acceptance.trace_file import RecordedTrace
from specsim.figures.plots import save
from specsim.figures.style import GREY, PALETTE, colours, legend_above, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DEPTHS = (1, 2, 4, 8)
FEWEST = 20
"""The least rows of a bin that is drawn."""
MARKS = np.arange(10, 101, 10)


def save_figures(
    acceptance_trace: RecordedTrace, compared: Mapping[str, Sequence[ComparedCurve]], folder: Path
) -> list[Path]:
    """Draw every figure of a recording into `folder` as PNG; return the files."""
    rows = {name: on_path(acceptance_trace, name) for name in acceptance_trace.categories}
    with style():
        figures = {
            "confidence": confidence_figure(rows),
            "accepted_rejected": histogram_figure(rows),
            "requests": request_figure(rows),
        }
        if compared:
            figures["lengths"] = length_figure(compared)
    return save(figures, folder, ("png",))


def confidence_figure(rows: Mapping[str, OnPath]) -> Figure:
    """Draw proposals' acceptance against confidence by category and depth in the chain (SpecServe Fig. 7)."""
    figure, panels = _panels(list(rows))
    for _, axes in panels:
        axes.plot((0, 1), (0, 1), color=GREY, linestyle=":", linewidth=0.9, label="confidence = acceptance")
        axes.set(xlim=(0, 1), ylim=(0, 1.02))
    for depth, colour in zip(DEPTHS, PALETTE, strict=False):
        lines = []
        for name, _ in panels:
            chosen = (run_before(rows[name]) >= depth - 1) & rows[name].proposed
            bins = by_confidence(rows[name].confidence[chosen], rows[name].right[chosen])
            seen = bins.rows >= FEWEST
            lines.append((bins.confidence[seen], bins.accepted[seen]))
        # The legend is the first panel's: a depth that some other panel has stands in it.
        label = f"depth {depth}" if any(len(x) for x, _ in lines) else None
        for (_, axes), line in zip(panels, lines, strict=True):
            axes.plot(*line, marker="o", markersize=2.5, color=colour, label=label)
    _edges(panels, "confidence of the proposal", "accepted")
    legend_above(figure, panels[0][1])
    return figure


def histogram_figure(rows: Mapping[str, OnPath]) -> Figure:
    """Draw the confidences of accepted and of rejected proposals (SmartSpec Fig. 17), with the number of none."""
    figure, panels = _panels(list(rows))
    for name, axes in panels:
        made = rows[name].proposed
        if not made.all():
            axes.set_title(f"{name}\nno proposal at {(~made).sum():,} of {len(made):,}")
        for right, label, colour in ((True, "accepted", PALETTE[0]), (False, "rejected", PALETTE[4])):
            values = rows[name].confidence[made & (rows[name].right == right)]
            axes.hist(values, bins=2 * BINS, range=(0, 1), histtype="stepfilled", alpha=0.45, color=colour, label=label)
        axes.set_xlim(0, 1)
    _edges(panels, "confidence of the proposal", "proposals")
    legend_above(figure, panels[0][1])
    return figure


def length_figure(compared: Mapping[str, Sequence[ComparedCurve]]) -> Figure:
    """Draw mean accepted tokens against depth and width: recorded (points, 95%) and drawn from the curves (lines)."""
    figure, panels = _panels(list(compared))
    for name, axes in panels:
        axes.plot([], [], color=GREY, marker="o", markersize=2.5, linestyle="none", label="recorded, 95%")
        axes.plot([], [], color=GREY, label="drawn from curves")
        for width, colour in zip((1, 2, 3), PALETTE, strict=False):
            _lengths(axes, [each for each in compared[name] if each.width == width], width, colour)
        axes.set_ylim(bottom=0)
        axes.set_xticks(range(1, 9))
    _edges(panels, "depth", "accepted tokens")
    legend_above(figure, panels[0][1])
    return figure


def _lengths(axes: Axes, shapes: Sequence[ComparedCurve], width: int, colour: str) -> None:
    if not shapes:
        return
    depth = np.array([each.depth for each in shapes])
    axes.plot(depth, [each.mean_drawn for each in shapes], color=colour, label=f"width {width}")
    axes.errorbar(
        depth + 0.15 * (width - 2),
        [each.mean for each in shapes],
        yerr=[each.half_width for each in shapes],
        color=colour,
        fmt="o",
        markersize=2.5,
        elinewidth=0.8,
    )


def request_figure(rows: Mapping[str, OnPath]) -> Figure:
    """Draw the spread between requests, and how fast a request's share right settles (LAPS-SD Fig. 3)."""
    figure = new_figure(2.6)
    spread, settled = figure.subplots(1, 2)
    ink = colours(rows)
    longest_text = max(int(np.bincount(of.text).max()) for of in rows.values())
    marks = MARKS[longest_text >= 2 * MARKS]
    settled.set_visible(bool(len(marks)))
    for name, of in rows.items():
        rates = np.sort(request_rates(of))
        share = np.arange(len(rates) + 1) / max(len(rates), 1)
        spread.step(np.concatenate(([0.0], rates)), share, where="post", color=ink[name], label=name)
        settled.plot(marks, settling(of, marks).distance if len(marks) else [], color=ink[name])
    spread.set(xlabel="share right of a request", ylabel="cumulative share of requests", xlim=(0, 1), ylim=(0, 1))
    spread.set_title(f"requests of {FEWEST_TOKENS} tokens or more")
    settled.set(xlabel="tokens so far", ylabel="|share so far - share in all|", ylim=(0, None), xlim=(0, None))
    settled.set_title(f"requests of {2 * marks[-1]} tokens or more" if len(marks) else "")
    legend_above(figure, spread, columns=3)
    return figure


def _panels(names: Sequence[str]) -> tuple[Figure, list[tuple[str, Axes]]]:
    columns = min(3, len(names))
    lines = -(-len(names) // columns)
    figure = new_figure(0.5 + 1.8 * lines)
    grid = figure.subplots(lines, columns, squeeze=False)
    panels: list[tuple[str, Axes]] = list(zip(names, grid.flat, strict=False))
    for axes in grid.flat[len(names) :]:
        axes.set_visible(False)
    for name, axes in panels:
        axes.set_title(name)
    return figure, panels


def _edges(panels: Sequence[tuple[str, Axes]], below: str, beside: str) -> None:
    """Name the axes once: below the lowest panel of a column, beside the first panel of a row."""
    columns = min(3, len(panels))
    for place, (_, axes) in enumerate(panels):
        if place + columns >= len(panels):
            axes.set_xlabel(below)
        if place % columns == 0:
            axes.set_ylabel(beside)
