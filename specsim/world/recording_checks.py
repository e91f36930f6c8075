"""What the columns of a recording may hold; a fault is one line with the row, counted from 1."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from specsim.errors import SpecsimError, represented
from specsim.replica.request import Bools

ON_PATH = -1
PROBABLE = 1.001
"""The most that one probability, or all of a row, comes to in half precision."""
RISE = 1e-3
"""By which a later confidence may be larger in half precision."""
WHOLE = ("sequence", "position", "path", "rank")
PROBABILITIES = ("confidence", "target_probability")


def check_columns(path: Path, columns: Mapping[str, Any]) -> None:
    """Refuse a recording whose columns, arrays by name, do not hold what the documentation says.

    Raises
    ------
    SpecsimError
        One line that names the file and the column, and the row where one is at fault.
    """
    _check_types(path, columns)
    for name in PROBABILITIES:
        values = columns[name]
        _each(path, columns, name, ((values >= 0) & (values <= PROBABLE)).all(axis=1), "probabilities, 0 to 1")
        _each(path, columns, name, values.sum(axis=1) <= PROBABLE, "probabilities whose sum is at most 1")
    _each(path, columns, "confidence", (np.diff(columns["confidence"]) <= RISE).all(axis=1), "the likeliest first")
    most = columns["confidence"].shape[1]
    _each(path, columns, "rank", (columns["rank"] >= 0) & (columns["rank"] <= most), f"0 to {most}")
    _each(path, columns, "position", columns["position"] >= 0, "0 or more")
    kinds = columns["path"]
    _each(path, columns, "path", (kinds == ON_PATH) | (kinds > 0), "-1, or 1, 2, ... behind a wrong turn")
    _check_texts(path, columns)


def _check_types(path: Path, columns: Mapping[str, Any]) -> None:
    for name in WHOLE:
        if columns[name].dtype.kind != "i":
            raise SpecsimError(f"{path}: {name}: expected whole numbers")
    if not all(isinstance(each, str) for each in columns["category"]):
        raise SpecsimError(f"{path}: category: expected names")
    for name in PROBABILITIES:
        values = columns[name]
        if values.ndim != 2 or values.shape != columns["confidence"].shape:
            raise SpecsimError(f"{path}: {name}: expected one list of K numbers a row")


def _each(path: Path, columns: Mapping[str, Any], name: str, right: Bools, expected: str) -> None:
    """Refuse the first row that is not right."""
    if not right.all():
        row = int(np.flatnonzero(~right)[0])
        found = represented(columns[name][row].tolist())
        raise SpecsimError(f"{path}: row {row + 1}: {name}: {found}; expected {expected}")


def _check_texts(path: Path, columns: Mapping[str, Any]) -> None:
    """Refuse a text whose positions on the target's path are not one after the other, in whatever order they stand."""
    _, code = np.unique(columns["category"], return_inverse=True)
    sequence, position = columns["sequence"], columns["position"].astype(np.int64)
    rows = np.flatnonzero(columns["path"] == ON_PATH)
    rows = rows[np.lexsort((position[rows], sequence[rows], code[rows]))]
    before, row = rows[:-1], rows[1:]
    same = (code[before] == code[row]) & (sequence[before] == sequence[row])
    wrong = np.flatnonzero(same & (position[row] != position[before] + 1))
    if len(wrong):
        last, at = int(before[wrong[0]]), int(row[wrong[0]])
        text = f"text {sequence[at]} of {represented(columns['category'][at])}"
        said = f"{position[at]} comes after {position[last]} in {text}"
        raise SpecsimError(f"{path}: row {at + 1}: position: {said}; expected {position[last] + 1}")
