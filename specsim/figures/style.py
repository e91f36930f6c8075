"""Style of figures: colours, captions, names at the ends of lines, marks of load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import cycle
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

from specsim.config.schema import defaults
from specsim.metrics.seeds import (
    KEPT_UP,
    OVERLOADED,
    PREFIX,
    SATURATED,
    SHORT,
    failed_said,
    verdict_of,
    verdicts,
    worst,
)
from specsim.metrics.sweep_table import (
    ALL,
    CLASS,
    CODE,
    ERROR,
    READ,
    SEED,
    SweepAxes,
    keys_of,
    values_of,
    with_none,
    without_failures,
    word,
)
from specsim.metrics.tables import sentences, stand_ins, stand_ins_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


FAILED_MARK = "failed"
FILLS: dict[str, dict[str, Any]] = {
    KEPT_UP: {},
    # The empty half of a triangle is small: its edge is thin.
    SHORT: {"fillstyle": "left", "markerfacecoloralt": "white", "markeredgewidth": 0.4},
    SATURATED: {"markerfacecolor": "white"},
    OVERLOADED: {"markerfacecolor": "white"},
    FAILED_MARK: {"marker": "x", "markersize": 5.9},
}
HALF, HOLLOW = "\N{CIRCLE WITH LEFT HALF BLACK}", "\N{WHITE CIRCLE}"
GLYPHS = {KEPT_UP: "", SHORT: HALF, SATURATED: HOLLOW, OVERLOADED: HOLLOW}
SAID = {
    OVERLOADED: "overloaded, and what is shown depends on how long it is",
    SATURATED: "near saturation, and may attain less if it is longer",
    SHORT: "too short to judge its load or its attainment",
}
NAMED = {OVERLOADED: "Hollow", SATURATED: "Hollow", SHORT: "Half-filled"}
MARKER_POINTS = 4.5
"""The least size at which a half-filled marker differs from a full one in print."""
ABOVE = 4
"""The order of drawing of points, above their intervals."""

Marks = dict[tuple[Any, Any], str]


def marks_of(table: DataFrame, axes: SweepAxes, against: Any = None) -> Marks:
    """Return the verdict of each point (line, x) and of those it is compared with; x is None if there is no x axis."""
    whole = table[table[CLASS] == ALL]
    keys = [axes.line, *([axes.x] if axes.x else [])]
    rows = with_none(whole, keys).assign(**({} if axes.x else {"x": None}))
    found: dict[tuple[Any, Any], list[str]] = {}
    for (line, x), verdict in zip(rows.itertuples(index=False, name=None), verdicts(whole), strict=True):
        found.setdefault((line, x), []).append(verdict)
    beside = {x: each for (line, x), each in found.items() if against is not None and line == against}
    return {(line, x): worst([*each, *beside.get(x, ())]) for (line, x), each in found.items()}


def mark(axes: Axes, points: Iterable[tuple[float, float]], told: Sequence[str], **look: Any) -> None:
    """Draw the points (x, y) of a `look` as the verdict of each, a key of `FILLS`, has them."""
    places = list(points)
    for verdict, fill in FILLS.items():
        chosen = [place for place, each in zip(places, told, strict=True) if each == verdict]
        if chosen:
            axes.plot(*zip(*chosen, strict=True), **{**look, **fill, "linestyle": "", "zorder": ABOVE})


def marks_said(told: Sequence[str], short: int, failed: int = 0) -> list[str]:
    """Return the sentences of a caption about marks, from the verdict of each run, and about short and failed runs."""
    said = [f"{NAMED[each]} {GLYPHS[each]}: a run is {SAID[each]}." for each in NAMED if each in told]
    if SHORT in told:
        said.append(f"{short} of {len(told)} runs {'is' if short == 1 else 'are'} too short (docs/load.md).")
    return said + [f"{each}." for each in failed_said(failed, failed + len(told))]


def run_said(block: Mapping[str, Any]) -> list[str]:
    """Return the sentences of a caption about the block ``specsim`` of the one run that a figure shows."""
    verdict = verdict_of(block["load"])
    load = [f"The run is {SAID[verdict]} (docs/load.md)."] if verdict in SAID else []
    return [*sentences(stand_ins([block])), *load]


def table_said(table: DataFrame, *keys: str | None) -> list[str]:
    """Return `served_said`, which traces are stand-ins, and `marks_said`, of a `Sweep.table`, failed runs included.

    `keys` are the settings that a figure shows: of these, and of those with one value left, it says of which values
    every run failed.
    """
    failed = table[ERROR].notna() if ERROR in table else table[CLASS].isna()
    whole = table[(table[CLASS] == ALL) & ~failed]
    told, short = list(verdicts(whole)), int(whole[f"{PREFIX}too_short"].eq(True).sum())
    said = served_said(table) + sentences(stand_ins_of(table)) + marks_said(told, short, int(failed.sum()))
    alone = [key for key in _settings(whole) if len(values_of(whole, key)) == 1 < len(values_of(table, key))]
    for key in dict.fromkeys((*filter(None, keys), *alone)):
        lost = [word(each) for each in values_of(table, key) if each not in values_of(whole, key)]
        said += sentences([f"Every run of {key} {', '.join(lost)} failed"] if lost else [])
    return said


def served_said(table: DataFrame) -> list[str]:
    """Return a sentence that tells the settings of which all runs of a `Sweep.table` have one value.

    Left out are sources, the router, what is not set, and factors and replicas of 1.
    """
    rows, ones = without_failures(table), {(key, 1) for key, each in defaults().items() if each == 1}
    alike = {key: each[0] for key in _settings(rows) if len(each := values_of(rows, key)) == 1}
    told = [f"{key} {word(each)}" for key, each in alike.items() if each is not None and (key, each) not in ones]
    said = ", ".join(each for each in told if len(each) < CAPTION_CHARACTERS)
    return sentences([f"{said[0].upper()}{said[1:]}"] if said else [])


def _settings(table: DataFrame) -> list[str]:
    return [key for key in keys_of(table) if key not in (SEED, CLASS, CODE, "router", "version") and READ not in key]


LABEL_POINTS = 8.5
"""The least distance between two labels, in points."""


def name_ends(
    axes: Axes, ends: Mapping[str, tuple[float, float]], colours: Mapping[str, str], height_in: float, beyond: float = 0
) -> None:
    """Write each name right of its line's last point (x, y), moved apart where they would touch, and off the x axis.

    The limits of the y axis must be final. `height_in` is about the height of the panel in inches, `beyond` how far the
    last points are drawn right of their place, in points.
    """
    low, high = axes.get_ylim()
    points = 72 * height_in / (high - low)
    names = sorted(ends, key=lambda name: ends[name][1])
    lines = [(name, place) for name in names for place in range(name.count("\n") + 1)]
    wanted = [points * ends[name][1] + (place - name.count("\n") / 2) * LABEL_POINTS for name, place in lines]
    moved = apart([max(each, points * low + LABEL_POINTS / 2) for each in wanted], LABEL_POINTS)
    for name in names:
        of = [at for (each, _), at in zip(lines, moved, strict=True) if each == name]
        axes.annotate(
            name,
            ends[name],
            (5 + beyond, sum(of) / len(of) - points * ends[name][1]),
            textcoords="offset points",
            color=colours[name],
            va="center",
            fontsize=7.5,
            linespacing=1.0,
            annotation_clip=False,
        )


def apart(values: Sequence[float], least: float) -> list[float]:
    """Return ascending values moved as little as groups allow, so that neighbours are at least `least` apart.

    Values that would touch are spread evenly around their common mean.
    """
    groups: list[list[float]] = []
    for value in values:
        groups.append([value])
        while len(groups) > 1 and _low(groups[-1], least) - _low(groups[-2], least) < least * len(groups[-2]):
            last = groups.pop()
            groups[-1] += last
    return [_low(group, least) + place * least for group in groups for place in range(len(group))]


def _low(group: Sequence[float], least: float) -> float:
    return sum(group) / len(group) - least * (len(group) - 1) / 2


WIDE_IN = 7.0
DPI = 200
# Mean width of a character of the tick labels, 7.5 points.
CHARACTER_IN = 0.057
GREY = "#555555"
CAPTION_CHARACTERS = 132
CAPTION_LINE_IN = 0.13
LEGEND_LINE_IN = 0.17

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


def style() -> AbstractContextManager[None]:
    """Return the matplotlib context in which figures are drawn and saved; the caller's settings are kept."""
    return mpl.rc_context(STYLE)


def new_figure(height_in: float, width_in: float = WIDE_IN) -> Figure:
    """Return an empty figure without pyplot, which would keep it alive and open a window."""
    return Figure(figsize=(width_in, height_in), layout="constrained")


def colours(names: Iterable[str], palette: Sequence[str] = PALETTE) -> dict[str, str]:
    """Return a colour for each name, in order; colours repeat after the last."""
    return dict(zip(names, cycle(palette), strict=False))


def legend_name(name: str) -> str:
    """Return a name for a legend; matplotlib leaves out names that begin with an underscore."""
    return f"\N{ZERO WIDTH SPACE}{name}" if name.startswith("_") else name


def legend_above(figure: Figure, axes: Axes, columns: int = 6) -> None:
    """Put the legend of ``axes`` above the figure, which grows by its lines after the first."""
    handles, labels = axes.get_legend_handles_labels()
    columns = min(columns, legend_columns(labels))
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, handlelength=1.8)
    figure.set_figheight(figure.get_figheight() + LEGEND_LINE_IN * ((len(labels) - 1) // columns))


def legend_columns(names: Iterable[str]) -> int:
    """Return how many columns of names a legend has room for, 6 at most."""
    widest_in = max(map(len, names), default=0) * CHARACTER_IN + 0.65
    return max(1, min(6, int(WIDE_IN / widest_in)))


def caption_below(figure: Figure, said: Sequence[str]) -> None:
    """Put sentences below a figure, which grows by their lines."""
    lines = wrap(" ".join(said), CAPTION_CHARACTERS, break_on_hyphens=False)
    figure.supxlabel("\n".join(lines), fontsize=7, color=GREY, x=0.01, ha="left")
    figure.set_figheight(figure.get_figheight() + CAPTION_LINE_IN * len(lines))


def amount(value: float) -> str:
    """Return the number over a bar, with one decimal below 100."""
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"
