"""Checked columns from the cells of a file, which are text (CSV) or typed values (JSON, Parquet)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isfinite, nan
from typing import Any

import numpy as np

from specsim.errors import SpecsimError
from specsim.workload.readers import Cells, TableRows, shown
from specsim.workload.slo import MOST_CLASSES, problem_of
from specsim.workload.trace import Floats, Ints, Trace, TraceSource

ADASERVE_CLASSES = ("coding", "chat", "summarization")
CODE_OF_MS = {-50.0: 1, -150.0: 2}
# Measured by the collectors of the data on prompts with both lengths; used for prompts with characters alone.
CHARACTERS_PER_TOKEN = (3.4, 4.6, 4.6)
MAX_TOKENS = 10_000_000
WHOLE = re.compile(r"\s*[+-]?[0-9]{1,18}\s*", re.ASCII)
NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)
COMMA = re.compile(r"\s*[+-]?[0-9]*,[0-9,.]+\s*", re.ASCII)


def number(cell: object) -> float | None:
    """Return a finite number, or None for ``nan``, ``1_000``, a boolean or any text that is no number."""
    if isinstance(cell, str):
        value = float(cell) if NUMBER.fullmatch(cell) else nan
    elif isinstance(cell, int | float) and not isinstance(cell, bool):
        value = float(cell) if abs(cell) < 1e300 else nan
    else:
        return None
    return value if isfinite(value) else None


def is_zero(cell: object) -> bool:
    """Return whether a cell holds the number 0."""
    return (not isinstance(cell, str) or cell[:1] in " +-0.") and number(cell) == 0


def not_a_number(cell: object, wanted: str = "a number") -> str:
    """Return what is wrong with a cell that is no number."""
    comma = isinstance(cell, str) and COMMA.fullmatch(cell)
    return f"{shown(cell)} holds a comma; expected a decimal point" if comma else f"{shown(cell)} is not {wanted}"


def tokens(cells: Sequence[object], column: str, rows: TableRows, least: int = 1) -> Ints:
    """Return token counts (N,), each `least` to ``MAX_TOKENS``; damaged cells are noted and read as 1."""
    values = np.ones(len(cells), np.int64)
    odd: object = None
    for i, cell in enumerate(cells):
        if isinstance(cell, str) and WHOLE.fullmatch(cell):
            count = int(cell)
        elif isinstance(cell, int) and not isinstance(cell, bool):
            count = cell
        else:
            value = number(cell)
            if value is None or not value.is_integer():
                rows.damage.add(rows.numbers[i], f"{column} {not_a_number(cell, 'a whole number')}")
                continue
            count, odd = int(value), cell if odd is None else odd
        if least <= count <= MAX_TOKENS:
            values[i] = count
        else:
            rows.damage.add(rows.numbers[i], f"{column} {shown(count)} is not in {least}..{MAX_TOKENS}")
    if odd is not None:
        rows.note(f"{column} are whole numbers written like {shown(odd)}")
    return values


def slos(cells: Sequence[object], column: str, rows: TableRows) -> Floats:
    """Return SLOs (N,), each above 0, NaN for an empty cell; damaged cells are noted."""
    values = np.full(len(cells), nan)
    for i, cell in enumerate(cells):
        if cell is None or cell == "":
            continue
        value = number(cell)
        if value is None or value <= 0:
            rows.damage.add(rows.numbers[i], f"{column} {not_a_number(cell, 'a number above 0')}")
        else:
            values[i] = value
    return values


def classes(cells: Sequence[object], column: str, rows: TableRows) -> tuple[Ints, tuple[str, ...]]:
    """Return class codes (N,) and names in alphabetical order; a cell that is no name is noted."""
    names: list[str] = []
    for i, cell in enumerate(cells):
        name = cell.strip() if isinstance(cell, str) else ""
        problem = problem_of(name)
        if problem:
            rows.damage.add(rows.numbers[i], f"{column} {shown(cell)} {problem}")
        names.append("" if problem else name)
    order = tuple(sorted(set(names)))
    if len(order) > MOST_CLASSES:
        raise SpecsimError(
            f"{rows.damage.file}: {column} names {len(order):,} classes; expected at most {MOST_CLASSES:,}"
        )
    code = {name: i for i, name in enumerate(order)}
    return np.array([code[name] for name in names], np.int64), order


def trace(
    since_s: Floats,
    prompt_tokens: Ints,
    output_tokens: Ints,
    row: Ints,
    source: TraceSource,
    optional: Mapping[str, Any],
) -> Trace:
    """Return the trace of checked columns in order of arrival, the first arrival at 0, ties in order of rows.

    `optional` holds the optional fields of a `Trace`.
    """
    order = np.argsort(since_s, kind="stable")
    arrival_s = since_s[order]
    rest: dict[str, Any] = {
        name: each[order] if isinstance(each, np.ndarray) else each for name, each in optional.items()
    }
    return Trace(arrival_s - arrival_s[0], prompt_tokens[order], output_tokens[order], row[order], source, **rest)


def adaserve_objectives(cells: Cells, rows: TableRows) -> dict[str, Any]:
    """Return the classes and TPOT SLOs of AdaServe's artifact as fields of a `Trace`.

    The authors give three classes by ``slo_ratio``: above 0 a multiple of the baseline latency, below 0 milliseconds
    per token.
    """
    ratios = cells["slo_ratio"]
    code = np.zeros(len(ratios), np.int64)
    ratio = np.full(len(ratios), np.nan)
    seconds = np.full(len(ratios), np.nan)
    for i, cell in enumerate(ratios):
        value = number(cell)
        if value is not None and value > 0:
            ratio[i] = value
        elif value in CODE_OF_MS:
            code[i], seconds[i] = CODE_OF_MS[value], -value / 1000
        else:
            rows.damage.add(rows.numbers[i], f"slo_ratio {shown(cell)} is not above 0, -50 or -150")
    return {"slo_class": code, "slo_names": ADASERVE_CLASSES, "tpot_slo_s": seconds, "tpot_slo_ratio": ratio}


def adaserve_prompts(texts: Sequence[object] | None, length: Ints, code: Ints) -> tuple[Ints, str | None]:
    """Return prompt lengths (N,) in tokens of one of the artifact's files, and a note about them.

    A file whose ``input_length`` is the length of the ``prompt`` text in every row (figure 14) counts characters.
    """
    if texts is None:
        return length, None
    characters = all(count == len(str(text)) for count, text in zip(length.tolist(), texts, strict=True))
    return estimated_prompts([None] * len(length), length, code) if characters else (length, None)


def estimated_prompts(known: Sequence[object], length: Ints, code: Ints) -> tuple[Ints, str | None]:
    """Return prompt lengths (N,) in tokens: the `known`, else an estimate from characters, and a note about these."""
    unknown = np.array([count is None for count in known])
    if not unknown.any():
        return length, None
    estimate = np.maximum(1, np.rint(length / np.array(CHARACTERS_PER_TOKEN)[code])).astype(np.int64)
    given = np.array([count if isinstance(count, int) else 0 for count in known], np.int64)
    note = (
        f"{int(unknown.sum())} of {len(known)} prompt lengths are estimated from characters"
        f" ({CHARACTERS_PER_TOKEN[0]:g} per token for code, {CHARACTERS_PER_TOKEN[1]:g} for text)"
    )
    return np.where(unknown, estimate, given), note
