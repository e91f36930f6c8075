"""A run or a sweep as one HTML page that needs no network: its answer, its charts, why, its settings and notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair
import jinja2
import numpy as np
import vl_convert

from specsim.errors import printable
from specsim.figures import charts
from specsim.figures.charts import Chart, Filter
from specsim.figures.passes import has_timeline
from specsim.figures.style import colours
from specsim.files.kept import kept
from specsim.files.staging import in_one_step
from specsim.files.yaml_file import config_text
from specsim.metrics.tables import class_rows, number, sentences, stand_ins
from specsim.metrics.why import CAUSES, why, why_said, with_causes

if TYPE_CHECKING:
    from pandas import DataFrame

    from specsim.figures.any_run import AnyRun
    from specsim.store.sweeps import Sweep


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


def write_report(told: AnyRun | Sweep, file: Path) -> Path:
    """Write the page of a run or a sweep and return the file.

    Raises
    ------
    SpecsimError
        When the runs are damaged, or the file cannot be written.
    """
    from specsim.figures.report_sweep import sweep_page

    filters, said, sections = sweep_page(told) if isinstance(told, Sequence) else run_page(told)
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
        *settings([run.config], [*sentences(stand_ins([block])), *run.notes]),
    ]
    return filters, _answer(run), sections


def _answer(run: AnyRun) -> list[str]:
    """Return the answer in a sentence, and further sentences: the worst class, and why."""
    block, choices = run.metrics["specsim"], run.config["choices"]
    scheduler, trace, profile = (Path(choices[key]).stem for key in ("scheduler", "trace", "profile"))
    rate = f" at {run.config['rps']:g} requests/s" if run.config["rps"] else ""
    attained_by = f"{block['slo_attainment']:.1%} of {block['arrived']:,} requests"
    worst = f"The worst class is {block['worst_class']}, {block['worst_class_attainment']:.1%}."
    causes = [f"Of {each.removeprefix('why: of ')}." for each in why_said(run)]
    return [f"{scheduler} meets the objectives of {attained_by} of {trace}{rate} on {profile}.", worst, *causes]


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
                said = f"{CAUSES[cause]}: {count:,} of {each['requests']:,}"
                rows.append({**kept_ones, "part": cause, "share": 100 * count / each["requests"], "said": said})
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
            f"{each['missed']:,} of {each['requests']:,}",
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
