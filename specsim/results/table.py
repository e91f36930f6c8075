"""Tables for the terminal, at most 100 columns wide; ``-`` stands for a missing value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from specsim.results.shortening import fitted, shorten

WIDTH = 100
ABSENT = "-"
FLATTERED = 0.1
"""Excess of TPOT alone over the attainment from which on a table has a star."""

MARKS = {
    "saturated": "at its limit; a longer run may attain less",
    "too short": "load or attainment are not known well enough",
}
"""What a mark at the end of a row means."""


def class_table(metrics: Mapping[str, Any]) -> str:
    """Return one row per SLO class and one for all, with the objectives, and below them the caveats."""
    block = metrics["specsim"]
    head = ["class", "requests", "attained", "goodput", "TTFT p99", "SLO", "TPOT p99", "SLO", "E2E p99", "pause"]
    units = ["", "", "%", "tok/s", "s", "s", "ms", "ms", "s", "s"]
    rows = [_class_row(name, part) for name, part in block["classes"].items()]
    rows.append(_total_row(metrics))
    width = WIDTH - 2 * (len(head) - 1) - sum(_widths([head[1:], units[1:], *(row[1:] for row in rows)]))
    rows = [[shorten(row[0], max(width, 8)), *row[1:]] for row in rows]
    lines = _align([head, units, *rows], left=1)
    lines.insert(2, "-" * len(lines[0]))
    return "\n".join([*lines, "", *_verdict_lines(block), *_run_lines(block)])


def comparison_table(runs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]) -> str:
    """Return one row per run ``(label, metrics)``; the keys of the labels become the leading columns.

    A run without metrics has failed. The columns include those that show a scheduler starving requests. The lines below
    the table give the objectives.
    """
    keys = list(dict.fromkeys(key for label, _ in runs for key in label))
    head = ["attain", "worst", "goodput", "TTFT", "E2E", "pause", "span", "missed", ""]
    units = ["%", "class", "tok/s", "p99 s", "p99 s", "s", "x", "most", ""]
    figures = [head, units, *(_run_figures(metrics and metrics["specsim"]) for _, metrics in runs)]
    names = [[key.rsplit(".", 1)[-1] for key in keys], [""] * len(keys)]
    names += [[_text(label.get(key)) for key in keys] for label, _ in runs]
    room = WIDTH - sum(_widths(figures)) - 2 * (len(head) + len(keys) - 1)
    names = fitted(names, room)
    rows = [[*label, *values] for label, values in zip(names, figures, strict=True)]
    lines = _align(rows, left=len(keys))
    lines.insert(2, "-" * max(len(line) for line in lines))
    blocks = [metrics["specsim"] for _, metrics in runs if metrics is not None]
    return "\n".join([*lines, "", *_legend_lines(blocks)] if blocks else lines)


def _class_row(name: str, part: Mapping[str, Any]) -> list[str]:
    return [
        name,
        str(part["requests"]),
        _attained(part),
        _number(part["slo_goodput_tokens_per_s"], 1, 1),
        _number(part["p99_ttft_s"], 1, 2),
        objective(part["slo_ttft_range_s"], 1),
        _number(part["p99_tpot_s"], 1000, 1),
        objective(part["slo_tpot_range_s"], 1000),
        _number(part["p99_e2el_s"], 1, 2),
        _number(part["longest_pause_s"], 1, 2),
    ]


def _total_row(metrics: Mapping[str, Any]) -> list[str]:
    block = metrics["specsim"]
    return [
        "all",
        str(block["arrived"]),
        _attained(block),
        _number(block["slo_goodput_tokens_per_s"], 1, 1),
        _number(metrics["p99_ttft_ms"], 0.001, 2),
        "",
        _number(metrics["p99_tpot_ms"], 1, 1),
        "",
        _number(metrics["p99_e2el_ms"], 0.001, 2),
        _number(block["longest_pause_s"], 1, 2),
    ]


def _attained(part: Mapping[str, Any]) -> str:
    """Return the attainment in %, with a star if TPOT alone would be much higher."""
    return f"{'*' if flattered(part) else ''}{_number(part['slo_attainment'], 100, 1)}"


def flattered(part: Mapping[str, Any]) -> bool:
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
    worst = f"worst class {block['worst_class']} {_number(block['worst_class_attainment'], 100, 1)}%"
    lines.append(f"{worst}; {_missed_words(block)}; {_span(block['load'])}")
    goodput = _number(block["slo_goodput_in_arrivals_tokens_per_s"], 1, 1)
    lines.append(f"goodput {goodput} tok/s while requests arrive")
    return [shorten(line, WIDTH) for line in lines]


def _span(load: Mapping[str, Any]) -> str:
    """Return how long the run took: beside its arrivals, or in seconds where they have no span."""
    if load.get("clients") is not None:
        return f"closed loop of {load['clients']} clients"
    if load.get("arrival_span_s") == 0:
        return f"all arrive at once, and the last ends after {_number(load['drain_s'], 1, 2)} s"
    return f"makespan {_number(load['makespan_ratio'], 1, 2)} x the arrivals' span"


def _flattery(block: Mapping[str, Any]) -> str:
    """Return what TPOT alone would say where the table has a star: of the run, or else of the classes."""
    if flattered(block):
        return f"{_number(block['tpot_attainment'], 100, 1)}%"
    starred = [(name, part) for name, part in block["classes"].items() if flattered(part)]
    return ", ".join(f"{name} {_number(part['tpot_attainment'], 100, 1)}%" for name, part in starred)


def _missed_words(block: Mapping[str, Any]) -> str:
    if most_missed(block) is None:
        return "no objective missed"
    names = {"ttft": "TTFT", "tpot": "TPOT", "rejected": "rejected"}
    ordered = sorted(block["missed"].items(), key=lambda item: -item[1])
    return "missed " + ", ".join(f"{names[name]} {count}" for name, count in ordered if count)


def _run_lines(block: Mapping[str, Any]) -> list[str]:
    shares = ", ".join(f"{part} {_number(share, 100, 1)}%" for part, share in block["time_shares"].items())
    rejected = sum(block["rejected"].values())
    reasons = "; ".join(f"{reason}: {count}" for reason, count in block["rejected"].items())
    counts = f"{block['completed']} completed + {rejected} rejected = {block['arrived']} arrived"
    lines = [
        f"tokens per verification {_number(block['mean_tokens_per_verification'], 1, 2)}, "
        f"{block['iterations']} iterations, {block['preemptions']} preemptions",
        f"time: {shares}",
        counts,
    ]
    if rejected:
        lines.append(f"rejected: {reasons}")
    return [shorten(line, WIDTH) for line in lines]


def _run_figures(block: Mapping[str, Any] | None) -> list[str]:
    if block is None:
        return [*[ABSENT] * 8, "FAILED"]
    return [
        _attained(block),
        _number(block["worst_class_attainment"], 100, 1),
        _number(block["slo_goodput_tokens_per_s"], 1, 1),
        _number(block["p99_ttft_s"], 1, 2),
        _number(block["p99_e2el_s"], 1, 2),
        _number(block["longest_pause_s"], 1, 2),
        _number(block["load"]["makespan_ratio"], 1, 2),
        {"ttft": "TTFT", "tpot": "TPOT", "rejected": "reject", None: ABSENT}[most_missed(block)],
        _mark(block["load"]),
    ]


def _mark(load: Mapping[str, Any]) -> str:
    """Return why a run's figures would change with its length, if they would."""
    if load["overloaded"]:
        return "OVERLOADED"
    return "saturated" if load.get("saturated") else "too short" if load.get("too_short") else ""


def _legend_lines(blocks: Sequence[Mapping[str, Any]]) -> list[str]:
    names = list(dict.fromkeys(name for block in blocks for name in block["classes"]))
    lines = wrap(f"objectives: {'; '.join(_promises(name, blocks) for name in names)}", WIDTH, subsequent_indent="  ")
    lines.append("pause: longest time between two tokens; span: makespan over the arrivals' span")
    if any(flattered(block) for block in blocks):
        points = f"{100 * FLATTERED:.0f} points more or above"
        lines.append(f"* TPOT alone would say {points}: it leaves out the waits before decoding")
    marks = {_mark(block["load"]) for block in blocks}
    return [*lines, *(f"{mark}: {said}" for mark, said in MARKS.items() if mark in marks)]


def _promises(name: str, blocks: Sequence[Mapping[str, Any]]) -> str:
    """Return the objectives of a class over all runs."""
    parts = [block["classes"][name] for block in blocks if name in block["classes"]]

    def over(key: str, scale: float, unit: str) -> str:
        spans = [part[key] for part in parts if part[key] is not None]
        if not spans:
            return objective(None, scale)
        return f"{objective([min(low for low, _ in spans), max(high for _, high in spans)], scale)} {unit}"

    return f"{name} TTFT {over('slo_ttft_range_s', 1, 's')}, TPOT {over('slo_tpot_range_s', 1000, 'ms')}"


def _number(value: float | None, scale: float, decimals: int) -> str:
    return ABSENT if value is None else f"{value * scale:.{decimals}f}"


def _text(value: Any) -> str:
    return ABSENT if value is None else str(value)


def _widths(rows: Iterable[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _align(rows: Sequence[Sequence[str]], *, left: int) -> list[str]:
    widths = _widths(rows)
    return [
        "  ".join(
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
