"""Tables of a sweep, as text and as HTML."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from specsim.metrics.seeds import (
    AGAINST,
    ATTAINED,
    DIFFERENCE,
    FAILED,
    HALF,
    KEPT_UP,
    LOAD,
    OVERLOADED,
    SATURATED,
    SEEDS,
    SHORT,
    verdict_of,
)
from specsim.metrics.tables import (
    ABSENT,
    FLATTERED,
    WIDTH,
    aligned,
    attained,
    class_table,
    flattered,
    header,
    most_missed,
    number,
    objective,
    run_title,
    shorten,
    stand_ins,
)

if TYPE_CHECKING:
    from pandas import DataFrame

    from specsim.store.sweeps import Sweep


Label = Mapping[str, Any]
Head = tuple[str, str, str]
"""Three lines: words, and a unit in the last."""
FIGURES: Mapping[str, tuple[Head, float, int]] = {
    ATTAINED: (("attained", "", "%"), 100, 1),
    "worst_class_attainment": (("worst", "class", "%"), 100, 1),
    "slo_goodput_tokens_per_s": (("goodput", "", "tok/s"), 1, 1),
    "p99_ttft_s": (("TTFT", "", "p99 s"), 1, 2),
    "p99_e2el_s": (("end", "to end", "p99 s"), 1, 2),
    "longest_pause_s": (("pause", "", "s"), 1, 2),
}
"""By key of a run's metrics: its head, what it is multiplied by, decimals."""
FURTHER: tuple[Head, ...] = (("span", "", "x"), ("mostly", "missed", ""), ("load", "", ""))
MEANS = (ATTAINED, DIFFERENCE, "worst_class_attainment", "slo_goodput_tokens_per_s", "p99_ttft_s")
"""Columns of `point_means`, in the order of its table."""
DIGITS = 3
"""Of a mean."""
LONGEST_NAME = 12
"""Characters of a scheduler in the head of a column."""
MARKS = {KEPT_UP: "", SHORT: "too short", SATURATED: "saturated", OVERLOADED: "OVERLOADED"}
SAID = {
    MARKS[SATURATED]: "at its limit; a longer run may attain less",
    MARKS[SHORT]: "load or attainment are not known well enough",
}
"""Meaning of a mark at the end of a row."""


def comparison_table(runs: Sequence[tuple[Label, Mapping[str, Any] | None]]) -> str:
    """Return one row per run ``(label, metrics)``; the keys of the labels become the leading columns.

    A run without metrics has failed. The columns include those that show a scheduler starving requests. The lines below
    the table give the objectives.
    """
    heads = [*(head for head, *_ in FIGURES.values()), *FURTHER]
    lines = _lines(
        [label for label, _ in runs], heads, [_of_run(metrics and metrics["specsim"]) for _, metrics in runs]
    )
    blocks = [metrics["specsim"] for _, metrics in runs if metrics is not None]
    said = "pause: longest time between two tokens; span: makespan over the arrivals' span"
    marks = {_mark(block["load"]) for block in blocks}
    above = header(stand_ins(blocks), WIDTH)
    return "\n".join([*above, *lines, "", *_legend_lines(blocks, [said], marks)] if blocks else lines)


def means_table(points: DataFrame, labels: Sequence[Label], blocks: Sequence[Mapping[str, Any]], every: str) -> str:
    """Return one row per point of `point_means`, its numbers with half the width of their 95% intervals over seeds.

    `labels` are those of the points. `blocks` are the metrics of runs, whose objectives the lines below the table give.
    `every` says where a row a run is.
    """
    rows: list[Mapping[Any, Any]] = [*points.to_dict("records")]
    there = [name for name in MEANS if name in points]
    heads = [FIGURES[ATTAINED if name == DIFFERENCE else name][0] for name in there]
    said = [f"mean \u00b1 half width of the 95% interval over seeds; {every}"]
    if DIFFERENCE in there:
        base = str(points[AGAINST].iloc[0])
        heads[there.index(DIFFERENCE)] = ("difference", "to", shorten(base, LONGEST_NAME))
        said.append(shorten(f"difference: attained less that of {base} with the same seed (paired), in points", WIDTH))
    figures = [[mean_of(row, name) for name in there] for row in rows]
    if points[SEEDS].nunique() > 1:
        heads.append(("seeds", "", ""))
        figures = [[*cells, str(row[SEEDS])] for cells, row in zip(figures, rows, strict=True)]
    figures = [[*cells, _load_of(row)] for cells, row in zip(figures, rows, strict=True)]
    lines = _lines(labels, [*heads, ("load", "", "")], figures)
    below = _legend_lines(blocks, said, {MARKS.get(row[LOAD], "") for row in rows})
    return "\n".join([*header(stand_ins(blocks), WIDTH), *lines, "", *below])


def _lines(labels: Sequence[Label], heads: Sequence[Head], figures: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: the settings before the figures, or where there is no room in lines above them."""
    keys = list(dict.fromkeys(key for label in labels for key in label))
    above = [list(line) for line in zip(*heads, strict=True)]
    names = [[key.rpartition(".")[2] for key in keys], *([""] * len(keys) for _ in above[1:])]
    told = [[_text(label.get(key)) for key in keys] for label in labels]
    rows = [[*label, *cells] for label, cells in zip([*names, *told], [*above, *figures], strict=True)]
    lines = aligned(rows, left=len(keys))
    if max(map(len, lines)) > WIDTH:
        lines = aligned([*above, *figures], left=0)
        for place in reversed(range(len(told))):
            said = ", ".join(f"{key}={value}" for key, value in zip(names[0], told[place], strict=True))
            lines[len(above) + place : len(above) + place] = wrap(said, WIDTH)
    lines.insert(len(above), "-" * max(map(len, lines)))
    return lines


def _of_run(block: Mapping[str, Any] | None) -> list[str]:
    if block is None:
        return [*[ABSENT] * (len(FIGURES) + len(FURTHER) - 1), "FAILED"]
    _, *figures = (number(block[key], scale, decimals) for key, (_, scale, decimals) in FIGURES.items())
    missed = {"ttft": "TTFT", "tpot": "TPOT", "rejected": "rejected", None: ABSENT}[most_missed(block)]
    return [attained(block), *figures, number(block["load"]["makespan_ratio"], 1, 2), missed, _mark(block["load"])]


def mean_of(row: Mapping[Any, Any], name: str) -> str:
    """Return a mean with half the width of its interval, without it where there is one seed."""
    _, scale, decimals = FIGURES[ATTAINED if name == DIFFERENCE else name]
    mean, half = row[name], row[f"{name}_{HALF}"]
    if mean != mean:
        return ABSENT
    decimals = min(decimals, max(0, DIGITS - len(f"{abs(mean * scale):.0f}")))
    sign = "+" if name == DIFFERENCE else ""
    star = "*" if name == ATTAINED and flattered(row) else ""
    told = f"{star}{mean * scale:{sign}.{decimals}f}"
    return told if half != half else f"{told} \u00b1 {half * scale:.{decimals}f}"


def _load_of(row: Mapping[Any, Any]) -> str:
    if not row[FAILED]:
        return MARKS[row[LOAD]]
    return f"{row[FAILED]} of {row[FAILED] + row[SEEDS]} FAILED" if row[SEEDS] else "FAILED"


def _mark(load: Mapping[str, Any]) -> str:
    """Return why a run's figures would change with its length, if they would."""
    return MARKS[verdict_of({"too_short": False, **load})]


def _legend_lines(blocks: Sequence[Mapping[str, Any]], said: Sequence[str], marks: Collection[str]) -> list[str]:
    """Return the objectives of runs, what a table's columns mean, and what its stars and marks do."""
    names = list(dict.fromkeys(name for block in blocks for name in block["classes"]))
    lines = wrap(f"objectives: {'; '.join(_objectives(name, blocks) for name in names)}", WIDTH, subsequent_indent="  ")
    lines += said
    if any(flattered(block) for block in blocks):
        points = f"{100 * FLATTERED:.0f} points more or above"
        lines.append(f"* TPOT alone would say {points}: it leaves out the waits before decoding")
    return [*lines, *(f"{mark}: {meaning}" for mark, meaning in SAID.items() if mark in marks)]


def _objectives(name: str, blocks: Sequence[Mapping[str, Any]]) -> str:
    """Return the objectives of a class over all runs."""
    parts = [block["classes"][name] for block in blocks if name in block["classes"]]

    def over(key: str, scale: float, unit: str) -> str:
        spans = [part[key] for part in parts if part[key] is not None]
        if not spans:
            return objective(None, scale)
        return f"{objective([min(low for low, _ in spans), max(high for _, high in spans)], scale)} {unit}"

    return f"{name} TTFT {over('slo_ttft_range_s', 1, 's')}, TPOT {over('slo_tpot_range_s', 1000, 'ms')}"


def _text(value: Any) -> str:
    if value is None or value != value:
        return ABSENT
    return f"{value:g}" if isinstance(value, float) else str(value)


MOST_ROWS = 20
"""Of a sweep's table."""


def run_html(config: Mapping[str, Any], metrics: Mapping[str, Any], notes: Sequence[str]) -> str:
    """Return a run's name, its table by class and its notes as HTML."""
    return _html(run_title(config), class_table(metrics), notes)


def sweep_html(sweep: Sweep, keys: Sequence[str]) -> str:
    """Return a sweep's number of runs, its settings, its first points or runs, and its notes, as HTML.

    `keys` are the settings that tell points apart.
    """
    over = ", ".join(f"{key} ({len(values)})" for key, values in sweep.axes.items())
    shown, points = sweep.labelled(MOST_ROWS), sweep.over_seeds() if len(sweep) else None
    if points is None or len(points) >= len(sweep):
        rows, table = len(sweep), comparison_table(shown)
    else:
        labels = [dict(zip(keys, row, strict=True)) for row in points[keys].head(MOST_ROWS).itertuples(index=False)]
        blocks = [metrics["specsim"] for _, metrics in shown]
        rows, table = len(points), means_table(points.head(MOST_ROWS), labels, blocks, ".table has every run")
    more = [f"{rows - MOST_ROWS} more: .table and .over_seeds() have them all"] if rows > MOST_ROWS else []
    failed = [f"failed: {each.error}" for each in sweep.failures]
    return _html(f"Sweep of {len(sweep)} runs{f': {over}' if over else ''}", table, [*more, *failed, *sweep.notes])


def _html(title: str, table: str, lines: Sequence[str]) -> str:
    below = "".join(f"<div>{escape(line)}</div>" for line in lines)
    return f"<div><b>{escape(title)}</b><pre>{escape(table)}</pre>{below}</div>"
