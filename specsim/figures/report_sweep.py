"""The page of a sweep: the best at each point, curves with intervals, why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError
from specsim.figures import charts
from specsim.figures.charts import Chart, Filter
from specsim.figures.plots import best_of, parts
from specsim.figures.report import CLASS, NONE_MISSED, PageTable, Section, missed_chart, missed_rows, settings, work
from specsim.figures.style import colours, marks_of
from specsim.figures.sweep import ATTAINMENT, GOODPUT, caption_of, named, panels_of, told
from specsim.metrics.seeds import DIFFERENCE, winners
from specsim.metrics.sweep_table import ALL, SEED, axes_of, values_of, without_failures, word
from specsim.metrics.sweep_text import FIGURES, MEANS, mean_of
from specsim.metrics.tables import sentences, stand_ins_of
from specsim.metrics.why import CAUSES

if TYPE_CHECKING:
    from pandas import DataFrame

    from specsim.metrics.sweep_table import SweepAxes
    from specsim.store.sweeps import Sweep

PANEL = "requests of"
"""The column of a panel's title: a class, all classes, or the worst class."""
EVERY = "all classes"
HOLLOW = "Hollow: a run is overloaded, near saturation or too short to judge (docs/load.md)."


def sweep_page(sweep: Sweep) -> tuple[Sequence[Filter], list[str], list[Section]]:
    """Return the filters of a sweep's page, its answer and its sections.

    Raises
    ------
    SpecsimError
        When the sweep holds no run.
    """
    whole = sweep.table
    table = without_failures(whole)
    axes = axes_of(table)
    lines = colours(map(word, values_of(table, axes.line)), charts.COLOURS)
    shown = {key: [word(each) for each in values_of(table, key)] for key in axes.rest}
    titles = [*sorted(set(table[CLASS]) - {ALL}), EVERY, "worst class"]
    filters = [
        Filter("line", axes.line, lines),
        Filter(PANEL, "Requests of", dict.fromkeys(titles, ""), EVERY),
        *(Filter(key, key, dict.fromkeys(values, ""), values[-1]) for key, values in shown.items()),
    ]
    won = _winners(table, axes)
    sections = [
        *_map(won, axes, lines, filters),
        *_curves(whole, axes, lines, filters),
        *_why(sweep, axes, lines, filters),
    ]
    sections += [_points(sweep, axes), *settings([run.config for run in sweep], sweep.notes)]
    return filters, _answer(table, axes, won), sections


def _winners(table: DataFrame, axes: SweepAxes) -> list[dict[str, Any]]:
    """Return `winners` for each class, with its `PANEL`; none where each point has one line."""
    by = [*([axes.x] if axes.x else []), *axes.rest]
    found = []
    for name in sorted(set(table[CLASS])):
        rows = table[table[CLASS] == name].assign(**{CLASS: ALL})
        try:
            cells = winners(rows, ATTAINMENT, by, of=axes.line).to_dict("records")
        except SpecsimError:
            return []
        found += [
            {**{str(key): each for key, each in cell.items()}, PANEL: EVERY if name == ALL else name} for cell in cells
        ]
    return found


def _answer(table: DataFrame, axes: SweepAxes, won: Sequence[dict[str, Any]]) -> list[str]:
    """Return which line attains most, where, and by how much."""
    cells = [cell for cell in won if cell[PANEL] == EVERY]
    if not cells:
        whole = table[table[CLASS] == ALL].sort_values(axes.x or ATTAINMENT)
        ends = [
            f"{row[ATTAINMENT]:.1%}{f' at {told(axes.x, row[axes.x])}' if axes.x else ''}"
            for row in (whole.iloc[0], whole.iloc[-1])
        ]
        return [f"The runs meet the objectives of {' to '.join(dict.fromkeys(ends))} of the requests."]
    best = max(cells, key=lambda cell: cell["lead"])
    keys = [*([axes.x] if axes.x else []), *axes.rest]
    at = f" at {', '.join(told(key, best[key]) for key in keys)}" if keys else ""
    half = best["half_width"]
    interval = "" if half != half else f" \N{PLUS-MINUS SIGN} {100 * half:.1f}"
    lead = f"{100 * best['lead']:.1f}{interval} points more than {word(best['second'])}"
    names = [word(cell["winner"]) for cell in cells if cell["tied"] <= 1]
    if len(cells) == 1 or not names:
        return [f"{word(best['winner'])} attains most, {best['mean']:.1%}{at}: {lead}."]
    most, decided = max(dict.fromkeys(names), key=names.count), sum(cell["decided"] for cell in cells)
    of = "all" if names.count(most) == len(cells) else f"{names.count(most)} of"
    seeds = "One seed decides nothing." if half != half else f"The seeds decide {decided} of the {len(cells)}."
    return [
        f"{most} attains most at {of} {len(cells)} points of {', '.join(keys)}.",
        f"{seeds} The largest lead is that of {word(best['winner'])}{at}: {best['mean']:.1%}, {lead}.",
    ]


def _map(
    won: Sequence[dict[str, Any]], axes: SweepAxes, lines: dict[str, str], filters: Sequence[Filter]
) -> list[Section]:
    """Return the section of the winners by `axes.x` and the first other setting, or else the class."""
    if not won or axes.x is None:
        return []
    y = axes.rest[0] if axes.rest else PANEL
    cells = []
    for cell in won:
        own = {**_worded(cell, axes.rest), PANEL: cell[PANEL]}
        sure = charts.DECIDED if cell["decided"] else charts.UNDECIDED
        winner = charts.TIE if cell["tied"] > 1 else word(cell["winner"])
        percent = {key: 100 * cell[key] for key in ("mean", "lead", "half_width")}
        names = {"winner": winner, "second": word(cell["second"]), "sure": sure}
        cells.append({"x": cell[axes.x], "y": own[y], **names, **percent, **own})
    obeyed = [each for each in filters if each.column not in ("line", y)]
    chart = charts.winner_map(cells, axes.x, "" if y == PANEL else y, lines, obeyed)
    legend = {**lines, **({charts.TIE: charts.TIE_COLOUR} if any(cell["tied"] > 1 for cell in won) else {})}
    said = "The best at each point, and the % of requests whose objectives it meets. Pale: the seeds do not decide."
    return [Section("Who attains most", [said], [Chart("", chart, legend)])]


def _curves(whole: DataFrame, axes: SweepAxes, lines: dict[str, str], filters: Sequence[Filter]) -> list[Section]:
    """Return the section of the means over seeds: attainment, goodput, and the attainment less that of the best."""
    table = without_failures(whole)
    base = best_of(table, axes.line)
    paired = table[SEED].nunique() > 1 and len(lines) > 1
    asked: list[tuple[str, str, Any]] = [("Attainment", ATTAINMENT, None), ("Goodput", GOODPUT, None)]
    asked += [(f"Attainment less that of {told(axes.line, base)}, paired by seed", ATTAINMENT, base)] if paired else []
    shown: list[Chart] = []
    said: list[str] = []
    for title, measure, against in asked:
        rows: list[dict[str, Any]] = []
        for own, part in parts(table, axes.rest):
            panels, marks = panels_of(part, axes, measure, against), marks_of(part, axes)
            said = said or caption_of([panel.means for panel in panels], axes)
            rows += [
                {"line": word(each[axes.line]), "x": each[axes.x] if axes.x else None, PANEL: panel.title, **own}
                | {"mean": each["mean"], "low": each["mean"] - each["below"], "high": each["mean"] + each["above"]}
                | {"load": marks[each[axes.line], each[axes.x] if axes.x else None]}
                for panel in panels
                for each in panel.means.to_dict("records")
                if against is None or each[axes.line] != against
            ]
        what = named(measure, difference=against is not None)
        shown.append(Chart(title, charts.curves(rows, axes.x, what, lines, filters)))
    return [Section("Curves", [*said, HOLLOW, *sentences(stand_ins_of(whole))], shown)]


def _why(sweep: Sweep, axes: SweepAxes, lines: dict[str, str], filters: list[Filter]) -> list[Section]:
    """Return the section of the misses by cause, summed over seeds; a line where the requests are not kept.

    One value of the x axis is shown at a time, by a filter of its own.
    """
    try:
        table = sweep.why()
    except SpecsimError as error:
        return [Section("Why", [f"{error}."])]
    table = table.assign(**{key: sweep.table[key].iloc[0] for key in (axes.line,) if key not in table})
    counts = {f"missed.{name}": table["missed"] * table[f"missed.{name}"].astype(float) for name in CAUSES}
    settings_by = [axes.line, *([axes.x] if axes.x else []), *axes.rest]
    sums = table.assign(**counts).groupby([*settings_by, CLASS], dropna=False)[["requests", "missed", *counts]].sum()
    for name in counts:
        sums[name] /= sums["missed"]
    rows = missed_rows(
        {**each, **_worded(each, settings_by), "line": word(each[axes.line]), "bar": word(each[axes.line])}
        | {PANEL: EVERY if each[CLASS] == ALL else each[CLASS]}
        for each in sums.reset_index().to_dict("records")
    )
    if not rows:
        return [Section("Why", [NONE_MISSED])]
    if axes.x:
        values = [word(each) for each in values_of(table, axes.x)]
        filters.append(Filter(axes.x, f"Why at {axes.x}", dict.fromkeys(values, ""), values[-1]))
    runs = table[table[CLASS] == ALL]
    keys = [{"line": word(each[axes.line]), **_worded(each, settings_by)} for each in runs.to_dict("records")]
    told_by = [key for key in (*settings_by, SEED) if key in runs]
    return [Section("Why", [], [missed_chart(rows, list(lines), filters)], work(runs, told_by, keys))]


def _worded(row: Mapping[Any, Any], keys: Sequence[str]) -> dict[str, str]:
    return {key: word(row[key]) for key in keys}


def _points(sweep: Sweep, axes: SweepAxes) -> Section:
    """Return the section of the table of points."""
    points = sweep.over_seeds(of=axes.line)
    keys = [key for key in (axes.line, axes.x, *axes.rest) if key and key in points]
    shown = [name for name in MEANS if name in points and name != DIFFERENCE]
    rows = [
        [
            *(word(row[key]) for key in keys),
            str(row["seeds"]),
            *(mean_of(row, name) for name in shown),
            str(row["load"]),
        ]
        for row in points.to_dict("records")
    ]
    heads = [f"{f'{one} {two}'.strip()}, {unit}" for (one, two, unit), *_ in map(FIGURES.__getitem__, shown)]
    head = [*keys, "seeds", *heads, "load"]
    keyed = [{"line": row[0]} if keys[:1] == [axes.line] else {} for row in rows]
    said = "Means over seeds, with half the width of their 95% intervals."
    return Section("Points", [said], table=PageTable(head, rows, keyed))
