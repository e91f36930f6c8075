"""The tables a person reads on the terminal, at most 100 columns wide; ``-`` stands for an absent value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

WIDTH = 100
ABSENT = "-"


def class_table(metrics: Mapping[str, Any]) -> str:
    """Return one row per SLO class and one for all, then the run's speculation, time and request counts."""
    block = metrics["specsim"]
    measures = {part["slo_tpot_measure"] for part in block["classes"].values()}
    tpot = "decode TPOT" if measures == {"decode_tpot_s"} else "TPOT"
    head = ["class", "requests", "attained", "goodput", tpot, "p99", "SLO", "TTFT", "p99", "E2E"]
    units = ["", "", "%", "tok/s", "ms", "ms", "ms", "ms", "ms", "s"]
    rows = [_class_row(name, part) for name, part in block["classes"].items()]
    rows.append(_total_row(metrics, decode=tpot != "TPOT"))
    width = WIDTH - 2 * (len(head) - 1) - sum(_widths([head[1:], units[1:], *(row[1:] for row in rows)]))
    rows = [[_shorten(row[0], max(width, 8)), *row[1:]] for row in rows]
    lines = _align([head, units, *rows], left=1)
    lines.insert(2, "-" * len(lines[0]))
    return "\n".join([*lines, "", *_run_lines(block)])


def comparison_table(runs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    """Return one row per run ``(label, metrics)``; the keys of the labels become the leading columns."""
    keys = list(dict.fromkeys(key for label, _ in runs for key in label))
    head = ["attained", "goodput", "generated", "TPOT", "TTFT p99", "tok/verif"]
    units = ["%", "tok/s", "tok/s", "ms", "ms", ""]
    figures = [head, units, *(_run_figures(metrics) for _, metrics in runs)]
    names = [[key.rsplit(".", 1)[-1] for key in keys], [""] * len(keys)]
    names += [[_text(label.get(key)) for key in keys] for label, _ in runs]
    room = WIDTH - sum(_widths(figures)) - 2 * (len(head) + len(keys) - 1)
    names = _fit(names, room)
    rows = [[*label, *values] for label, values in zip(names, figures, strict=True)]
    lines = _align(rows, left=len(keys))
    lines.insert(2, "-" * max(len(line) for line in lines))
    return "\n".join(lines)


def _class_row(name: str, part: Mapping[str, Any]) -> list[str]:
    measure = part["slo_tpot_measure"]
    return [
        name,
        str(part["requests"]),
        _number(part["slo_attainment"], 100, 1),
        _number(part["slo_goodput_tokens_per_s"], 1, 1),
        _number(part[f"mean_{measure}"], 1000, 1),
        _number(part[f"p99_{measure}"], 1000, 1),
        _number(part["slo_tpot_s"], 1000, 1),
        _number(part["mean_ttft_s"], 1000, 0),
        _number(part["p99_ttft_s"], 1000, 0),
        _number(part["mean_e2el_s"], 1, 2),
    ]


def _total_row(metrics: Mapping[str, Any], *, decode: bool) -> list[str]:
    block = metrics["specsim"]
    tpot_ms = (
        [_number(block[f"{kind}_decode_tpot_s"], 1000, 1) for kind in ("mean", "p99")]
        if decode
        else [_number(metrics[f"{kind}_tpot_ms"], 1, 1) for kind in ("mean", "p99")]
    )
    return [
        "all",
        str(block["arrived"]),
        _number(block["slo_attainment"], 100, 1),
        _number(block["slo_goodput_tokens_per_s"], 1, 1),
        *tpot_ms,
        "",
        _number(metrics["mean_ttft_ms"], 1, 0),
        _number(metrics["p99_ttft_ms"], 1, 0),
        _number(metrics["mean_e2el_ms"], 0.001, 2),
    ]


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
    return [_shorten(line, WIDTH) for line in lines]


def _run_figures(metrics: Mapping[str, Any]) -> list[str]:
    block = metrics["specsim"]
    return [
        _number(block["slo_attainment"], 100, 1),
        _number(block["slo_goodput_tokens_per_s"], 1, 1),
        _number(block["generated_tokens_per_s"], 1, 1),
        _number(metrics["mean_tpot_ms"], 1, 1),
        _number(metrics["p99_ttft_ms"], 1, 0),
        _number(block["mean_tokens_per_verification"], 1, 2),
    ]


def _number(value: float | None, scale: float, decimals: int) -> str:
    return ABSENT if value is None else f"{value * scale:.{decimals}f}"


def _text(value: Any) -> str:
    return ABSENT if value is None else str(value)


def _fit(rows: list[list[str]], room: int) -> list[list[str]]:
    """Shorten the widest columns, one character at a time, until the columns fit into ``room`` characters."""
    widths = _widths(rows)
    while sum(widths) > room and max(widths) > 6:
        widths[widths.index(max(widths))] -= 1
    return [[_shorten(cell, width) for cell, width in zip(row, widths, strict=True)] for row in rows]


def _shorten(text: str, width: int) -> str:
    """Cut the middle out: what tells swept values apart mostly stands at the ends."""
    if len(text) <= width:
        return text
    kept = width - 2
    return f"{text[: kept - kept // 2]}..{text[len(text) - kept // 2 :]}"


def _widths(rows: Iterable[Sequence[str]]) -> list[int]:
    return [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]


def _align(rows: Sequence[Sequence[str]], *, left: int) -> list[str]:
    widths = _widths(rows)
    return [
        "  ".join(
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
