"""A run or a sweep in Jupyter: a line that names it, above the table of the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from specsim.results.run_title import run_title
from specsim.results.sweep_text import comparison_table, means_table
from specsim.results.table import class_table

if TYPE_CHECKING:
    from specsim.store.sweeps import Sweep

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
