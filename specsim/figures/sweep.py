"""Curves of a sweep, in panels."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation, Transform

from specsim.config.schema import defaults
from specsim.figures.style import (
    GREY,
    LEGEND_LINE_IN,
    MARKER_POINTS,
    PALETTE,
    Marks,
    caption_below,
    legend_columns,
    legend_name,
    mark,
    marks_of,
    new_figure,
    style,
    table_said,
)
from specsim.metrics.capacity import LEAST_SEEDS
from specsim.metrics.requests import NOTED
from specsim.metrics.seeds import COVERS, FEW_SEEDS, LEVEL, listed, over_seeds, paired_difference, with_partner
from specsim.metrics.sweep_table import ALL, CLASS, GROUPS, SweepAxes, rows_with, values_of, without_failures, word

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame


ATTAINMENT, WORST, GOODPUT = "slo_attainment", "worst_class_attainment", "slo_goodput_tokens_per_s"
LABELS = {
    "rps": "Request rate (requests/s)",
    "slo_scale": "TPOT SLO scale (x)",
    "ttft_scale": "TTFT SLO scale (x)",
    "requests": "Requests in the run",
    "concurrency": "Concurrency (clients)",
    "replicas": "Replicas",
    ATTAINMENT: "SLO attainment (%)",
    GOODPUT: "SLO goodput (tokens/s)",
    "duration": "Duration (s)",
    "request_throughput": "Throughput (requests/s)",
    "request_goodput": "SLO goodput (requests/s)",
    "output_throughput": "Output throughput (tokens/s)",
    "output_throughput_per_gpu": "Output throughput (tokens/s per GPU)",
    "total_token_throughput": "Input and output throughput (tokens/s)",
    "spec_decode_acceptance_rate": "Draft tokens accepted (%)",
}
UNITS = {"_per_s": "1/s", "_s": "s"}
"""Units by the end of a name; a name that ends with tokens, bytes or requests says its own."""
WORDS = {"slo": "SLO", "ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2E latency", "gpu": "GPU"}
SETTINGS = {*GROUPS, *defaults()}


class Panel(NamedTuple):
    """One class: its name, and a row per line and x value with the ``mean`` and the reach of its interval.

    The interval reaches from mean - ``below`` to mean + ``above``, in the figure's unit (%, or the measure's own). Both
    are 0 without an interval.
    """

    title: str
    means: DataFrame


def panels_of(table: DataFrame, axes: SweepAxes, measure: str, against: Any = None) -> list[Panel]:
    """Return the panels of one measure: one per class that has it, one of all, for attainment one of the worst class.

    With `against` the panels hold differences from this value of `axes.line`, of runs that have a partner.

    Raises
    ------
    SpecsimError
        As in `over_seeds` and `paired_difference`, when a mean would be over more than seeds.
    """
    by = [axes.line, *([axes.x] if axes.x else [])]

    def means(rows: DataFrame, of_measure: str, keys: Sequence[str]) -> DataFrame:
        if against is None:
            return in_units(over_seeds(rows, of_measure, keys), measure)
        rest, least = [key for key in keys if key != axes.line], -100.0 if is_share(measure) else -math.inf
        paired = with_partner(rows, against, rest, of=axes.line)
        return in_units(paired_difference(paired, of_measure, against, rest, of=axes.line), measure, least=least)

    whole = means(table, measure, [CLASS, *by])
    classes = [*sorted(set(whole[CLASS][whole["count"] > 0]) - {ALL}), ALL]
    panels = [Panel("all classes" if name == ALL else name, whole[whole[CLASS] == name]) for name in classes]
    if measure == ATTAINMENT and WORST in table:
        panels.append(Panel("worst class", means(table[table[CLASS] == ALL], WORST, by)))
    return panels


def has_pairs(table: DataFrame, axes: SweepAxes, against: Any) -> bool:
    """Return whether a run of another line has a partner among those of `against`: the same x and seed."""
    measured = without_failures(table)
    paired = with_partner(measured, against, [axes.x] if axes.x else [], of=axes.line)
    return bool(paired[axes.line].nunique(dropna=False) > 1)


def in_units(means: DataFrame, measure: str, *, least: float = 0.0) -> DataFrame:
    """Return means in the figure's unit, with intervals cut to the values that the measure can have."""
    scale, most = (100.0, 100.0) if is_share(measure) else (1.0, math.inf)
    middle, reach = scale * means["mean"], (scale * means["half_width"]).fillna(0.0)
    below, above = reach.clip(upper=middle - least), reach.clip(upper=most - middle)
    return means.assign(mean=middle, below=below, above=above)


def is_share(measure: str) -> bool:
    """Return whether a measure is a share of requests, which figures show in %."""
    return measure.endswith("attainment")


def caption_of(means: Sequence[DataFrame], axes: SweepAxes, against: Any = None) -> list[str]:
    """Return sentences of a caption: what each of the `means` is over, what their intervals cover, what goes along."""
    counts = sorted({count for each in means for count in each["count"] if count})
    covers = sorted({what for each in means for what in each[COVERS][each["count"] > 0]} - {FEW_SEEDS})
    what = "Means" if against is None else f"Differences from {told(axes.line, against)}, paired by seed: means"
    if not counts:
        parts = ["No run has a value."]
    elif not covers:
        few = "of one seed: no interval" if counts <= [1] else f"over {counts[-1]} seeds, too few for an interval"
        parts = [f"{what} {few}."]
    else:
        seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        on = f" from {LEAST_SEEDS} seeds on" if counts[0] < LEAST_SEEDS else ""
        covered = " or ".join(map(listed, covers))
        parts = [f"{what} over {seeds} seeds with {LEVEL:.0%} intervals{on}, which cover {covered}."]
        if not any("arrivals" in each for each in covers):
            parts.append("Arrivals and lengths are the trace's own under every seed.")
    if against is not None:
        parts.append("A point has the stronger mark of its two runs.")
    return parts + along_said({axes.line: axes.along, axes.x: axes.along_x})


def along_said(along: Mapping[Any, Sequence[str]]) -> list[str]:
    """Return a sentence for each setting that others, its value, go along with."""
    return [f"What differs along with {key}: {', '.join(others)}." for key, others in along.items() if others]


def named(key: str, *, difference: bool = False) -> str:
    """Return the name of a setting, its key, or of a measure, in words, on an axis, with its unit."""
    label = LABELS.get(key)
    if label is None:
        share = "%" if is_share(key) else ""
        ending, unit = next((each for each in UNITS.items() if key.endswith(each[0])), ("", share))
        name = key.removeprefix("scheduler.")
        if key.partition(".")[0] not in SETTINGS:
            words = re.split("[._]", name.removeprefix(NOTED).removesuffix(ending))
            name = " ".join(WORDS.get(each, each) for each in words)
            name = name[:1].upper() + name[1:]
        label = f"{name} ({unit})" if unit else name
    return label.replace("(%)", "(points)") if difference else label


def told(key: str, value: Any) -> str:
    """Return a value in words; a number has the last part of its key before it."""
    return word(value) if isinstance(value, str) else f"{key.rpartition('.')[2]} = {word(value)}"


DASHES = ("-", "--", "-.", ":")
MARKERS = "osD^vPX<>*hdp8"
MOST_TICKS, CROWD = 9, 8
ROW_IN, FRAME_IN = 0.17, 0.72
SPREAD_POINTS = 2.4
LOG_RATIO, MARGIN = 16, 0.07


def curves(
    table: DataFrame, axes: SweepAxes, measure: str = ATTAINMENT, against: Any = None, title: str = ""
) -> Figure:
    """Return means of a measure over seeds with 95% intervals: a panel per class; for attainment also the worst class.

    The x axis is `axes.x`, with a line for each value of `axes.line`. Without `axes.x` there is a row for each value.
    With `against` the figure shows the difference of the others from that value of `axes.line`, paired by seed. Points
    of a run that is overloaded or near saturation are hollow, those of one that is too short to judge half-filled.

    Parameters
    ----------
    table : rows of `Sweep.table` that differ in nothing but the class, the seed and `axes` (`rest` is not drawn).
        Failed runs are counted in the caption.

    Raises
    ------
    SpecsimError
        As in `over_seeds` and `paired_difference`, when a mean would be over more than seeds.
    """
    every, table = table, without_failures(table)
    panels = panels_of(table, axes, measure, against)
    if table[CLASS].nunique() <= 2:  # One class is all of them.
        panels = [each for each in panels if each.title == "all classes"]
    names = values_of(table, axes.line)
    shown = [each for each in names if against is None or each != against]
    looks = {name: look_of(place) for place, name in enumerate(names)}
    rows, marks = axes.x is None, marks_of(table, axes, against)
    with style():
        figure, all_axes = _layout(len(panels), shown, rows=rows, shared=rows or is_share(measure))
        for panel_axes, panel in zip(all_axes, panels, strict=True):
            draw = _rows if rows else _lines
            draw(panel_axes, panel, axes, shown, looks, marks)
            panel_axes.set_title(panel.title)
            _limit(panel_axes, panels if is_share(measure) else [panel], measure, against, rows=rows)
            _name(panel_axes, axes, measure, against)
        if rows:
            figure.suptitle(title, fontsize=8)
        else:
            legend_of(
                figure,
                {word(each): looks[each] for each in shown},
                f"{axes.line}, with {title}" if title else axes.line,
            )
        said = caption_of([panel.means for panel in panels], axes, against)
        caption_below(figure, [*said, *shift_said(axes, shown), *table_said(every, axes.line, axes.x)])
        return figure


def _layout(panels: int, lines: Sequence[Any], *, rows: bool, shared: bool) -> tuple[Figure, list[Axes]]:
    crowded = len(lines) > CROWD and not rows
    columns = min(panels, 2 if crowded or panels == 4 else 3)
    panel_in = 0.6 + ROW_IN * max(len(lines), 4) if rows else 2.6 if crowded else 1.75
    legend_in = 0.0 if rows else LEGEND_LINE_IN * -(-len(lines) // legend_columns(map(word, lines)))
    figure = new_figure(-(-panels // columns) * panel_in + legend_in + FRAME_IN)
    grid = figure.subplots(-(-panels // columns), columns, sharey=shared, squeeze=False).ravel().tolist()
    for unused in grid[panels:]:
        unused.remove()
    return figure, grid[:panels]


def legend_of(figure: Figure, looks: Mapping[str, Mapping[str, Any]], title: str) -> None:
    """Put a legend of lines by name above the figure, long enough to show their dashes."""
    handles = [Line2D([], [], linewidth=1.0, **look) for look in looks.values()]
    place: dict[str, Any] = {"loc": "outside upper center", "ncols": legend_columns(looks), "handlelength": 3.2}
    figure.legend(handles, list(map(legend_name, looks)), title=title, **place)


def look_of(place: int) -> dict[str, Any]:
    """Return the colour, dashes and marker of a line by its place among the lines of a figure."""
    dash, marker = DASHES[place // len(PALETTE) % len(DASHES)], MARKERS[place % len(MARKERS)]
    look: dict[str, Any] = {"color": PALETTE[place % len(PALETTE)], "linestyle": dash, "marker": marker}
    # A marker that an edge of the panel cuts in half would look half-filled.
    return {**look, "markersize": MARKER_POINTS, "clip_on": False}


def _lines(
    axes: Axes, panel: Panel, sweep: SweepAxes, lines: Sequence[Any], looks: dict[Any, Any], marks: Marks
) -> None:
    assert sweep.x is not None
    at = values_of(panel.means, sweep.x)
    for name, shift in shifts_of(lines).items():
        rows = rows_with(panel.means, sweep.line, name)
        drawn: dict[str, Any] = {"transform": aside(axes, shift)}
        bars: dict[str, Any] = {"linewidth": 1.0, "elinewidth": 0.8, "capsize": 1.5}
        reach = [rows["below"], rows["above"]]
        axes.errorbar(rows[sweep.x], rows["mean"], reach, **{**looks[name], "marker": ""}, **bars, **drawn)
        points = zip(rows[sweep.x], rows["mean"], strict=True)
        mark(axes, points, [marks[name, x] for x in rows[sweep.x]], **looks[name], **drawn)
    logarithmic = at[0] > 0 and at[-1] / at[0] >= LOG_RATIO
    axes.set_xscale("log" if logarithmic else "linear")
    # matplotlib's limits leave out points that are drawn with an offset.
    axes.set_xlim(*around(at[0], at[-1], logarithmic=logarithmic))
    ticks = _apart(at, logarithmic=logarithmic)
    axes.set_xticks(ticks, [f"{each:g}" for each in ticks])
    axes.set_xticks([], minor=True)


def _apart(values: Sequence[float], *, logarithmic: bool) -> list[float]:
    """Return those of ascending values whose labels do not touch, always with the first."""
    places = [math.log(each) if logarithmic else each for each in values]
    room, kept = (places[-1] - places[0]) / MOST_TICKS, [0]
    for place in range(1, len(values)):
        if places[place] - places[kept[-1]] >= room:
            kept.append(place)
    return [values[place] for place in kept]


def around(low: float, high: float, *, logarithmic: bool = False) -> tuple[float, float]:
    """Return limits a little beyond two values."""
    if logarithmic:
        beyond = (high / low if high > low else 2.0) ** MARGIN
        return low / beyond, high * beyond
    room = MARGIN * ((high - low) or abs(high) or 1.0)
    return low - room, high + room


def shifts_of(lines: Sequence[Any]) -> dict[Any, float]:
    """Return how far from its place each line is drawn, in points, so that overlapping intervals are legible."""
    step = min(SPREAD_POINTS, 12 / max(len(lines), 1))
    return {line: (place - (len(lines) - 1) / 2) * step for place, line in enumerate(lines)}


def shift_said(axes: SweepAxes, lines: Sequence[Any]) -> list[str]:
    """Return a sentence about lines that are drawn beside their place."""
    return [f"Markers of one {axes.x} stand side by side."] if axes.x and len(lines) > 1 else []


def aside(axes: Axes, points: float) -> Transform:
    """Return the transform of what is drawn so many points beside its place."""
    return axes.transData + ScaledTranslation(points / 72, 0, axes.figure.dpi_scale_trans)


def _rows(
    axes: Axes, panel: Panel, sweep: SweepAxes, lines: Sequence[Any], looks: dict[Any, Any], marks: Marks
) -> None:
    for place, name in enumerate(lines):
        row = rows_with(panel.means, sweep.line, name)
        look = {**looks[name], "linestyle": ""}
        bars: dict[str, Any] = {"elinewidth": 0.8, "capsize": 1.5, **look, "marker": ""}
        axes.errorbar(row["mean"], [place] * len(row), xerr=[row["below"], row["above"]], **bars)
        mark(axes, ((mean, place) for mean in row["mean"]), [marks[name, None]] * len(row), **look)
    axes.set_yticks(range(len(lines)), [word(each) for each in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def _name(axes: Axes, sweep: SweepAxes, measure: str, against: Any) -> None:
    """Name both axes with their units."""
    said = (
        named(measure) if against is None else f"{named(measure, difference=True)}\nminus {told(sweep.line, against)}"
    )
    if sweep.x is None:
        axes.set_xlabel(said)
        axes.grid(axis="y", visible=False)
    else:
        axes.set_xlabel(named(sweep.x))
        spec = axes.get_subplotspec()
        axes.set_ylabel(said if spec is not None and spec.is_first_col() else "")


def _limit(axes: Axes, panels: Sequence[Panel], measure: str, against: Any, *, rows: bool) -> None:
    """Set the limits of the measure axis: from 0 on, or for differences around a line at 0."""
    low = min((panel.means["mean"] - panel.means["below"]).min() for panel in panels)
    high = max((panel.means["mean"] + panel.means["above"]).max() for panel in panels)
    low, high = (0.0 if math.isnan(each) else each for each in (low, high))
    if against is None:
        limits = (0.0, 104.0 if is_share(measure) else around(0.0, high)[1])
    else:
        limits = around(min(low, 0.0), max(high, 0.0))
        (axes.axvline if rows else axes.axhline)(0, color=GREY, linewidth=0.8, zorder=1)
    (axes.set_xlim if rows else axes.set_ylim)(*limits)
