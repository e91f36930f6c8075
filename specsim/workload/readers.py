"""Tables from files: csv reads CSV, json JSON, and pyarrow Parquet; a mistake is named by its line, row or entry."""

from __future__ import annotations

import csv
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from gzip import BadGzipFile, GzipFile
from io import BytesIO, TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError
from specsim.files.yaml_file import MOST_FILE_BYTES, check_file, check_rows, size

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TOLD = 5
MOST_RATIO, FREE_BYTES = 100, 64 << 20
"""The most that a gzip of over `FREE_BYTES` may unpack to, in times its size; traces pack 3 to 30 times."""
STEP_BYTES = 1 << 20
csv.field_size_limit(1 << 24)  # Prompts may stand beside their lengths.
SPANS = ("resourceSpans", "scopeSpans", "spans")
ATTRIBUTES, USAGE = "attributes", "gen_ai.usage."
HEAD = 64
"""Records of a JSON file that tell its columns."""
FOREIGN = {
    b"PK\x03\x04": "a ZIP archive or an Excel sheet",
    b"BZh": "packed with bzip2",
    b"\xfd7zXZ": "packed with xz",
    b"(\xb5/\xfd": "packed with Zstandard",
}
MARKS = {
    b"\xef\xbb\xbf": ("utf-8-sig", "UTF-8 with a byte order mark"),
    b"\xff\xfe\x00\x00": ("utf-32", "UTF-32"),
    b"\x00\x00\xfe\xff": ("utf-32", "UTF-32"),
    b"\xff\xfe": ("utf-16", "UTF-16"),
    b"\xfe\xff": ("utf-16", "UTF-16"),
}
SEPARATORS = {
    ",": None,
    ";": "cells separated by semicolons",
    "\t": "cells separated by tabs",
    "|": "cells separated by bars",
}
Cells = Mapping[str, "Series[Any]"]
"""Columns by role; cells are text (CSV) or typed values (JSON, Parquet), the index numbers the rows for the user."""
JsonRecord = dict[str, Any]
Lists = dict[str, list[object]]


class Findings:
    """The damaged rows of one file, collected for one error line, and notes on what was tolerated.

    Attributes
    ----------
    file : its path. unit : what a row is called. notes : for the user, each once
    """

    def __init__(
        self, file: Path, unit: str = "line", notes: Iterable[str] = (), label: Callable[[int], str] = str
    ) -> None:
        self.file = file
        self.unit = unit
        self.notes = list(notes)
        self._label = label
        self._rows: dict[int, str] = {}

    def note(self, what: str) -> None:
        """Add a note, once."""
        if what not in self.notes:
            self.notes.append(what)

    def add(self, row: Any, what: str) -> None:
        """Note what is wrong in a row, once per row; ``row`` is numbered as by the file's reader."""
        self._rows.setdefault(row, what)

    def add_cells(self, cells: Series[Any], what: Callable[[Any], str]) -> None:
        """Note what is wrong in some cells of a column; `what` is asked for each of them."""
        for row, cell in cells.items():
            self.add(row, f"{cells.name} {what(cell)}")

    def at(self, row: Any) -> str:
        """Return what a row is called."""
        return f"{self.unit} {self._label(row)}"

    def check(self) -> None:
        """Raise a ``SpecsimError`` that counts the damaged rows and names the first few, if there are any."""
        if not self._rows:
            return
        told = [f"{self.at(row)}: {self._rows[row]}" for row in sorted(self._rows)[:TOLD]]
        more = [f"and {len(self._rows) - TOLD} more"] if len(self._rows) > TOLD else []
        rows = "row" if len(self._rows) == 1 else "rows"
        raise SpecsimError(f"{self.file}: {len(self._rows)} damaged {rows}: {', '.join(told + more)}")


@dataclass(frozen=True, slots=True)
class FileTable:
    """A file whose columns have names.

    Attributes
    ----------
    file : its path. kind : CSV, JSON lines, JSON or Parquet, or ``columns`` of a table in memory
    names : of its columns, in order; a value in a nested JSON object has a dotted name
    read : returns the columns asked for; the index numbers the rows as `found` does
    found : damage and notes
    where : the beginning of messages about the names, such as ``line 1: `` of a CSV
    keys : the outermost names of a JSON object, which also name what is no column, and the first word of its backend
    """

    file: Path
    kind: str
    names: tuple[str, ...]
    read: Callable[[Sequence[str]], DataFrame]
    found: Findings
    where: str = ""
    keys: tuple[str, ...] = ()

    @property
    def in_memory(self) -> bool:
        """Whether the columns were handed in."""
        return self.kind == "columns"


def open_table(file: Path, known: frozenset[str]) -> FileTable:
    """Return the table in a file, whose first bytes tell Parquet, JSON or CSV, plain or gzip, in any Unicode encoding.

    `known` names of columns tell the separator of a CSV, and an object of lists.

    Raises
    ------
    SpecsimError
        When the file holds no table; from `read`, when it is cut.
    """
    raw = content(file)
    for magic, what in FOREIGN.items():
        if raw.startswith(magic):
            raise SpecsimError(f"{file}: {what}; expected CSV, JSON or Parquet, plain or gzip")
    if raw.startswith(b"PAR1"):
        return open_parquet(raw, file)
    raw, notes = utf8(raw)
    opened = _json if raw[:4096].lstrip()[:1] in (b"{", b"[") else _csv
    return opened(raw.rstrip(b"\r\n"), file, known, notes)


def content(file: Path, what: str = "file") -> bytes:
    """Return the bytes of a file, unpacked if it is gzip; `what` is the kind of file expected.

    Raises
    ------
    SpecsimError
        When it is missing, no file, unreadable, empty, too large, or its gzip is cut or broken (with the line
        reached).
    """
    check_file(file, MOST_FILE_BYTES, what)
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise SpecsimError(f"{file}: cannot be read: {error.strerror or error}") from None
    if raw[:2] == b"\x1f\x8b":
        raw = _unpacked(raw, file)
    if not raw or raw.isspace():
        raise SpecsimError(f"{file}: empty file")
    return raw


def sha256(raw: bytes) -> str:
    """Return the checksum of unpacked content, which a file and its gzip share."""
    return hashlib.sha256(raw).hexdigest()


def _unpacked(raw: bytes, file: Path) -> bytes:
    """Return the content of a gzip, whose size is measured before any of it is kept."""
    held = 0
    for part in _parts(raw, file):
        held += len(part)
        check_unpacked(file, "gzip", held, len(raw))
    return b"".join(_parts(raw, file))


def check_unpacked(file: Path, kind: str, held: int, packed: int) -> None:
    """Refuse a file of `packed` bytes that unpacks to `held` bytes, if that is more than a trace of its size can."""
    most = min(MOST_FILE_BYTES, max(FREE_BYTES, MOST_RATIO * packed))
    if held > most:
        raise SpecsimError(f"{file}: {kind} unpacks to more than {size(most)}; expected less")


def _parts(raw: bytes, file: Path) -> Iterator[bytes]:
    """Yield the content of a gzip of any number of members, at most `STEP_BYTES` at a time."""
    line = 0
    with GzipFile(fileobj=BytesIO(raw)) as stream:
        try:
            while part := stream.read1(STEP_BYTES):
                line += part.count(b"\n")
                yield part
        except EOFError:
            raise SpecsimError(f"{file}: truncated gzip after line {line}") from None
        except (BadGzipFile, zlib.error):
            raise SpecsimError(f"{file}: broken gzip after line {line}") from None


def utf8(raw: bytes) -> tuple[bytes, list[str]]:
    """Return a text in UTF-8, and a note if it was in another encoding, which its first bytes tell.

    Bytes that are no text become U+FFFD, and fail in the cell that has them.
    """
    codec, name = next((known for mark, known in MARKS.items() if raw.startswith(mark)), ("utf-8", ""))
    # A header of ASCII letters in UTF-16 has a zero in every other byte.
    if not name and b"\x00" in raw[:2]:
        codec, name = "utf-16-be" if raw[:1] == b"\x00" else "utf-16-le", "UTF-16 without a byte order mark"
    text = raw.decode(codec, "replace")
    return (raw, []) if not name and "\ufffd" not in text else (text.encode(), [name] if name else [])


def lines(raw: bytes, newline: str = "\n") -> TextIOWrapper:
    """Return UTF-8 as a stream of lines."""
    return TextIOWrapper(BytesIO(raw), encoding="utf-8", newline=newline)


def _csv(raw: bytes, file: Path, known: frozenset[str], notes: list[str]) -> FileTable:
    """Return the table of a CSV; the separator is the one that yields most `known` names in the header."""
    header = lines(raw, "").readline()
    headers = {each: _split(header, each) for each in SEPARATORS}
    separator = max(headers, key=lambda each: (len(known.intersection(headers[each])), len(headers[each])))
    names, told = headers[separator], SEPARATORS[separator]
    if not names:
        raise SpecsimError(f"{file}: line 1: no header of a CSV; expected names of columns")
    found = Findings(file, "line", [told, *notes] if told else notes)

    def read(wanted: Sequence[str]) -> DataFrame:
        cells, numbers, line = {name: list[str]() for name in wanted}, list[int](), 1
        columns = [(names.index(name), column) for name, column in cells.items()]
        reader = csv.reader(lines(raw, ""), delimiter=separator, strict=True)
        try:
            for row in reader:
                if len(row) == len(names):
                    numbers.append(line)
                    for place, column in columns:
                        column.append(row[place])
                else:
                    has = f"where the header has {len(names)}"
                    found.add(line, f"{len(row)} cells {has}" if row else f"a blank line {has} cells")
                line = reader.line_num + 1
        except csv.Error as error:
            raise SpecsimError(f"{file}: line {line}: not CSV ({error})") from None
        return frame(cells, numbers).iloc[1:]

    return FileTable(file, "CSV", tuple(names), read, found, where="line 1: ", keys=tuple(names))


def _split(line: str, separator: str) -> list[str]:
    """Return the cells of a header line; none if it is no CSV with this separator."""
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=separator, strict=True), [])]
    except csv.Error:
        return []


def _json(raw: bytes, file: Path, known: frozenset[str], notes: list[str]) -> FileTable:
    """Return the table of an object a line, of a list of objects, or of an object of lists under `known` names."""
    stream = lines(raw)
    value, more = _parsed(stream.readline()), bool(stream.readline())
    if isinstance(value, dict) and (more or not _lists(value, known)):
        return of_records(map(_parsed, lines(raw)), Findings(file, notes=notes), "JSON lines")
    if value is not None and more:
        raise SpecsimError(f"{file}: line 2: more behind the first JSON value; expected one")
    value = _whole(raw, file) if value is None else value
    if isinstance(value, dict) and SPANS[0] in value:
        value = [value]
    if isinstance(value, dict):
        return of_lists(value, known, Findings(file, "entry", notes))
    if isinstance(value, list) and value:
        return of_records(value, Findings(file, "entry", notes))
    raise SpecsimError(f"{file}: expected requests: an object a line, a list of objects, or an object of lists")


def _parsed(text: str) -> Any:
    """Return a JSON value; None if the text is none, or has a whole number of over 4,300 digits."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _whole(raw: bytes, file: Path) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        raise SpecsimError(f"{file}: line {line}: not JSON, damaged or cut") from None


def _lists(value: JsonRecord, known: frozenset[str]) -> Lists:
    """Return the lists in an object, none if none of them has a `known` name in any case."""
    found = {name: cells for name, cells in value.items() if isinstance(cells, list)}
    return found if {name.lower() for name in known} & {name.lower() for name in found} else {}


def of_lists(value: JsonRecord, known: frozenset[str], found: Findings) -> FileTable:
    """Return the table of the lists in an object, of which one has a `known` name."""
    columns = without_queues(value, _lists(value, known), found)

    def read(wanted: Sequence[str]) -> DataFrame:
        cells = {name: columns[name] for name in wanted}
        if len(counts := {len(each) for each in cells.values()}) > 1:
            listed = ", ".join(f"{len(each)} {name}" for name, each in cells.items())
            raise SpecsimError(f"{found.file}: its lists differ in length: {listed}")
        return frame(cells, range(1, max(counts) + 1))

    return FileTable(found.file, "JSON", tuple(columns), read, found, keys=tuple(_keys(value)))


def without_queues(result: JsonRecord, columns: Lists, found: Findings) -> Lists:
    """Return the columns of a result of ``vllm bench serve`` with arrivals before its client's queue; notes say so.

    A queue time is a request's wait under ``--max-concurrency``: the request arrived that long before it was sent.
    """
    sent, waited, limit = columns.get("start_times", []), columns.get("queue_times"), result.get("max_concurrency")
    if waited is None or len(waited) != len(sent):
        if sent and limit is not None:
            found.note(f"max_concurrency={limit} held requests back: they arrive here when they were sent")
        return columns
    if any(waited):
        found.note("arrivals are start_times less queue_times")
    arrived: list[object] = [
        start - wait if isinstance(start, float | int) and isinstance(wait, float | int) else None
        for start, wait in zip(sent, waited, strict=True)
    ]
    return {**columns, "start_times": arrived}


def of_records(values: Iterable[object], found: Findings, kind: str = "JSON") -> FileTable:
    """Return the table of the objects among some values, which are numbered from 1; all other values are damage."""
    records: dict[int, JsonRecord] = {}
    for number, value in enumerate(_spans(values, found), start=1):
        if isinstance(value, dict):
            records[number] = value
        else:
            found.add(number, "not a JSON object")
    head = list(islice(records.values(), HEAD))
    keys, names = (tuple(dict.fromkeys(each)) for each in (chain(*map(_keys, head)), chain(*map(_names, head))))

    def read(wanted: Sequence[str]) -> DataFrame:
        return frame({name: [_within(record, name) for record in records.values()] for name in wanted}, list(records))

    return FileTable(found.file, kind, names, read, found, keys=keys)


def frame(cells: Mapping[str, Sequence[object]], numbers: Any) -> DataFrame:
    """Return columns of plain values, none of which is converted, of rows with these numbers."""
    from pandas import DataFrame, Series

    return DataFrame({name: Series(list(each), numbers, object) for name, each in cells.items()}, numbers)


def _spans(values: Iterable[object], found: Findings) -> Iterator[object]:
    """Yield values, in the place of an export of OpenTelemetry (OTLP as JSON) its spans that tell tokens."""
    left = 0
    for value in values:
        for each in _within_lists(value, SPANS):
            if isinstance(each, dict) and isinstance(each.get(ATTRIBUTES), list):
                pairs = [
                    (str(pair.get("key")), pair.get("value")) for pair in each[ATTRIBUTES] if isinstance(pair, dict)
                ]
                told = {key: next(iter(value.values()), None) for key, value in pairs if isinstance(value, dict)}
                if not any(key.startswith(USAGE) for key in told):
                    left += 1
                    continue
                each = {**each, ATTRIBUTES: told}
            yield each
    if left:
        found.note(f"left out {left:,} spans without {USAGE}*")


def _within_lists(value: Any, names: Sequence[str]) -> list[Any]:
    """Return what stands in lists within lists, under these names of their objects; the value itself, if in none."""
    found = [value]
    for name in names:
        found = [each for one in found for each in (one[name] if isinstance(one, dict) and name in one else [one])]
    return found


def _keys(record: JsonRecord) -> Iterator[str]:
    """Yield the names of an object, and the backend that a benchmark's result states: ``backend=sglang``."""
    yield from record
    if isinstance(backend := record.get("backend"), str):
        yield f"backend={backend.partition('-')[0]}"


def _names(record: JsonRecord, above: str = "", depth: int = 3) -> Iterator[str]:
    """Yield the names of values; that of a value in an object within is dotted."""
    for name, value in record.items():
        if isinstance(value, dict) and value and depth:
            yield from _names(value, f"{above}{name}.", depth - 1)
        else:
            yield above + name


def _within(record: JsonRecord, name: str) -> object:
    """Return the value under a dotted name of an object within, whose own names may have dots; None: not there."""
    if name in record:
        return record[name]
    above, _, below = name.partition(".")
    value = record.get(above)
    return _within(value, below) if below and isinstance(value, dict) else None


def open_parquet(raw: bytes, file: Path) -> FileTable:
    """Return the table of a Parquet file.

    Raises
    ------
    SpecsimError
        When it is damaged, cut, or states too many rows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        held = pq.ParquetFile(BytesIO(raw))
        count, names = held.metadata.num_rows, tuple(held.schema_arrow.names)
    except (pa.ArrowException, OSError):
        raise SpecsimError(f"{file}: damaged or cut Parquet file") from None
    check_rows(file, count, len(raw))
    groups = (held.metadata.row_group(place) for place in range(held.metadata.num_row_groups))
    check_unpacked(file, "Parquet", sum(group.total_byte_size for group in groups), len(raw))

    def read(wanted: Sequence[str]) -> DataFrame:
        try:
            table = held.read(columns=list(wanted))
        except (pa.ArrowException, OSError):
            raise SpecsimError(f"{file}: damaged or cut Parquet file") from None
        # Whole numbers beside empty cells stay whole; an index that pandas wrote is a column like others.
        frame: DataFrame = table.to_pandas(integer_object_nulls=True, ignore_metadata=True)
        return frame.set_axis(range(1, count + 1))

    return FileTable(file, "Parquet", names, read, Findings(file, "row"))
