"""Checks before a file is read: it is a regular file of bounded size, never a pipe or a device."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from specsim.errors import SpecsimError, beside

MOST_BYTES = 2 << 30
MOST_ROWS, FREE_ROWS, ROWS_PER_BYTE = 50_000_000, 1_000_000, 8
"""The most rows of a Parquet file; of more than `FREE_ROWS`, the most per byte, since a row takes at least a bit."""


def check_file(path: Path, most_bytes: int, what: str = "file", setting: str = "") -> os.stat_result:
    """Return the `os.stat` of a file; refuse one that would block a reader or fill the memory.

    Parameters
    ----------
    what : the kind of file expected. setting : ``key=``, put before the path in messages if a setting named it.

    Raises
    ------
    SpecsimError
        When the file does not exist, is a folder, a pipe or a device, is larger than `most_bytes`, or cannot be read.
    """
    try:
        facts = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise SpecsimError(f"{setting}{path}: no such {what}{beside(path)}") from None
    except (OSError, ValueError) as error:
        raise SpecsimError(f"{setting}{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(facts.st_mode):
        found = "a folder" if stat.S_ISDIR(facts.st_mode) else "a pipe or a device"
        raise SpecsimError(f"{setting}{path}: is {found}; expected a {what}")
    if facts.st_size > most_bytes:
        raise SpecsimError(f"{setting}{path}: {size(facts.st_size)}; expected at most {size(most_bytes)}")
    return facts


def check_rows(path: Path, rows: int, held_bytes: int) -> None:
    """Refuse a Parquet file that states more rows than `held_bytes` can hold.

    Raises
    ------
    SpecsimError
        One line with the limit.
    """
    most = min(MOST_ROWS, max(FREE_ROWS, ROWS_PER_BYTE * held_bytes))
    if rows > most:
        raise SpecsimError(f"{path}: states {rows:,} rows in {size(held_bytes)}; expected at most {most:,}")


def size(count: int) -> str:
    """Return bytes in words, in the largest unit of which there is at least one: 1.5 GiB, 64 MiB, 12 bytes."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{count / (1 << power):.4g} {unit}"
    return f"{count} bytes"
