"""The rows of a file before anyone says what its columns mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from specsim.workload.damage import Damage

Cells = dict[str, list[object]]
"""Columns by name; cells are text (CSV) or typed values (JSON, Parquet)."""


class Rows(NamedTuple):
    """Row numbers as the user counts them, where their damage is noted, and what was tolerated in them."""

    numbers: Sequence[int]
    damage: Damage
    notes: list[str]

    def note(self, what: str) -> None:
        """Note something once."""
        if what not in self.notes:
            self.notes.append(what)


@dataclass(frozen=True, slots=True)
class Table:
    """A file whose columns have names.

    Attributes
    ----------
    file : its path. kind : what it is written in: CSV, JSON lines, JSON or Parquet
    names : of its columns, in order
    read : the cells of the columns asked for, and their rows
    where : how a message about the names begins, ``line 1: `` in a CSV
    head : its first records where they hold more than cells (JSON)
    """

    file: Path
    kind: str
    names: tuple[str, ...]
    read: Callable[[Sequence[str]], tuple[Cells, Rows]]
    where: str = ""
    head: tuple[dict[str, object], ...] = ()
