"""What is wrong in a file: read whole or refused, every damaged row named."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

from specsim.errors import SpecsimError

TOLD = 5


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


def shown(cell: object) -> str:
    """Return a cell as an error message can hold it: quoted, on one line, cut at 40 characters."""
    text = repr(cell)
    return text if len(text) <= 40 else text[:37] + "..."


def content(file: Path) -> bytes:
    """Return the bytes of a file, unpacked if it is gzip.

    Raises
    ------
    SpecsimError
        When it is missing, a folder, unreadable, empty, or its gzip is cut or broken (with the line reached).
    """
    try:
        raw = file.read_bytes()
    except FileNotFoundError:
        raise SpecsimError(f"{file}: no such file") from None
    except IsADirectoryError:
        raise SpecsimError(f"{file}: a folder, expected a file") from None
    except OSError as error:
        raise SpecsimError(f"{file}: cannot be read ({error.strerror})") from None
    if raw[:2] == b"\x1f\x8b":
        raw = _unpacked(raw, file)
    if not raw.strip():
        raise SpecsimError(f"{file}: empty file")
    return raw


def text(file: Path) -> str:
    """Return the text of a file; bytes that are not UTF-8 survive as surrogates and fail where they stand."""
    return content(file).decode("utf-8-sig", errors="surrogateescape")


def sha256(raw: bytes) -> str:
    """Return the checksum of unpacked content, so that a file and its gzip share one."""
    return hashlib.sha256(raw).hexdigest()


def _unpacked(raw: bytes, file: Path) -> bytes:
    parts: list[bytes] = []
    step = 1 << 16
    while raw:
        stream = zlib.decompressobj(wbits=31)
        try:
            for start in range(0, len(raw), step):
                parts.append(stream.decompress(raw[start : start + step]))
                if stream.eof:
                    raw = stream.unused_data + raw[start + step :]
                    break
        except zlib.error:
            raise SpecsimError(f"{file}: broken gzip after line {_lines(parts)}") from None
        if not stream.eof:
            raise SpecsimError(f"{file}: truncated gzip after line {_lines(parts)}")
    return b"".join(parts)


def _lines(parts: list[bytes]) -> int:
    return sum(part.count(b"\n") for part in parts)
