"""Results of checks and of the engine as rows of a file that is only appended to, so that a kill loses one at most."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

BEGUN, ENDED = "begun", "ended"
"""Quantities of the rows around a check; a check that begun and never ended took its process with it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One number of a check: `value` in `unit` of `quantity` in `case`; None where `note` says why there is none."""

    check: str
    case: str
    quantity: str
    value: float | None = None
    unit: str = ""
    note: str = ""

    def __str__(self) -> str:
        shown = "" if self.value is None else f" {self.value:.4g}{' ' + self.unit if self.unit else ''}"
        return f"{self.check} {self.case}: {self.quantity}{shown}{'; ' + self.note if self.note else ''}"


class Journal:
    """The rows of one session."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, row: Row) -> None:
        """Append a row."""
        line = json.dumps({**asdict(row), "at": datetime.now(UTC).isoformat(timespec="seconds")})
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{self._ending()}{line}\n")

    def _ending(self) -> str:
        """Return the line break that a kill may have left out."""
        held = self._path.read_bytes() if self._path.exists() else b""
        return "\n" if held and not held.endswith(b"\n") else ""

    def begin(self, check: str) -> None:
        """Note that a check begins."""
        self.add(Row(check, "", BEGUN))

    def end(self, check: str) -> None:
        """Note that a check ended, however it ended."""
        self.add(Row(check, "", ENDED))

    def rows(self) -> list[Row]:
        """Return all rows; a line that a kill cut short is left out."""
        if not self._path.exists():
            return []
        rows = []
        for line in self._path.read_text(encoding="utf-8").splitlines():
            try:
                values = json.loads(line)
            except ValueError:
                continue
            values.pop("at")
            rows.append(Row(**values))
        return rows

    def ended(self) -> set[str]:
        """Return the checks that are not to run again: those that ended, and those that ended their process twice."""
        rows = self.rows()
        begun = [row.check for row in rows if row.quantity == BEGUN]
        return {row.check for row in rows if row.quantity == ENDED} | {each for each in begun if begun.count(each) > 1}
