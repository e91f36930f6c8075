"""JSON as a table: one object per line, a list of objects, or one object of lists."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from specsim.errors import SpecsimError
from specsim.workload.columns import NUMBER
from specsim.workload.damage import Damage, shown
from specsim.workload.encoding import encoding, lines
from specsim.workload.table import Cells, Rows, Table
from specsim.workload.vllm_result import is_result, requests

HEAD = 64
Record = dict[str, object]


def open_json(raw: bytes, file: Path, known: frozenset[str]) -> Table:
    """Return the table of a JSON text that begins with ``{`` or ``[``; an object of lists is told by `known` names.

    Raises
    ------
    SpecsimError
        When it is no JSON or holds no requests; from `read`, when lists differ in length.
    """
    notes = [note for note in (encoding(raw)[1],) if note]
    value = _parsed(lines(raw, "\n").readline())
    if isinstance(value, dict) and not is_result(value) and not _of_lists(value, known):
        return _lines_table(raw, file, notes)
    if value is None:
        value = _whole(raw, file)
    elif _more_than_a_line(raw):
        raise SpecsimError(f"{file}: line 2: more behind the first JSON value; expected one")
    if isinstance(value, dict) and is_result(value):
        value, told = requests(value, file)
        notes += told
    if isinstance(value, dict) and _of_lists(value, known):
        return _columns_table(value, file, notes)
    if isinstance(value, list) and value:
        return _list_table(value, file, notes)
    raise SpecsimError(f"{file}: expected requests: an object a line, a list of objects, or an object of lists")


def _of_lists(value: Record, known: frozenset[str]) -> bool:
    return any(name in known and isinstance(cells, list) for name, cells in value.items())


def _more_than_a_line(raw: bytes) -> bool:
    return any(line.strip() for line in islice(lines(raw, "\n"), 1, None))


def _columns_table(value: Record, file: Path, notes: list[str]) -> Table:
    columns = {name: cells for name, cells in value.items() if isinstance(cells, list)}

    def read(wanted: Sequence[str]) -> tuple[Cells, Rows]:
        cells = {name: columns[name] for name in wanted}
        counts = {len(each) for each in cells.values()}
        if len(counts) > 1:
            told = ", ".join(f"{len(each)} {name}" for name, each in cells.items())
            raise SpecsimError(f"{file}: its lists differ in length: {told}")
        return cells, Rows(range(1, max(counts) + 1), Damage(file, "entry"), notes + _quoted(cells))

    return Table(file, "JSON", tuple(columns), read)


def _lines_table(raw: bytes, file: Path, notes: list[str]) -> Table:
    head = [record for _, record in islice(_records(raw, Damage(file)), HEAD)]

    def read(wanted: Sequence[str]) -> tuple[Cells, Rows]:
        damage, cells = Damage(file), [(name, list[object]()) for name in wanted]
        numbers = []
        for line, record in _records(raw, damage):
            numbers.append(line)
            for name, column in cells:
                column.append(record.get(name))
        return dict(cells), Rows(numbers, damage, notes + _quoted(dict(cells)))

    return Table(file, "JSON lines", _names(head), read)


def _list_table(values: list[object], file: Path, notes: list[str]) -> Table:
    damage = Damage(file, "entry")
    records = [value for value in values if isinstance(value, dict)]
    if len(records) < len(values):
        for place, value in enumerate(values, start=1):
            if not isinstance(value, dict):
                damage.add(place, f"{shown(value)} is not an object")
        damage.check()

    def read(wanted: Sequence[str]) -> tuple[Cells, Rows]:
        cells: Cells = {name: [record.get(name) for record in records] for name in wanted}
        return cells, Rows(range(1, len(records) + 1), damage, notes + _quoted(cells))

    return Table(file, "JSON", _names(records[:HEAD]), read)


def _names(head: Sequence[Record]) -> tuple[str, ...]:
    """Return the names of columns: a record may lack one that is optional."""
    return tuple(dict.fromkeys(name for record in head for name in record))


def _quoted(cells: Cells) -> list[str]:
    first = [column[0] for column in cells.values() if column]
    return ["numbers in quotes"] if any(isinstance(cell, str) and NUMBER.fullmatch(cell) for cell in first) else []


def _records(raw: bytes, damage: Damage) -> Iterator[tuple[int, Record]]:
    blank: list[int] = []
    for line, text in enumerate(lines(raw, "\n"), start=1):
        if not text.strip():
            blank.append(line)
            continue
        for empty in blank:
            damage.add(empty, "empty line")
        blank.clear()
        value = _parsed(text)
        if isinstance(value, dict):
            yield line, value
        else:
            damage.add(line, "not a JSON object")


def _parsed(text: str) -> object:
    """Return a JSON value; None if the text is none, or has a whole number of over 4,300 digits."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _whole(raw: bytes, file: Path) -> object:
    try:
        return json.loads(lines(raw, "\n").read())
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        raise SpecsimError(f"{file}: line {line}: not JSON, damaged or cut") from None
