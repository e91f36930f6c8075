"""Tables of a run and of a sweep, as text and as HTML, and the lines that tell of synthetic surrogates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, cast

from specsim.errors import all_printable, printable
from specsim.metrics.capacity import LEAST_SEEDS
from specsim.metrics.load import span_name
from specsim.metrics.seeds import (
    AGAINST,
    ATTAINED,
    DIFFERENCE,
    FAILED,
    HALF,
    KEPT_UP,
    LOAD,
    LOAD_SEEDS,
    OVERLOADED,
    SATURATED,
    SEEDS,
    SHORT,
    verdict_of,
)
from specsim.metrics.sweep_table import short_keys, short_labels, short_names

if TYPE_CHECKING:
    from pandas import DataFrame

    from specsim.config.configured import Configured


SHOWN, OF_LOAD = ("scheduler", "trace", "profile", "slo"), ("rps", "requests", "seed")


def run_title(made_of: Configured) -> str:
    """Return the choices of a run, and its load and seed."""
    told = {key: Path(getattr(made_of.chosen, key).name).name for key in SHOWN}
    told |= {key: _text(value) for key in OF_LOAD if (value := getattr(made_of.settings, key)) is not None}
    return f"Run: {', '.join(f'{key}={value}' for key, value in told.items())}"


def run_line(made_of: Configured, metrics: Mapping[str, Any], folder: Path | None, notes: Collection[str] = ()) -> str:
    """Return what a run looks like in Python."""
    block = metrics["specsim"]
    share = percent(block["slo_attainment"])
    attained = [f"{block['arrived']:,} requests", f"{share} attained", _mark(block["load"])]
    where = "in memory" if folder is None else f"in {folder}"
    return printable(f"<{run_title(made_of)}; {', '.join(filter(None, attained))}{counted(notes)}; {where}>")


def counted(notes: Collection[str]) -> str:
    """Return how many notes there are, as the end of a line; nothing for none."""
    return f"; {len(notes)} note{'s' * (len(notes) > 1)}" if notes else ""


def shorten(text: str, width: int) -> str:
    """Cut out the middle, since swept values mostly differ at the ends."""
    kept = width - 2
    return text if len(text) <= width else f"{text[: kept - kept // 2]}..{text[len(text) - kept // 2 :]}"


WIDTH = 100
ABSENT = "-"
BESIDE = 3
"""Columns of a run's table that other schedulers stand behind: class, requests, attained."""
LEAST_CLASS, LONGEST_CLASS = 8, 20
"""Characters of a class in a table that has no room for more, and up to which other columns make room for it."""
FLATTERED = 0.1
"""Excess of TPOT alone over the attainment from which on a table has a star."""


def class_table(metrics: Mapping[str, Any], against: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """Return one row per SLO class and one for all, with the objectives, and below them the caveats.

    The metrics of the same requests `against` other schedulers, by name, give a column of what each attains. The last
    columns are left out where there is no room for them.
    """
    metrics = cast(Mapping[str, Any], all_printable(metrics))
    others = cast(Mapping[str, Mapping[str, Any]], all_printable(against or {}))
    block = metrics["specsim"]
    head = ["class", "requests", "attained", "goodput", "TTFT p99", "SLO", "TPOT p99", "SLO", "E2E p99", "pause"]
    units = ["", "", "%", "tok/s", "s", "s", "ms", "ms", "s", "s"]
    rows = [head, units, *class_rows(metrics)]
    for place, (name, each) in enumerate(others.items(), BESIDE):
        parts = [*(each["specsim"]["classes"][of] for of in block["classes"]), each["specsim"]]
        column = [name, "%", *(number(part["slo_attainment"], 100, 1) for part in parts)]
        for row, cell in zip(rows, column, strict=True):
            row.insert(place, cell)
    longest = max(len(row[0]) for row in rows)
    while others and len(rows[0]) > BESIDE + len(others) and _room(rows) < min(longest, LONGEST_CLASS):
        rows = [row[:-1] for row in rows]
    width = max(_room(rows), LEAST_CLASS)
    lines = aligned([[shorten(row[0], width), *row[1:]] for row in rows], left=1)
    lines.insert(2, "-" * max(map(len, lines)))
    above = header(stand_ins([block]), WIDTH)
    said = wrap(f"{', '.join(others)}: % attained by the same requests with that scheduler", WIDTH) if others else []
    below = [each for line in (*_verdict_lines(block), *_run_lines(metrics)) for each in wrap(line, WIDTH)]
    return "\n".join([*above, *lines, "", *said, *below])


def _room(rows: Sequence[Sequence[str]]) -> int:
    """Return how wide the first column may be."""
    return WIDTH - 2 * (len(rows[0]) - 1) - sum(widths([row[1:] for row in rows]))


def class_rows(metrics: Mapping[str, Any]) -> list[list[str]]:
    """Return a row of cells per SLO class and one for all, which has no objectives."""
    block, tpot_ms = metrics["specsim"], metrics["p99_tpot_ms"]
    whole = {**block, "requests": block["arrived"], "p99_tpot_s": None if tpot_ms is None else tpot_ms / 1000}
    return [
        [
            name,
            str(part["requests"]),
            attained(part),
            number(part["slo_goodput_tokens_per_s"], 1, 1),
            number(part["p99_ttft_s"], 1, 2),
            objective(part["slo_ttft_range_s"], 1) if part is not whole else "",
            number(part["p99_tpot_s"], 1000, 1),
            objective(part["slo_tpot_range_s"], 1000) if part is not whole else "",
            number(part["p99_e2el_s"], 1, 2),
            number(part["longest_pause_s"], 1, 2),
        ]
        for name, part in [*block["classes"].items(), ("all", whole)]
    ]


def attained(part: Mapping[str, Any]) -> str:
    """Return the attainment in %, with a star if TPOT alone would be much higher."""
    return f"{'*' if flattered(part) else ''}{number(part['slo_attainment'], 100, 1)}"


def flattered(part: Mapping[Any, Any]) -> bool:
    """Return whether TPOT alone, AdaServe's measure, exceeds the attainment by `FLATTERED` or more."""
    return bool(round(part["tpot_attainment"] - part["slo_attainment"], 9) >= FLATTERED)


def objective(span: Sequence[float] | None, scale: float) -> str:
    """Return an objective; the least and the largest if requests of a class differ."""
    if span is None:
        return "none"
    low, high = (in_digits(scale * each) for each in span)
    return low if low == high else f"{low}-{high}"


def most_missed(block: Mapping[str, Any]) -> str | None:
    """Return the objective that most requests missed, or "rejected"; None if none was missed."""
    missed = block["missed"]
    name = max(missed, key=lambda each: missed[each])
    return str(name) if missed[name] else None


def _verdict_lines(block: Mapping[str, Any]) -> list[str]:
    """Return the caveats of the table's attainment: the star, the worst class, what was missed, the load."""
    lines = []
    if block["load"]["overloaded"]:
        lines.append("OVERLOADED: more arrives than is served, and the figures depend on how long the run is")
    if would_say := _flattery(block):
        lines.append(f"* TPOT alone would say {would_say}: it leaves out the waits before the first decoding pass")
    worst = f"worst class {block['worst_class']} {percent(block['worst_class_attainment'])}"
    lines.append(f"{worst}; {_missed_words(block)}; {_span(block['load'])}")
    goodput = number(block["slo_goodput_in_arrivals_tokens_per_s"], 1, 1)
    lines.append(f"goodput up to the last arrival {goodput} tok/s{_per_gpu(block)}")
    return lines


def _per_gpu(block: Mapping[str, Any]) -> str:
    """Return the output on a GPU; nothing of runs that older versions stored."""
    if "gpus" not in block:
        return ""
    on = "a GPU" if block["gpus"] == 1 else f"each of {block['gpus']} GPUs"
    return f"; output {number(block['output_throughput_per_gpu'], 1, 1)} tok/s on {on}"


def _span(load: Mapping[str, Any]) -> str:
    """Return how long the run took: beside its arrivals, or in seconds where they have no span."""
    if load.get("clients") is not None:
        return f"closed loop of {load['clients']} clients"
    if load.get("arrival_span_s") == 0:
        all_at_once = "all sessions begin at once" if load.get("sessions") else "all arrive at once"
        return f"{all_at_once}, and the last ends after {number(load['drain_s'], 1, 2)} s"
    return f"makespan {number(load['makespan_ratio'], 1, 2)} x the {span_name(load)}"


def _flattery(block: Mapping[str, Any]) -> str:
    """Return what TPOT alone would say where the table has a star: of the run, or else of the classes."""
    if flattered(block):
        return percent(block["tpot_attainment"])
    starred = [(name, part) for name, part in block["classes"].items() if flattered(part)]
    return ", ".join(f"{name} {percent(part['tpot_attainment'])}" for name, part in starred)


def _missed_words(block: Mapping[str, Any]) -> str:
    if most_missed(block) is None:
        return "no objective missed"
    names = {"ttft": "TTFT", "tpot": "TPOT", "rejected": "rejected"}
    ordered = sorted(block["missed"].items(), key=lambda item: -item[1])
    return "missed " + ", ".join(f"{names[name]} {count}" for name, count in ordered if count)


def _run_lines(metrics: Mapping[str, Any]) -> list[str]:
    block = metrics["specsim"]
    names = {} if block["mean_draft_tokens_per_verification"] else {"verify": "decode"}
    shares = ", ".join(f"{names.get(part, part)} {percent(share)}" for part, share in block["time_shares"].items())
    rejected = sum(block["rejected"].values())
    reasons = "; ".join(f"{reason}: {count}" for reason, count in block["rejected"].items())
    counts = f"{block['completed']} completed + {rejected} rejected = {block['arrived']} arrived"
    hits, per_s = block.get("prefix_cache_hit_rate"), number(metrics["request_throughput"], 1, 2)
    lines = [
        f"tokens per verification {number(block['mean_tokens_per_verification'], 1, 2)}, "
        f"{block['iterations']} iterations, {block['preemptions']} preemptions"
        + ("" if hits is None else f", {percent(hits)} of prompt tokens cached"),
        f"time: {shares}",
        f"{counts}; {per_s} completed a second",
    ]
    if not block["iterations"]:
        lines = ["nothing ran: every request was rejected or cancelled", counts]
    if rejected:
        lines.append(f"rejected: {reasons}")
    return lines


def number(value: float | None, scale: float, decimals: int) -> str:
    """Return a number of a cell; None and NaN are absent."""
    return ABSENT if value is None or value != value else f"{value * scale:.{places(value, scale, decimals)}f}"


def percent(share: float) -> str:
    """Return a share in %."""
    return f"{number(share, 100, 1)}%"


def places(value: float, scale: float, decimals: int) -> int:
    """Return how many decimals a number has: more where a share below 100% would read 100."""
    several = range(decimals, MOST_DECIMALS + 1) if scale == 100 and value < 1 else ()
    return next((each for each in several if float(f"{value * scale:.{each}f}") < 100), decimals)


def in_digits(value: float, sign: str = "") -> str:
    """Return a number with four digits or all before its point, with an exponent from 1e7 on alone."""
    if 1e3 <= abs(value) < 1e7:
        return f"{value:{sign}.0f}"
    return f"{0.0 if abs(value) < 1e-4 else value:{sign}.4g}"


def widths(rows: Iterable[Sequence[str]]) -> list[int]:
    """Return the width of each column."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def aligned(rows: Sequence[Sequence[str]], *, left: int) -> list[str]:
    """Return a line for each row, the first `left` columns flush left."""
    wide = widths(rows)
    return [
        "  ".join(
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, wide, strict=True))
        ).rstrip()
        for row in rows
    ]


STAND_IN = "stand_in"
"""The key of ``metrics.json`` and the column of a sweep's table: the words, None where the trace is what it says."""
SHIPPED = {"surrogate": "the synthetic surrogate that ships", "toy": "the toy that ships, its first requests"}
"""By origin of a trace."""


def stand_in(name: str, origin: str) -> str | None:
    """Return what is said of a trace that ships in another's place, None of any other."""
    return f"{name}: {SHIPPED[origin]}" if origin in SHIPPED else None


def stand_ins(blocks: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what is said of runs, each once, from their blocks ``specsim`` or the rows of a `Sweep.table`."""
    return sorted({said for block in blocks if isinstance(said := block.get(STAND_IN), str)})


def stand_ins_of(table: DataFrame) -> list[str]:
    """Return what is said of the runs of a `Sweep.table`, each once."""
    return stand_ins({STAND_IN: each} for each in table[STAND_IN].unique()) if STAND_IN in table else []


GETS = "gets the original"


def originals(said: Iterable[str]) -> list[str]:
    """Return a note for each trace that stands in for another: how the other is got."""
    return [f"{each}; `specsim trace fetch {each.rpartition(': ')[0]}` {GETS}" for each in said]


def header(said: Iterable[str], width: int) -> list[str]:
    """Return the lines above a table, none where no trace stands in for another."""
    return [line for each in originals(said) for line in wrap(each, width, break_on_hyphens=False)]


def untold(notes: Iterable[str]) -> list[str]:
    """Return the notes without those that a header or a caption says."""
    return [each for each in notes if not each.endswith(GETS)]


def sentences(said: Iterable[str]) -> list[str]:
    """Return the sentences of a caption."""
    return [f"{each}." for each in said]


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
SPAN, SERVED = ("span", "", "x"), ("served", "", "req/s")
FURTHER: tuple[Head, ...] = (("mostly", "missed", ""), ("load", "", ""))
MEANS = (ATTAINED, DIFFERENCE, "worst_class_attainment", "slo_goodput_tokens_per_s", "p99_ttft_s")
"""Columns of `point_means`, in the order of its table."""
DIGITS, MOST_DECIMALS = 3, 4
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
    blocks = [metrics["specsim"] for _, metrics in runs if metrics is not None]
    closed = bool(blocks) and all(block["load"].get("clients") for block in blocks)
    heads = [*(head for head, *_ in FIGURES.values()), SERVED if closed else SPAN, *FURTHER]
    lines = _lines([label for label, _ in runs], heads, [_of_run(metrics, closed) for _, metrics in runs])
    spans = " or the ".join(dict.fromkeys(span_name(block["load"]) for block in blocks))
    last = "served: requests completed a second" if closed else f"span: makespan over the {spans}"
    said = f"pause: longest time between two tokens; {last}"
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
    few = f", from {LEAST_SEEDS} seeds on" if points[SEEDS].min() < LEAST_SEEDS else ""
    said = [f"mean \u00b1 half width of the 95% interval over seeds{few}; {every}"]
    if DIFFERENCE in there:
        base = short_names(points["scheduler"])[points[AGAINST].iloc[0]]
        heads[there.index(DIFFERENCE)] = ("difference", "to", shorten(base, LONGEST_NAME))
        said.append(shorten(f"difference: attained less that of {base} with the same seed (paired), in points", WIDTH))
    figures = [[mean_of(row, name) for name in there] for row in rows]
    if points[SEEDS].nunique() > 1:
        heads.append(("seeds", "", ""))
        figures = [[*cells, str(row[SEEDS])] for cells, row in zip(figures, rows, strict=True)]
    figures = [[*cells, load_of(row)] for cells, row in zip(figures, rows, strict=True)]
    lines = _lines(labels, [*heads, ("load", "", "")], figures)
    below = _legend_lines(blocks, said, {MARKS.get(row[LOAD], "") for row in rows})
    return "\n".join([*header(stand_ins(blocks), WIDTH), *lines, "", *below])


def _lines(labels: Sequence[Label], heads: Sequence[Head], figures: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: the settings before the figures, or where there is no room in lines above them."""
    keys = list(dict.fromkeys(key for label in labels for key in label))
    above = [list(line) for line in zip(*heads, strict=True)]
    names = [[*short_keys(keys).values()], *([""] * len(keys) for _ in above[1:])]
    told = [[_text(label.get(key)) for key in keys] for label in short_labels(labels)]
    rows = [[*label, *cells] for label, cells in zip([*names, *told], [*above, *figures], strict=True)]
    lines = aligned(rows, left=len(keys))
    if max(map(len, lines)) > WIDTH:
        lines = aligned([*above, *figures], left=0)
        for place in reversed(range(len(told))):
            said = ", ".join(f"{key}={value}" for key, value in zip(names[0], told[place], strict=True))
            lines[len(above) + place : len(above) + place] = wrap(said, WIDTH)
    lines.insert(len(above), "-" * max(map(len, lines)))
    return lines


def _of_run(metrics: Mapping[str, Any] | None, closed: bool) -> list[str]:
    if metrics is None:
        return [*[ABSENT] * (len(FIGURES) + len(FURTHER)), "FAILED"]
    block = metrics["specsim"]
    last = metrics["request_throughput"] if closed else block["load"]["makespan_ratio"]
    _, *figures = (number(block[key], scale, decimals) for key, (_, scale, decimals) in FIGURES.items())
    missed = {"ttft": "TTFT", "tpot": "TPOT", "rejected": "rejected", None: ABSENT}[most_missed(block)]
    return [attained(block), *figures, number(last, 1, 2), missed, _mark(block["load"])]


def mean_of(row: Mapping[Any, Any], name: str) -> str:
    """Return a mean with half the width of its interval, if it has one."""
    _, scale, decimals = FIGURES[ATTAINED if name == DIFFERENCE else name]
    mean, half = row[name], row[f"{name}_{HALF}"]
    if mean != mean:
        return ABSENT
    decimals = places(mean, scale, min(decimals, max(0, DIGITS - len(str(int(abs(mean * scale)))))))
    # An interval of 0 says that no seed differed.
    decimals = next((each for each in range(decimals, decimals + 3) if float(f"{half * scale:.{each}f}")), decimals)
    sign = "+" if name == DIFFERENCE else ""
    star = "*" if name == ATTAINED and flattered(row) else ""
    told = f"{star}{mean * scale:{sign}.{decimals}f}"
    return told if half != half else f"{told} \u00b1 {half * scale:.{decimals}f}"


def load_of(row: Mapping[Any, Any]) -> str:
    """Return the verdict on a point's load, and how many seeds have it where not all do."""
    if not row[FAILED]:
        few = f"{row[LOAD_SEEDS]} of {row[SEEDS]} " if row[LOAD_SEEDS] < row[SEEDS] else ""
        return f"{few}{MARKS[row[LOAD]]}"
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


def run_html(made_of: Configured, metrics: Mapping[str, Any], notes: Sequence[str]) -> str:
    """Return a run's name, its table by class and its notes as HTML."""
    return as_html(run_title(made_of), class_table(metrics), notes)


def as_html(title: str, table: str, lines: Sequence[str]) -> str:
    """Return a title, a table of text and the lines below it as HTML."""
    below = "".join(f"<div>{escape(line)}</div>" for line in untold(lines))
    shown = f'<pre style="font-family: monospace; white-space: pre; overflow-x: auto">{escape(table)}</pre>'
    return f"<div><b>{escape(title)}</b>{shown}{below}</div>"
