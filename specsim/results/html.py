"""A run or a sweep in Jupyter: a line that names it, above the table of the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from specsim.results.run_title import run_title
from specsim.results.table import class_table, comparison_table

MOST_ROWS = 20


def run_html(config: Mapping[str, Any], metrics: Mapping[str, Any], notes: Sequence[str]) -> str:
    """Return a run's name, its table by class and its notes as HTML."""
    return _html(run_title(config), class_table(metrics), notes)


def sweep_html(
    axes: Mapping[str, Sequence[Any]],
    runs: int,
    shown: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
    notes: Sequence[str],
) -> str:
    """Return a sweep's number of runs, its settings, and its first runs ``(label, metrics)``, as HTML."""
    over = ", ".join(f"{key} ({len(values)})" for key, values in axes.items())
    more = [f"{runs - len(shown)} more runs: .table holds them all"] if len(shown) < runs else []
    return _html(f"Sweep of {runs} runs{f': {over}' if over else ''}", comparison_table(shown), [*more, *notes])


def _html(title: str, table: str, lines: Sequence[str]) -> str:
    below = "".join(f"<div>{escape(line)}</div>" for line in lines)
    return f"<div><b>{escape(title)}</b><pre>{escape(table)}</pre>{below}</div>"
