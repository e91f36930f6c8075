"""Recorded acceptance: by confidence, and accepted tokens of chains beside the simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specsim.figures.line_ends import name_ends
from specsim.figures.style import GREY, MARKERS, PALETTE, WIDE_IN, caption_below, new_figure, style
from specsim.results.stand_in import sentences, stand_ins_of
from specsim.results.sweep_table import ALL, CLASS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

FEWEST = 50
"""The least proposals of a bin that is drawn."""
PANEL_IN = 2.0
K, EMITTED = "scheduler.num_speculative_tokens", "mean_tokens_per_verification"
DASHES = ("-", "--", ":")


def confidence_curves(table: DataFrame) -> Figure:
    """Return a panel for each temperature: the share of accepted proposals against confidence, a line per pair.

    Parameters
    ----------
    table : rows of `profiler.acceptance.recorded_curves.confidence_table`, of several pairs. Bins of fewer than
        `FEWEST` proposals are left out.
    """
    table = table[table["proposals"] >= FEWEST]
    parts = sorted(table["temperature"].unique())
    with style():
        figure = new_figure(PANEL_IN + 1.0, 3.5 * len(parts))
        panels = figure.subplots(1, len(parts), sharey=True, squeeze=False).ravel()
        for axes, temperature in zip(panels, parts, strict=True):
            axes.plot((0, 100), (0, 100), color=GREY, linestyle=":", linewidth=0.9)
            mine = table[table["temperature"] == temperature]
            above = (mine["accepted"] - mine["confidence"]).groupby(mine["pair"]).mean().sort_values()
            looks = {pair: (PALETTE[place], MARKERS[place]) for place, pair in enumerate(sorted(above.index))}
            for place, pair in enumerate(above.index):
                rows, (ink, marker) = mine[mine["pair"] == pair], looks[pair]
                x, y, reach = (100 * rows[name] for name in ("confidence", "accepted", "half_width"))
                axes.errorbar(x, y, reach, color=ink, marker=marker, markersize=3, elinewidth=0.7)
                axes.text(99, 2 + 8 * place, pair, color=ink, ha="right", fontsize=7.5)
            axes.set(xlim=(0, 100), ylim=(0, 104), xlabel="Confidence of the drafter (%)")
            axes.set_title(f"temperature {temperature:g}" if temperature else "greedy")
        panels[0].set_ylabel("Proposals accepted (%)")
        return figure


def chain_lengths(recorded: DataFrame, simulated: DataFrame, categories: Mapping[str, str]) -> Figure:
    """Return a panel for each category: accepted tokens of a verification against the length of the drafted chain.

    Recorded ones are points with 95% intervals; simulated ones are lines, one for each acceptance.

    Parameters
    ----------
    recorded : rows of `profiler.acceptance.recorded_curves.chain_table`. simulated : rows of `Sweep.table` of
        ``vllm_spec`` over acceptances and lengths. categories : the recorded category of each SLO class.
    """
    kinds = list(simulated["acceptance"].unique())
    ink = dict(zip(kinds, PALETTE, strict=False))
    longest = int(simulated[K].max())
    with style():
        figure = new_figure(PANEL_IN + 0.75, WIDE_IN)
        panels = figure.subplots(1, len(categories), sharey=True, squeeze=False).ravel()
        for axes, (slo_class, category) in zip(panels, categories.items(), strict=True):
            points = recorded[(recorded["category"] == category) & (recorded["draft_tokens"] <= longest)]
            look = {"linestyle": "none", "marker": "o", "markersize": 3, "color": "black", "elinewidth": 0.8}
            axes.errorbar(points["draft_tokens"], points["accepted_tokens"], points["half_width"], **look)
            mine = simulated[(simulated[CLASS] == slo_class) & (simulated[CLASS] != ALL)]
            ends = _lines(axes, mine, kinds, ink)
            axes.set(title=category, xlabel="Chain drafted (tokens)", xticks=range(1, longest + 1))
            axes.set_ylim(0, 1.08 * longest)
            if axes is panels[-1]:
                name_ends(axes, ends, ink, PANEL_IN)
        panels[0].set_ylabel("Accepted tokens of a verification")
        first = recorded[(recorded["category"] == next(iter(categories.values()))) & (recorded["draft_tokens"] == 5)]
        at = 5.0, float(first["accepted_tokens"].iloc[0])
        panels[0].annotate("recorded, 95%", at, (-7, 6), textcoords="offset points", ha="right", fontsize=7.5)
        if said := stand_ins_of(simulated):
            caption_below(figure, sentences(said))
        return figure


def _lines(axes: Axes, table: DataFrame, kinds: list[str], ink: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    ends = {}
    for kind, dashes in zip(kinds, DASHES, strict=False):
        means = (table[table["acceptance"] == kind].groupby(K)[EMITTED].mean() - 1).sort_index()
        axes.plot(means.index, means, color=ink[kind], linestyle=dashes)
        ends[kind] = float(means.index[-1]), float(means.iloc[-1])
    return ends
