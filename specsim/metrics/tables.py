"""Tables of one run, as text and as HTML, and the lines above and below that tell of synthetic surrogates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, cast

from specsim.errors import all_printable, printable

if TYPE_CHECKING:
    from pandas import DataFrame

SHOWN = ("scheduler", "trace", "profile", "slo")


def run_title(config: Mapping[str, Any]) -> str:
    """Return the choices of a run, and its load and seed."""
    chosen = [f"{key}={Path(config['choices'][key]).name}" for key in SHOWN]
    set_to = [f"{key}={config[key]}" for key in ("rps", "requests", "seed") if config[key] is not None]
    return f"Run: {', '.join([*chosen, *set_to])}"


def run_line(config: Mapping[str, Any], metrics: Mapping[str, Any], folder: Path | None) -> str:
    """Return what a run looks like in Python."""
    block = metrics["specsim"]
    attained = f"{block['arrived']:,} requests, {block['slo_attainment']:.1%} attained"
    where = "in memory" if folder is None else f"in {folder}"
    return printable(f"<{run_title(config)}; {attained}; {where}>")


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
    below = [each for line in (*_verdict_lines(block), *_run_lines(block)) for each in wrap(line, WIDTH)]
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
    low, high = (f"{scale * each:.4g}" for each in span)
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
    worst = f"worst class {block['worst_class']} {number(block['worst_class_attainment'], 100, 1)}%"
    lines.append(f"{worst}; {_missed_words(block)}; {_span(block['load'])}")
    goodput = number(block["slo_goodput_in_arrivals_tokens_per_s"], 1, 1)
    lines.append(f"goodput {goodput} tok/s while requests arrive")
    return lines


def _span(load: Mapping[str, Any]) -> str:
    """Return how long the run took: beside its arrivals, or in seconds where they have no span."""
    if load.get("clients") is not None:
        return f"closed loop of {load['clients']} clients"
    if load.get("arrival_span_s") == 0:
        return f"all arrive at once, and the last ends after {number(load['drain_s'], 1, 2)} s"
    return f"makespan {number(load['makespan_ratio'], 1, 2)} x the arrivals' span"


def _flattery(block: Mapping[str, Any]) -> str:
    """Return what TPOT alone would say where the table has a star: of the run, or else of the classes."""
    if flattered(block):
        return f"{number(block['tpot_attainment'], 100, 1)}%"
    starred = [(name, part) for name, part in block["classes"].items() if flattered(part)]
    return ", ".join(f"{name} {number(part['tpot_attainment'], 100, 1)}%" for name, part in starred)


def _missed_words(block: Mapping[str, Any]) -> str:
    if most_missed(block) is None:
        return "no objective missed"
    names = {"ttft": "TTFT", "tpot": "TPOT", "rejected": "rejected"}
    ordered = sorted(block["missed"].items(), key=lambda item: -item[1])
    return "missed " + ", ".join(f"{names[name]} {count}" for name, count in ordered if count)


def _run_lines(block: Mapping[str, Any]) -> list[str]:
    shares = ", ".join(f"{part} {number(share, 100, 1)}%" for part, share in block["time_shares"].items())
    rejected = sum(block["rejected"].values())
    reasons = "; ".join(f"{reason}: {count}" for reason, count in block["rejected"].items())
    counts = f"{block['completed']} completed + {rejected} rejected = {block['arrived']} arrived"
    lines = [
        f"tokens per verification {number(block['mean_tokens_per_verification'], 1, 2)}, "
        f"{block['iterations']} iterations, {block['preemptions']} preemptions",
        f"time: {shares}",
        counts,
    ]
    if not block["iterations"]:
        lines = ["nothing ran: every request was rejected or cancelled", counts]
    if rejected:
        lines.append(f"rejected: {reasons}")
    return lines


def number(value: float | None, scale: float, decimals: int) -> str:
    """Return a number of a cell; None and NaN are absent."""
    return ABSENT if value is None or value != value else f"{value * scale:.{decimals}f}"


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


def header(said: Iterable[str], width: int) -> list[str]:
    """Return the lines above a table, none where no trace stands in for another."""
    names = [(each, each.rpartition(": ")[0]) for each in said]
    told = [f"{each}; `specsim trace fetch {name}` gets the original" for each, name in names]
    return [line for each in told for line in wrap(each, width, break_on_hyphens=False)]


def sentences(said: Iterable[str]) -> list[str]:
    """Return the sentences of a caption."""
    return [f"{each}." for each in said]
