"""What is wrong in a file: read whole or refused, every damaged row named."""

from __future__ import annotations

import hashlib
import stat
import zlib
from pathlib import Path

from specsim.errors import SpecsimError

TOLD = 5
MOST_BYTES = 2 << 30
"""What a file may hold, unpacked."""
MOST_RATIO, FREE_BYTES = 200, 64 << 20
"""How many times its size a gzip may unpack to, once it passes the free bytes: traces pack 3 to 30 times."""


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


def content(file: Path) -> bytes:
    """Return the bytes of a file, unpacked if it is gzip.

    Raises
    ------
    SpecsimError
        When it is missing, no file, unreadable, empty, too large, or its gzip is cut or broken (with the line
        reached).
    """
    try:
        facts = file.stat()
        if not stat.S_ISREG(facts.st_mode):
            what = "a folder" if stat.S_ISDIR(facts.st_mode) else "a pipe or a device"
            raise SpecsimError(f"{file}: {what}, expected a file")
        if facts.st_size > MOST_BYTES:
            raise SpecsimError(f"{file}: {facts.st_size / 2**30:.1f} GiB; expected at most {MOST_BYTES >> 30} GiB")
        raw = file.read_bytes()
    except FileNotFoundError:
        raise SpecsimError(f"{file}: no such file") from None
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise SpecsimError(f"{shown(str(file), 80)}: cannot be read ({said})") from None
    if raw[:2] == b"\x1f\x8b":
        raw = _unpacked(raw, file)
    if not raw or raw.isspace():
        raise SpecsimError(f"{file}: empty file")
    return raw


def sha256(raw: bytes) -> str:
    """Return the checksum of unpacked content, so that a file and its gzip share one."""
    return hashlib.sha256(raw).hexdigest()


def _unpacked(raw: bytes, file: Path) -> bytes:
    parts: list[bytes] = []
    step, held, most = 1 << 16, 0, min(MOST_BYTES, max(FREE_BYTES, MOST_RATIO * len(raw)))
    while raw:
        stream = zlib.decompressobj(wbits=31)
        try:
            for start in range(0, len(raw), step):
                parts.append(stream.decompress(raw[start : start + step]))
                held += len(parts[-1])
                if held > most:
                    raise SpecsimError(f"{file}: gzip unpacks to more than {most >> 20} MiB; expected less")
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
