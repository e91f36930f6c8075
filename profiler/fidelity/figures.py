"""Two figures of a study: errors of whole runs by load, and predicted against measured seconds of passes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from profiler.fidelity.tables import Tables
from profiler.fidelity.verdicts import RUN_TARGETS, Verdict, run_verdicts
from specsim.figures.plots import save
from specsim.figures.style import MARKERS, colours, legend_above, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {"mean_ttft_ms": "TTFT", "mean_tpot_ms": "TPOT", "mean_e2el_ms": "E2E"}


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


def passes(table: Any) -> Figure:
    """Return predicted against measured milliseconds of each pass, a panel a pair."""
    some = table[table.measured_s > 0]
    pairs = sorted(some.pair.unique())
    ink = colours(sorted(some.kind.unique()))
    with style():
        figure = new_figure(2.7)
        panels: Any = figure.subplots(1, max(len(pairs), 1), squeeze=False)
        for axes, pair in zip(panels[0], pairs, strict=False):
            mine = some[some.pair == pair]
            for kind, colour in ink.items():
                rows = mine[mine.kind == kind]
                axes.plot(1e3 * rows.measured_s, 1e3 * rows.predicted_s, ".", markersize=2, color=colour, label=kind)
            ends = 1e3 * np.array([mine.measured_s.min(), mine.measured_s.max()])
            axes.plot(ends, ends, color="black", linewidth=0.6)
            axes.set(xscale="log", yscale="log", xlabel="measured, ms", title=pair)
        panels[0][0].set_ylabel("predicted, ms")
        if pairs:
            legend_above(figure, panels[0][0], columns=4)
    return figure
