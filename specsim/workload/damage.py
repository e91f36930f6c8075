"""What is wrong in a file: read whole or refused, every damaged row named."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from gzip import BadGzipFile, GzipFile
from io import BytesIO
from pathlib import Path

from specsim.errors import SpecsimError
from specsim.files.regular_file import MOST_BYTES, check_file, size

TOLD = 5
MOST_RATIO, FREE_BYTES = 100, 64 << 20
"""How many times its size a gzip may unpack to, once it passes the free bytes: traces pack 3 to 30 times."""
STEP_BYTES = 1 << 20


class Damage:
    """The damaged rows of one file, gathered so that one line tells them together."""

    def __init__(self, file: Path, unit: str = "line") -> None:
        self.file = file
        self.unit = unit
        self._rows: dict[int, str] = {}

    def add(self, row: int, what: str) -> None:
        """Note the first thing wrong in a row; ``row`` counts as the file's reader does."""
        self._rows.setdefault(row, what)

    def check(self) -> None:
        """Raise one ``SpecsimError`` that counts the damaged rows and names the first few, if any."""
        if not self._rows:
            return
        told = [f"{self.unit} {row}: {self._rows[row]}" for row in sorted(self._rows)[:TOLD]]
        more = [f"and {len(self._rows) - TOLD} more"] if len(self._rows) > TOLD else []
        rows = "row" if len(self._rows) == 1 else "rows"
        raise SpecsimError(f"{self.file}: {len(self._rows)} damaged {rows}: {', '.join(told + more)}")


def shown(cell: object, most: int = 40) -> str:
    """Return a cell as an error message can hold it: quoted, on one line, cut at `most` characters."""
    text = repr(cell[: most + 1] if isinstance(cell, str) else cell)
    return text if len(text) <= most else text[: most - 3] + "..."


def content(file: Path, what: str = "file") -> bytes:
    """Return the bytes of a file, unpacked if it is gzip; `what` it was expected to be.

    Raises
    ------
    SpecsimError
        When it is missing, no file, unreadable, empty, too large, or its gzip is cut or broken (with the line
        reached).
    """
    check_file(file, MOST_BYTES, what)
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
    """Return the checksum of unpacked content, so that a file and its gzip share one."""
    return hashlib.sha256(raw).hexdigest()


def _unpacked(raw: bytes, file: Path) -> bytes:
    """Return what a gzip holds; it is measured before any of it is kept."""
    held = 0
    for part in _parts(raw, file):
        held += len(part)
        check_unpacked(file, "gzip", held, len(raw))
    return b"".join(_parts(raw, file))


def check_unpacked(file: Path, kind: str, held: int, packed: int) -> None:
    """Refuse a file of so many packed bytes that holds more than a trace of that size can."""
    most = min(MOST_BYTES, max(FREE_BYTES, MOST_RATIO * packed))
    if held > most:
        raise SpecsimError(f"{file}: {kind} unpacks to more than {size(most)}; expected less")


def _parts(raw: bytes, file: Path) -> Iterator[bytes]:
    """Yield what a gzip of any number of members holds, at most `STEP_BYTES` at a time."""
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
