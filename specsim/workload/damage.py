"""Damage in a file: it is read whole or refused, and a refusal names the damaged rows."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator
from gzip import BadGzipFile, GzipFile
from io import BytesIO
from pathlib import Path

from specsim.errors import SpecsimError
from specsim.files.regular_file import MOST_BYTES, check_file, size

TOLD = 5
MOST_RATIO, FREE_BYTES = 100, 64 << 20
"""The most that a gzip of over `FREE_BYTES` may unpack to, in times its size; traces pack 3 to 30 times."""
STEP_BYTES = 1 << 20


class Damage:
    """The damaged rows of one file, collected for one error line."""

    def __init__(self, file: Path, unit: str = "line", label: Callable[[int], str] = str) -> None:
        self.file = file
        self.unit = unit
        self._label = label
        self._rows: dict[int, str] = {}

    def add(self, row: int, what: str) -> None:
        """Note what is wrong in a row, once per row; ``row`` is numbered as by the file's reader."""
        self._rows.setdefault(row, what)

    def check(self) -> None:
        """Raise a ``SpecsimError`` that counts the damaged rows and names the first few, if there are any."""
        if not self._rows:
            return
        told = [f"{self.unit} {self._label(row)}: {self._rows[row]}" for row in sorted(self._rows)[:TOLD]]
        more = [f"and {len(self._rows) - TOLD} more"] if len(self._rows) > TOLD else []
        rows = "row" if len(self._rows) == 1 else "rows"
        raise SpecsimError(f"{self.file}: {len(self._rows)} damaged {rows}: {', '.join(told + more)}")


def shown(cell: object, most: int = 40) -> str:
    """Return a cell for an error message: quoted, on one line, cut at `most` characters."""
    text = repr(cell[: most + 1] if isinstance(cell, str) else cell)
    return text if len(text) <= most else text[: most - 3] + "..."


def content(file: Path, what: str = "file") -> bytes:
    """Return the bytes of a file, unpacked if it is gzip; `what` is the kind of file expected.

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
    most = min(MOST_BYTES, max(FREE_BYTES, MOST_RATIO * packed))
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
