"""A CSV as a table: the header line tells the separator, and rows are numbered by line."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from io import TextIOWrapper
from itertools import chain
from pathlib import Path

from specsim.errors import SpecsimError
from specsim.workload.damage import Damage
from specsim.workload.encoding import encoding, lines
from specsim.workload.table import Cells, Rows, Table

SEPARATORS = {
    ",": None,
    ";": "cells separated by semicolons",
    "\t": "cells separated by tabs",
    "|": "cells separated by bars",
}
QUOTED_NUMBER = re.compile(r'"\s*[-+.0-9]')


def open_csv(raw: bytes, file: Path, known: frozenset[str]) -> Table:
    """Return the table of a CSV; the separator is the one that yields most `known` names in the header.

    Raises
    ------
    SpecsimError
        When the header is no line of CSV; from `read`, when the CSV breaks off.
    """
    stream = lines(raw, newline="")
    first = stream.readline()
    headers = {each: _split(first, each) for each in SEPARATORS}
    separator = max(headers, key=lambda each: (len(known.intersection(headers[each])), len(headers[each])))
    names = headers[separator]
    if not names:
        raise SpecsimError(f"{file}: line 1: no header of a CSV; expected names of columns")
    notes = [note for note in (SEPARATORS[separator], encoding(raw)[1]) if note]

    def read(wanted: Sequence[str]) -> tuple[Cells, Rows]:
        return _read(stream, separator, names, wanted, Rows([], Damage(file), notes))

    return Table(file, "CSV", tuple(names), read, where="line 1: ")


def _split(line: str, separator: str) -> list[str]:
    """Return the cells of a header line; none if it is no CSV with this separator."""
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=separator, strict=True), [])]
    except csv.Error:
        return []


def _read(
    stream: TextIOWrapper, separator: str, names: list[str], wanted: Sequence[str], rows: Rows
) -> tuple[Cells, Rows]:
    cells: Cells = {name: [] for name in wanted}
    columns = [(names.index(name), cells[name].append) for name in wanted]
    numbers: list[int] = []
    blank: list[int] = []
    second = stream.readline()
    if QUOTED_NUMBER.search(second):
        rows.note("numbers in quotes")
    for line, row in _rows(chain([second], stream), separator, rows.damage.file):
        if len(row) != len(names):
            if not any(cell.strip() for cell in row):
                blank.append(line)
            else:
                rows.damage.add(line, f"{len(row)} cells where the header has {len(names)}")
            continue
        if row[0].strip() == names[0] and [cell.strip() for cell in row] == names:
            rows.damage.add(line, "the header again")
            continue
        numbers.append(line)
        for place, append in columns:
            append(row[place])
    for line in blank:
        # Empty lines after the last row are no rows.
        if numbers and line < numbers[-1]:
            rows.damage.add(line, "empty line")
    return cells, rows._replace(numbers=numbers)


def _rows(body: Iterable[str], separator: str, file: Path) -> Iterable[tuple[int, list[str]]]:
    reader = csv.reader(body, delimiter=separator, strict=True)
    try:
        for row in reader:
            yield reader.line_num + 1, row
    except csv.Error as error:
        raise SpecsimError(f"{file}: line {reader.line_num + 1}: not CSV ({error})") from None
