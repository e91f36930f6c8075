"""A run or a sweep as one HTML page that needs no network: its answer, its charts, why, its settings and notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair
import jinja2
import numpy as np
import vl_convert

from specsim.errors import SpecsimError, printable
from specsim.figures import charts
from specsim.figures.charts import Chart, Filter
from specsim.figures.passes import has_timeline
from specsim.figures.plots import best_of, parts
from specsim.figures.style import colours, marks_of
from specsim.figures.sweep import ATTAINMENT, GOODPUT, caption_of, has_pairs, named, panels_of, told
from specsim.files.kept import kept
from specsim.files.staging import in_one_step
from specsim.files.yaml_file import config_text
from specsim.metrics.any_run import AnyRun, AnySweep
from specsim.metrics.capacity import LEAST_SEEDS
from specsim.metrics.seeds import DIFFERENCE, OVERLOADED, winners
from specsim.metrics.sweep_table import (
    ALL,
    POINT,
    SEED,
    axes_of,
    values_of,
    with_none,
    with_short_names,
    without_failures,
    word,
)
from specsim.metrics.tables import (
    FIGURES,
    MEANS,
    class_rows,
    load_of,
    mean_of,
    number,
    percent,
    sentences,
    stand_ins,
    stand_ins_of,
    untold,
)
from specsim.metrics.why import CAUSES, why, why_said, with_causes

if TYPE_CHECKING:
    from pandas import DataFrame

    from specsim.metrics.sweep_table import SweepAxes


CLASS = "slo_class"
SHOWN = ("rps", "concurrency", "requests", "seed", "replicas", "slo_scale", "ttft_scale")
"""Settings of the page's table beside the choices; a fold has them all."""
NONE_MISSED = "No request missed an objective."
SLOWEST = 8
"""Requests of each class in the table of the slowest."""


@dataclass(frozen=True, slots=True)
class PageTable:
    """Cells of a table as words; `keys` has for each row the values that filters look at, by column."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    keys: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: sentences, charts, a table, text in a fold."""

    title: str
    said: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    table: PageTable | None = None
    folded: str = ""


def write_report(told: AnyRun | AnySweep, file: Path) -> Path:
    """Write the page of a run or a sweep and return the file.

    Raises
    ------
    SpecsimError
        When the runs are damaged, or the file cannot be written.
    """
    filters, said, sections = sweep_page(told) if isinstance(told, AnySweep) else run_page(told)
    folder = Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    specs = {
        f"chart-{place}": spec for place, spec in enumerate(chart.spec for each in sections for chart in each.charts)
    }
    page = environment.get_template("report.html").render(
        said=said, filters=filters, sections=sections, specs=specs, vega=_vega()
    )
    with in_one_step(file) as partial:
        partial.write_text(page, encoding="utf-8")
    return file


def _vega() -> str:
    """Return the text of Vega, Vega-Lite and Vega-Embed, bundled; kept, since bundling takes seconds."""
    bundle: Any = vl_convert.javascript_bundle  # its stub asks for an argument that has a default
    version = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])

    def bundled() -> dict[str, np.ndarray[Any, Any]]:
        text: str = bundle(vl_version=version)
        return {"text": np.frombuffer(text.replace("</script", "<\\/script").encode(), dtype=np.uint8)}

    return kept("vega", (version, installed("vl-convert-python")), [], bundled)["text"].tobytes().decode()


def run_page(run: AnyRun) -> tuple[Sequence[Filter], list[str], list[Section]]:
    """Return the filters of a run's page, its answer and its sections."""
    block = run.metrics["specsim"]
    names = list(block["classes"])
    coloured = colours(names, charts.COLOURS)
    filters = [Filter(CLASS, "Classes", coloured)]
    requests, passes = with_causes(run), run.passes
    sections = [
        Section(
            "Attainment by class",
            ["Bars: all objectives. Circles: TTFT alone. Diamonds: TPOT alone, from the first decoding pass."],
            [Chart("", charts.attainment({**block["classes"], "all": block}, {**coloured, "all": "#888888"}, filters))],
            table=_classes(run.metrics),
        ),
        Section(
            "Latencies against objectives",
            ["Dashed lines are objectives. A curve's height at its objective is the share that meets it."],
            [
                Chart(title, charts.distribution(requests, block["classes"], slo, coloured, filters))
                for title, slo in (("Time to first token", "slo_ttft_s"), ("Time per output token", "slo_tpot_s"))
            ],
        ),
        _timeline(passes),
        _why(run, filters),
        _slowest(requests),
        *settings([run.made_of.config], [*sentences(stand_ins([block])), *untold(run.notes)]),
    ]
    return filters, _answer(run), sections


def _answer(run: AnyRun) -> list[str]:
    """Return the answer in a sentence, and further sentences: the worst class, and why."""
    block, made_of = run.metrics["specsim"], run.made_of
    chosen, rps = made_of.chosen, made_of.settings.rps
    rate = f" at {rps:g} requests/s" if rps else ""
    shares = f"{percent(block['slo_attainment'])} of {block['arrived']:,} requests of {chosen.trace.title}{rate}"
    worst = f"The worst class is {block['worst_class']}, {percent(block['worst_class_attainment'])}."
    causes = [f"Of {each.removeprefix('why: of ')}." for each in why_said(run)]
    return [f"{chosen.scheduler.title} meets the objectives of {shares} on {chosen.profile.title}.", worst, *causes]


def _classes(metrics: Mapping[str, Any]) -> PageTable:
    head = ["class", "requests", "attained, %", "goodput, tok/s", "TTFT p99, s", "objective", "TPOT p99, ms"]
    rows = class_rows(metrics)
    return PageTable([*head, "objective", "end to end p99, s", "pause, s"], rows, [{CLASS: name} for name, *_ in rows])


def _timeline(passes: DataFrame | None) -> Section:
    if passes is None or not has_timeline(passes):
        return Section("Timeline", ["A run with passes=true keeps what it needs."])
    said = [
        "Means over spans of time. Drag to move along the time, Alt and the wheel to zoom, double click to go back."
    ]
    return Section("Timeline", said, [Chart("", charts.timeline(passes), charts.TOKENS)])


def _why(run: AnyRun, filters: Sequence[Filter]) -> Section:
    table, shares = why(run), run.metrics["specsim"]["time_shares"]
    spent = [{"bar": "all", "part": part, "share": 100 * (shares[part] or 0.0), "said": ""} for part in charts.PARTS]
    time = charts.stacked(spent, charts.TIME_COLOURS, ["all"], "Seconds of the engine (%)")
    shown = [Chart("Time", time, charts.TIME_COLOURS)]
    rows = missed_rows({**each, "bar": each[CLASS]} for each in table.to_dict("records"))
    if rows:
        shown.insert(0, missed_chart(rows, [*table[CLASS]], filters))
    keys = [{CLASS: name} for name in table[CLASS]]
    return Section("Why", [] if rows else [NONE_MISSED], shown, work(table, [CLASS], keys))


def missed_rows(told: Iterable[Mapping[Any, Any]]) -> list[dict[str, Any]]:
    """Return a row a cause for each of the rows of `why`, whose other columns but its numbers it keeps."""
    rows = []
    for each in told:
        kept_ones = {key: value for key, value in each.items() if isinstance(value, str)}
        for cause in CAUSES if each["missed"] else ():
            if share := each[f"missed.{cause}"]:
                count = round(share * each["missed"])
                said = f"{CAUSES[cause]}: {count:,} of {each['arrived']:,}"
                rows.append({**kept_ones, "part": cause, "share": 100 * count / each["arrived"], "said": said})
    return rows


def missed_chart(rows: Sequence[Mapping[str, Any]], bars: Sequence[str], filters: Sequence[Filter]) -> Chart:
    """Return the chart of `missed_rows`, with a legend of the causes that are there."""
    there = [name for name in CAUSES if any(row["part"] == name for row in rows)]
    spec = charts.stacked(rows, charts.CAUSE_COLOURS, bars, "Missed requests (%)", filters)
    return Chart(
        "Missed requests by cause", spec, {f"{name}: {CAUSES[name]}": charts.CAUSE_COLOURS[name] for name in there}
    )


WORK = {
    "verifications with drafts, %": ("drafted", 100, 1),
    "tokens a verification": ("tokens_per_verification", 1, 2),
    "ms a verification": ("seconds_per_verification", 1000, 1),
    "longest pause, s": ("longest_pause_s", 1, 2),
}
"""By head the column of `why`, its factor, decimals."""


def work(table: DataFrame, by: Sequence[str], keys: Sequence[Mapping[str, str]]) -> PageTable:
    """Return what drafts gave and took, a row of `why` each; `by`: columns that say which, `keys` of a `PageTable`."""
    rows = [
        [
            *(printable(str(each[key])) for key in by),
            f"{each['missed']:,} of {each['arrived']:,}",
            *(number(each[column], *shown) for column, *shown in WORK.values()),
        ]
        for each in table.to_dict("records")
    ]
    return PageTable([*by, "missed", *WORK], rows, keys)


SLOW = {
    "arrived at, s": ("arrival_s", 1, 1),
    "prompt": ("prompt_tokens", 1, 0),
    "output": ("output_tokens", 1, 0),
    "TTFT, s": ("ttft_s", 1, 2),
    "TPOT, ms": ("tpot_s", 1000, 1),
    "end to end, s": ("e2el_s", 1, 2),
    "of its objective, x": ("over", 1, 2),
}
"""By head the column of requests, its factor, decimals."""


def _slowest(requests: DataFrame) -> Section:
    """Return the section of the requests that exceed an objective the most, some of each class."""
    over = np.fmax(requests["ttft_s"] / requests["slo_ttft_s"], requests["tpot_s"] / requests["slo_tpot_s"])
    worst = requests.assign(over=over).sort_values("over", ascending=False).groupby(CLASS, sort=False).head(SLOWEST)
    rows = []
    for each in worst.to_dict("records"):
        figures = (number(each[column], *shown) for column, *shown in SLOW.values())
        rows.append([str(each["request_id"]), printable(each[CLASS]), *figures, each["cause"]])
    said = [f"The {SLOWEST} of each class whose TTFT or TPOT is the largest multiple of its objective."]
    table = PageTable(["request", "class", *SLOW, "cause"], rows, [{CLASS: row[1]} for row in rows])
    return Section("Slowest requests", said, table=table)


def settings(configs: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> Iterator[Section]:
    """Yield the sections of the settings that all of the runs share, and of the notes."""
    first, *others = configs
    same = {key: value for key, value in first.items() if all(each.get(key) == value for each in others)}
    short = {**first["choices"], **{key: same[key] for key in SHOWN if key in same}}
    chosen = {
        key: each for key, each in short.items() if all(other["choices"].get(key, each) == each for other in others)
    }
    said = ", ".join(f"{key}={value}" for key, value in chosen.items() if value is not None)
    yield Section("Settings", [printable(said)], folded=config_text(same))
    yield Section("Notes", [printable(each) for each in notes] or ["None."])


PANEL = "requests of"
"""The column of a panel's title: a class, all classes, or the worst class."""
EVERY = "all classes"
HOLLOW = "Hollow: a run is overloaded, near saturation or too short to judge (docs/load.md)."


def sweep_page(sweep: AnySweep) -> tuple[Sequence[Filter], list[str], list[Section]]:
    """Return the filters of a sweep's page, its answer and its sections.

    Raises
    ------
    SpecsimError
        When the sweep holds no run.
    """
    whole = with_short_names(sweep.table)
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
        *_sweep_why(sweep, axes, lines, filters),
    ]
    sections += [_points(sweep, axes), *settings([run.made_of.config for run in sweep], untold(sweep.notes))]
    return filters, _sweep_answer(table, axes, won), sections


def _winners(table: DataFrame, axes: SweepAxes) -> list[dict[str, Any]]:
    """Return `winners` for each class, with its `PANEL`, at the points that have several lines."""
    by = [*([axes.x] if axes.x else []), *axes.rest]
    found = []
    for name in sorted(set(table[CLASS])):
        rows, panel = table[table[CLASS] == name].assign(**{CLASS: ALL}), EVERY if name == ALL else name
        for _, point in rows.groupby(by, dropna=False) if by else [((), rows)]:
            with suppress(SpecsimError):  # One line alone, or a seed that another lacks.
                cells = winners(point, ATTAINMENT, by, of=axes.line).to_dict("records")
                found += [{**{str(key): each for key, each in cell.items()}, PANEL: panel} for cell in cells]
    return found


def _sweep_answer(table: DataFrame, axes: SweepAxes, won: Sequence[dict[str, Any]]) -> list[str]:
    """Return which line attains most, where, and by how much."""
    cells = [cell for cell in won if cell[PANEL] == EVERY]
    if not cells:
        by = [*([axes.x] if axes.x else []), ATTAINMENT]
        means = table[table[CLASS] == ALL].groupby(POINT)[by].mean().sort_values(by)
        ends = [
            f"{percent(row[ATTAINMENT])}{f' at {told(axes.x, row[axes.x])}' if axes.x else ''}"
            for row in (means.iloc[0], means.iloc[-1])
        ]
        return [f"The runs meet the objectives of {' to '.join(dict.fromkeys(ends))} of the requests."]
    best = max(cells, key=lambda cell: (cell["tied"] <= 1 and cell["winner_load"] != OVERLOADED, cell["lead"]))
    keys = [*([axes.x] if axes.x else []), *axes.rest]
    at = f" at {', '.join(told(key, best[key]) for key in keys)}" if keys else ""
    at += f", {OVERLOADED}" if best["winner_load"] == OVERLOADED else ""
    half = best["half_width"]
    interval = "" if half != half else f" \N{PLUS-MINUS SIGN} {100 * half:.1f}"
    lead = f"{100 * best['lead']:.1f}{interval} points more than {word(best['second'])}"
    ahead = [cell for cell in cells if cell["tied"] <= 1]
    names = [word(cell["winner"]) for cell in ahead]
    if not names:
        return [f"Several attain most: {percent(best['mean'])}{at}."]
    if len(cells) == 1:
        return [f"{word(best['winner'])} attains most, {percent(best['mean'])}{at}: {lead}."]
    most, decided = max(dict.fromkeys(names), key=names.count), sum(cell["decided"] for cell in cells)
    of = "all" if names.count(most) == len(cells) else f"{names.count(most)} of"
    count = sum(cell["winner_load"] == OVERLOADED for cell in ahead if word(cell["winner"]) == most)
    full = f", {count} of them {OVERLOADED}" if count else ""
    sure = "Each lead is" if decided == len(cells) else f"{decided} of {len(cells)} leads are"
    few = all(cell["half_width"] != cell["half_width"] for cell in cells)
    noise = f"Fewer than {LEAST_SEEDS} seeds decide nothing." if few else f"{sure} beyond the noise between seeds."
    return [
        f"{most} attains most at {of} {len(cells)} points of {', '.join(keys)}{full}.",
        f"{noise} The largest lead is that of {word(best['winner'])}{at}: {percent(best['mean'])}, {lead}.",
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
        names = {"winner": winner, "second": word(cell["second"]), "sure": sure, "said": number(cell["mean"], 100, 0)}
        cells.append({"x": cell[axes.x], "y": own[y], **names, **percent, **own})
    obeyed = [each for each in filters if each.column not in ("line", y)]
    chart = charts.winner_map(cells, axes.x, "" if y == PANEL else y, lines, obeyed)
    legend = {**lines, **({charts.TIE: charts.TIE_COLOUR} if any(cell["tied"] > 1 for cell in won) else {})}
    said = "The best at each point, and the % of requests whose objectives it meets. Pale: the seeds do not decide."
    return [Section("Who attains most", [said], [Chart("", chart, legend)])]


def _curves(whole: DataFrame, axes: SweepAxes, lines: dict[str, str], filters: Sequence[Filter]) -> list[Section]:
    """Return the section of the means over seeds: attainment, goodput, and the attainment less that of the best."""
    table, keys = without_failures(whole), [axes.line, *([axes.x] if axes.x else [])]
    base = best_of(table, axes.line)
    paired = table[SEED].nunique() > 1 and len(lines) > 1
    asked: list[tuple[str, str, Any]] = [("Attainment", ATTAINMENT, None), ("Goodput", GOODPUT, None)]
    asked += [(f"Attainment less that of {told(axes.line, base)}, paired by seed", ATTAINMENT, base)] if paired else []
    shown: list[Chart] = []
    said: list[str] = []
    alone: list[str] = []
    for title, measure, against in asked:
        rows: list[dict[str, Any]] = []
        for own, part in parts(table, axes.rest):
            if against is not None and not has_pairs(part, axes, against):
                alone.append(", ".join(f"{key} = {value}" for key, value in own.items()))
                continue
            panels, marks = panels_of(part, axes, measure, against), marks_of(part, axes, against)
            said = said or caption_of([panel.means for panel in panels], axes)
            rows += [
                {"line": word(each[axes.line]), "x": each[axes.x] if axes.x else None, PANEL: panel.title, **own}
                | {"mean": each["mean"], "low": each["mean"] - each["below"], "high": each["mean"] + each["above"]}
                | {"load": marks[each[axes.line], each[axes.x] if axes.x else None]}
                for panel in panels
                for each in panel.means.assign(**with_none(panel.means, keys)).to_dict("records")
                if against is None or each[axes.line] != against
            ]
        what = named(measure, difference=against is not None)
        shown += [Chart(title, charts.curves(rows, axes.x, what, lines, filters))] if rows else []
    said += [f"No run has a partner of {told(axes.line, base)} at {each}." for each in alone if each]
    return [Section("Curves", [*said, HOLLOW, *sentences(stand_ins_of(whole))], shown)]


def _sweep_why(sweep: AnySweep, axes: SweepAxes, lines: dict[str, str], filters: list[Filter]) -> list[Section]:
    """Return the section of the misses by cause, summed over seeds; a line where the requests are not kept.

    One value of the x axis is shown at a time, by a filter of its own.
    """
    try:
        table = sweep.why()
    except SpecsimError as error:
        return [Section("Why", [f"{error}."])]
    table = with_short_names(
        table.assign(**{key: sweep.table[key].iloc[0] for key in (axes.line,) if key not in table})
    )
    counts = {f"missed.{name}": table["missed"] * table[f"missed.{name}"] for name in CAUSES}
    settings_by = [axes.line, *([axes.x] if axes.x else []), *axes.rest]
    sums = table.assign(**counts).groupby([*settings_by, CLASS], dropna=False)[["arrived", "missed", *counts]].sum()
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


def _points(sweep: AnySweep, axes: SweepAxes) -> Section:
    """Return the section of the table of points."""
    points = with_short_names(sweep.over_seeds(of=axes.line))
    keys = [key for key in (axes.line, axes.x, *axes.rest) if key and key in points]
    shown = [name for name in MEANS if name in points and name != DIFFERENCE]
    rows = [
        [
            *(word(row[key]) for key in keys),
            str(row["seeds"]),
            *(mean_of(row, name) for name in shown),
            load_of(row),
        ]
        for row in points.to_dict("records")
    ]
    heads = [f"{f'{one} {two}'.strip()}, {unit}" for (one, two, unit), *_ in map(FIGURES.__getitem__, shown)]
    head = [*keys, "seeds", *heads, "load"]
    keyed = [{"line": row[0]} if keys[:1] == [axes.line] else {} for row in rows]
    said = f"Means over seeds, from {LEAST_SEEDS} seeds on with half the width of their 95% intervals."
    return Section("Points", [said], table=PageTable(head, rows, keyed))
