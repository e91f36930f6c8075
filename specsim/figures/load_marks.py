"""How figures mark points whose load needs a caveat, and what their captions say of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specsim.results.stand_in import sentences, stand_ins, stand_ins_of
from specsim.results.sweep_axes import SweepAxes
from specsim.results.sweep_table import ALL, CLASS, ERROR
from specsim.results.verdicts import KEPT_UP, OVERLOADED, SATURATED, SHORT, failed_said, verdict_of, verdicts, worst

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

FILLS: dict[str, dict[str, Any]] = {
    SHORT: {"fillstyle": "left", "markerfacecoloralt": "white"},
    SATURATED: {"markerfacecolor": "white"},
    OVERLOADED: {"markerfacecolor": "white"},
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
"""The order of drawing of marks, above the markers that they cover."""

Marks = dict[tuple[Any, Any], str]


def marks_of(table: DataFrame, axes: SweepAxes, against: Any = None) -> Marks:
    """Return the verdict of each point (line, x) and of those it is compared with; x is None if there is no x axis."""
    whole = table[table[CLASS] == ALL]
    keys = [axes.line, *([axes.x] if axes.x else [])]
    rows = whole[keys].astype(object).where(whole[keys].notna(), None).assign(**({} if axes.x else {"x": None}))
    found: dict[tuple[Any, Any], list[str]] = {}
    for (line, x), verdict in zip(rows.itertuples(index=False, name=None), verdicts(whole), strict=True):
        found.setdefault((line, x), []).append(verdict)
    beside = {x: each for (line, x), each in found.items() if against is not None and line == against}
    return {(line, x): worst([*each, *beside.get(x, ())]) for (line, x), each in found.items()}


def mark(axes: Axes, points: Iterable[tuple[float, float]], told: Sequence[str], **look: Any) -> None:
    """Draw the points (x, y) whose verdict needs a caveat over markers of the same `look`."""
    places = list(points)
    for verdict, fill in FILLS.items():
        chosen = [place for place, each in zip(places, told, strict=True) if each == verdict]
        if chosen:
            axes.plot(*zip(*chosen, strict=True), **{**look, **fill, "linestyle": "", "zorder": ABOVE})


def marks_said(told: Sequence[str], failed: int = 0) -> list[str]:
    """Return the sentences of a caption about marks, from the verdict of each run, and about failed runs."""
    said = [f"{NAMED[each]} {GLYPHS[each]}: a run is {SAID[each]}." for each in NAMED if each in told]
    if SHORT in told:
        count = told.count(SHORT)
        said.append(f"{count} of {len(told)} runs {'is' if count == 1 else 'are'} too short (docs/metrics.md).")
    return said + [f"{each}." for each in failed_said(failed, failed + len(told))]


def run_said(block: Mapping[str, Any]) -> list[str]:
    """Return the sentences of a caption about the block ``specsim`` of the one run that a figure shows."""
    verdict = verdict_of(block["load"])
    load = [f"The run is {SAID[verdict]} (docs/metrics.md)."] if verdict in SAID else []
    return [*sentences(stand_ins([block])), *load]


def table_said(table: DataFrame) -> list[str]:
    """Return which traces are stand-ins, and `marks_said`, of the rows of a `Sweep.table`, failed runs included."""
    failed = table[ERROR].notna() if ERROR in table else table[CLASS].isna()
    return sentences(stand_ins_of(table)) + marks_said(
        list(verdicts(table[(table[CLASS] == ALL) & ~failed])), int(failed.sum())
    )
