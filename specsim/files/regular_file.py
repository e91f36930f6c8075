"""Whether a path is a file that may be read: a regular one of at most a stated size, never a pipe or a device."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from specsim.errors import SpecsimError, beside

MOST_BYTES = 2 << 30
MOST_ROWS, FREE_ROWS, ROWS_PER_BYTE = 50_000_000, 1_000_000, 8
"""A Parquet file of some kilobytes can state any number of rows; beyond the free ones a row takes a bit at least."""


def check_file(path: Path, most_bytes: int, what: str = "file", setting: str = "") -> os.stat_result:
    """Return the facts of a file; refuse what reading would hang on, or would fill the memory with.

    Parameters
    ----------
    what : the file was expected to be. setting : ``key=`` before its name in messages, where a setting named it.

    Raises
    ------
    SpecsimError
        When there is no such file, it is a folder, a pipe or a device, larger than `most_bytes`, or out of reach.
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
    """Refuse a Parquet file of some bytes that states more rows than it can hold.

    Raises
    ------
    SpecsimError
        One line with the limit.
    """
    most = min(MOST_ROWS, max(FREE_ROWS, ROWS_PER_BYTE * held_bytes))
    if rows > most:
        raise SpecsimError(f"{path}: states {rows:,} rows in {size(held_bytes)}; expected at most {most:,}")


def size(count: int) -> str:
    """Return bytes in the unit that leaves at least one of them: 1.5 GiB, 64 MiB, 12 bytes."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{count / (1 << power):.4g} {unit}"
    return f"{count} bytes"
