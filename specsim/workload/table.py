"""The rows of a file, before its columns have a meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from specsim.workload.damage import Damage

Cells = dict[str, list[object]]
"""Columns by name; cells are text (CSV) or typed values (JSON, Parquet)."""
COLUMNS = "columns"
"""The kind of a table in memory."""


class Rows(NamedTuple):
    """Row numbers for the user, the damage found in the rows, and notes about what was tolerated."""

    numbers: Sequence[int]
    damage: Damage
    notes: list[str]

    def note(self, what: str) -> None:
        """Add a note, once."""
        if what not in self.notes:
            self.notes.append(what)


@dataclass(frozen=True, slots=True)
class Table:
    """A file whose columns have names.

    Attributes
    ----------
    file : its path. kind : CSV, JSON lines, JSON or Parquet, or `COLUMNS`
    names : of its columns, in order
    read : returns the cells of the columns asked for, and their rows
    where : the beginning of messages about the names, such as ``line 1: `` of a CSV
    """

    file: Path
    kind: str
    names: tuple[str, ...]
    read: Callable[[Sequence[str]], tuple[Cells, Rows]]
    where: str = ""
