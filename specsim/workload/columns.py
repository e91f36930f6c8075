"""From the cells of a file to checked columns; cells are text (CSV) or typed values (JSON, Parquet)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isfinite, nan
from typing import NamedTuple

import numpy as np

from specsim.workload.damage import Damage, shown
from specsim.workload.trace import Floats, Ints, Trace, TraceSource

MAX_TOKENS = 10_000_000
WHOLE = re.compile(r"\s*[+-]?[0-9]{1,18}\s*", re.ASCII)
NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)


class Rows(NamedTuple):
    """Row numbers as the user counts them, and where their damage is noted."""

    numbers: Sequence[int]
    damage: Damage


def number(cell: object) -> float | None:
    """Return a finite number or None: no ``nan``, no ``1_000``, no boolean, no text that is not a number."""
    if isinstance(cell, str):
        value = float(cell) if NUMBER.fullmatch(cell) else nan
    elif isinstance(cell, int | float) and not isinstance(cell, bool):
        value = float(cell)
    else:
        return None
    return value if isfinite(value) else None


def tokens(cells: Sequence[object], column: str, rows: Rows) -> Ints:
    """Return token counts (N,), each 1 to ``MAX_TOKENS``; damaged cells are noted and read as 1."""
    values = np.ones(len(cells), np.int64)
    for i, cell in enumerate(cells):
        if isinstance(cell, str) and WHOLE.fullmatch(cell):
            cell = int(cell)
        if not isinstance(cell, int) or isinstance(cell, bool):
            rows.damage.add(rows.numbers[i], f"{column} {shown(cell)} is not a whole number")
        elif not 1 <= cell <= MAX_TOKENS:
            rows.damage.add(rows.numbers[i], f"{column} {cell} is not in 1..{MAX_TOKENS}")
        else:
            values[i] = cell
    return values


def arrivals(cells: Sequence[object], column: str, rows: Rows) -> Floats:
    """Return arrival times (N,), finite, not negative and never falling; damaged cells are noted."""
    values = np.zeros(len(cells))
    before = 0.0
    for i, cell in enumerate(cells):
        value = number(cell)
        if value is None:
            rows.damage.add(rows.numbers[i], f"{column} {shown(cell)} is not a number")
        elif value < 0:
            rows.damage.add(rows.numbers[i], f"{column} {value:g} is negative")
        elif value < before:
            rows.damage.add(rows.numbers[i], f"{column} {value:.10g} is earlier than {before:.10g} before it")
        else:
            before = values[i] = value
    return values


def slos(cells: Sequence[object], column: str, rows: Rows) -> Floats:
    """Return SLOs (N,), each above 0, NaN for an empty cell; damaged cells are noted."""
    values = np.full(len(cells), nan)
    for i, cell in enumerate(cells):
        if cell is None or cell == "":
            continue
        value = number(cell)
        if value is None or value <= 0:
            rows.damage.add(rows.numbers[i], f"{column} {shown(cell)} is not a number above 0")
        else:
            values[i] = value
    return values


def classes(cells: Sequence[object], column: str, rows: Rows) -> tuple[Ints, tuple[str, ...]]:
    """Return class codes (N,) and names in alphabetical order; empty or unprintable names are noted."""
    names: list[str] = []
    for i, cell in enumerate(cells):
        good = isinstance(cell, str) and cell.strip() != "" and cell.isprintable()
        if not good:
            rows.damage.add(rows.numbers[i], f"{column} {shown(cell)} is not a name")
        names.append(str(cell).strip() if good else "")
    order = tuple(sorted(set(names)))
    code = {name: i for i, name in enumerate(order)}
    return np.array([code[name] for name in names], np.int64), order


def trace(arrival_s: Floats, prompt_tokens: Ints, output_tokens: Ints, source: TraceSource) -> Trace:
    """Return the trace of checked columns, the first arrival moved to 0 and rows numbered from 0."""
    row = np.arange(len(arrival_s), dtype=np.int64)
    return Trace(arrival_s - arrival_s[0], prompt_tokens, output_tokens, row, source)
