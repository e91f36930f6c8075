"""Sizes, a palette for colour-blind readers and the protocol of a run, for all figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Protocol

import matplotlib as mpl
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

WIDE_IN = 7.0
DPI = 200
# Mean width of a character of the tick labels, 7.5 points.
CHARACTER_IN = 0.057
GREY = "#555555"
CAPTION_CHARACTERS = 132
CAPTION_LINE_IN = 0.13

# Okabe and Ito (2008), without black (axes) and yellow (too faint for lines on white).
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
MARKERS = "osD^vP"
HATCHES = ("", "//", "..", "xx", "--", "++")

STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "legend.fontsize": 7.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.4,
    "grid.color": "#dddddd",
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "hatch.linewidth": 0.5,
    # A $ in a user's name is a dollar sign, not mathematics.
    "text.parse_math": False,
    # Type 42 keeps text editable, and conference checkers refuse type 3.
    "pdf.fonttype": 42,
    "savefig.dpi": DPI,
    # Without a salt the ids inside an SVG are random.
    "svg.hashsalt": "specsim",
}


class RunData(Protocol):
    """What a figure reads of a run: a `StoredRun`, or a run in memory."""

    @property
    def metrics(self) -> Mapping[str, Any]:
        """The content of ``metrics.json``."""

    @property
    def requests(self) -> DataFrame:
        """The rows of ``requests.parquet``."""

    @property
    def passes(self) -> DataFrame | None:
        """The rows of ``passes.parquet``; None if they were not recorded."""


def style() -> AbstractContextManager[None]:
    """Return the matplotlib context in which figures are drawn and saved; the caller's settings are kept."""
    return mpl.rc_context(STYLE)


def new_figure(height_in: float, width_in: float = WIDE_IN) -> Figure:
    """Return an empty figure without pyplot, which would keep it alive and open a window."""
    return Figure(figsize=(width_in, height_in), layout="constrained")


def colours(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each name, in order; colours repeat after six."""
    return {name: PALETTE[place % len(PALETTE)] for place, name in enumerate(names)}


def hatches(names: Iterable[str]) -> dict[str, str]:
    """Return a hatch for each name, in order, which tells bars apart in grey print."""
    return {name: HATCHES[place % len(HATCHES)] for place, name in enumerate(names)}


def legend_name(name: str) -> str:
    """Return a name for a legend; matplotlib leaves out names that begin with an underscore."""
    return f"\N{ZERO WIDTH SPACE}{name}" if name.startswith("_") else name


def legend_above(figure: Figure, axes: Axes, columns: int = 6) -> None:
    """Put the legend of ``axes`` above the figure."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=min(columns, max(len(labels), 1)), handlelength=1.8
    )


def caption_below(figure: Figure, said: Sequence[str]) -> None:
    """Put sentences below a figure, which grows by their lines."""
    lines = wrap(" ".join(said), CAPTION_CHARACTERS, break_on_hyphens=False)
    figure.supxlabel("\n".join(lines), fontsize=7, color=GREY, x=0.01, ha="left")
    figure.set_figheight(figure.get_figheight() + CAPTION_LINE_IN * len(lines))


def name_ticks(axes: Axes, labels: Sequence[str], *, room_in: float) -> None:
    """Name the ticks 0..n-1 of the x axis, slanted if neighbours would touch within ``room_in`` inches."""
    if fits_level(labels, room_in):
        axes.set_xticks(range(len(labels)), labels)
    else:
        flat = [label.replace("\n", " ") for label in labels]
        axes.set_xticks(range(len(flat)), flat, rotation=35, ha="right", rotation_mode="anchor")
    axes.tick_params(axis="x", length=0)


def fits_level(labels: Sequence[str], room_in: float) -> bool:
    """Return whether horizontal tick labels fit ``room_in`` inches without touching."""
    longest = [max(map(len, label.split("\n"))) for label in labels]
    widest_in = max(((left + right) / 2 * CHARACTER_IN for left, right in pairwise(longest)), default=0.0)
    return widest_in + CHARACTER_IN <= room_in / len(labels)


def amount(value: float) -> str:
    """Return the number over a bar, with one decimal below 100."""
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"
