"""Two figures of a study: errors of whole runs by load, and errors of passes by their length."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.fidelity.tables import Tables
from profiler.fidelity.verdicts import RUN_TARGETS, Verdict, run_verdicts
from specsim.figures.plots import save
from specsim.figures.style import MARKERS, PALETTE, colours, legend_above, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

NAMES = {"mean_ttft_ms": "TTFT", "mean_tpot_ms": "TPOT", "mean_e2el_ms": "E2E"}
MARKS = ".x"
LINEAR = 10.0
"""Errors in % up to which the axis of passes is linear."""


def draw(tables: Tables, folder: Path) -> list[Path]:
    """Draw both figures into a folder; return the files."""
    drawn = {"fidelity_runs": runs(run_verdicts(tables.cells)), "fidelity_passes": passes(tables.passes)}
    return save(drawn, folder, ("png",))


def runs(verdicts: list[Verdict]) -> Figure:
    """Return the errors of TTFT, TPOT and E2E latency over load, a row a pair; bars reach as far as is allowed."""
    pairs = sorted({each.pair for each in verdicts})
    ink = colours(dict.fromkeys(each.scheduler for each in verdicts))
    with style():
        figure = new_figure(1.9 * max(len(pairs), 1) + 0.5)
        panels: Any = figure.subplots(max(len(pairs), 1), len(RUN_TARGETS), squeeze=False, sharex=True, sharey="row")
        for row, pair in enumerate(pairs):
            for column, metric in enumerate(NAMES):
                axes = panels[row][column]
                _panel(axes, [each for each in verdicts if (each.pair, each.metric) == (pair, metric)], ink)
                axes.set_title(f"{pair}: {NAMES[metric]}")
                if row == len(pairs) - 1:
                    axes.set_xlabel("load")
            panels[row][0].set_ylabel("error, %")
        if pairs:
            legend_above(figure, panels[0][0])
    return figure


def _panel(axes: Any, verdicts: list[Verdict], ink: dict[str, str]) -> None:
    loads = sorted({each.load for each in verdicts})
    for place, (scheduler, colour) in enumerate(ink.items()):
        mine = sorted((each for each in verdicts if each.scheduler == scheduler), key=lambda each: each.load)
        # Beside each other, so that bars of one load do not hide each other.
        at = [loads.index(each.load) + 0.12 * (place - (len(ink) - 1) / 2) for each in mine]
        axes.errorbar(
            at,
            [100 * each.error for each in mine],
            [100 * each.allowed for each in mine],
            fmt=MARKERS[place % len(MARKERS)],
            color=colour,
            markersize=3,
            elinewidth=0.6,
            label=scheduler,
        )
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set_xticks(range(len(loads)), [f"{load:g}" for load in loads])


def passes(table: DataFrame) -> Figure:
    """Return the error of each pass over its measured milliseconds, a panel a pair."""
    some = table[table.measured_s > 0]
    pairs, kinds = sorted(some.pair.unique()), sorted(some.kind.unique())
    ink = colours(kinds)
    with style():
        figure = new_figure(2.9)
        panels: Any = figure.subplots(1, max(len(pairs), 1), squeeze=False, sharey=True)
        for axes, pair in zip(panels[0], pairs, strict=False):
            mine = some[some.pair == pair]
            for place, kind in enumerate(kinds):
                rows = mine[mine.kind == kind]
                error = 100 * (rows.predicted_s / rows.measured_s - 1)
                mark = MARKS[place // len(PALETTE) % len(MARKS)]
                axes.plot(1e3 * rows.measured_s, error, mark, markersize=2, color=ink[kind], label=kind)
            axes.axhline(0, color="black", linewidth=0.6)
            axes.set(xscale="log", xlabel="measured, ms", title=pair)
            axes.set_yscale("symlog", linthresh=LINEAR)
            axes.xaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter("")
        panels[0][0].set_ylabel("error, %")
        if pairs:
            legend_above(figure, panels[0][0], columns=5)
    return figure
