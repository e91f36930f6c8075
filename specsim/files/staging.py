"""Hidden files and folders that take their place in one step once they are whole; a name tells the writer."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from specsim.errors import SpecsimError

DAY_S = 86_400.0
NAME_BYTES = 120
_NAME = re.compile(r"\.specsim-(?P<host>.+)-(?P<pid>\d+)-[0-9a-f]{8}\.tmp")


def staging_path(parent: Path) -> Path:
    """Return a new hidden path in `parent`, named by host and process."""
    return parent / f".specsim-{_host()}-{os.getpid()}-{uuid4().hex[:8]}.tmp"


class Unwritable(SpecsimError):
    """A file or folder cannot be written: the disk is full, or permission is missing."""


@contextmanager
def in_one_step(file: Path) -> Iterator[Path]:
    """Yield a hidden path beside `file` that takes its place when the block ends; the folder is made if missing.

    Raises
    ------
    Unwritable
        When the file cannot be written; an older one stays.
    """
    partial = staging_path(file.parent)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(file)
    except OSError as error:
        raise Unwritable(f"{file}: cannot be written: {error.strerror or error}") from None
    finally:
        remove(partial)


def remove_stale(root: Path, now_s: float) -> None:
    """Remove what killed processes left in `root` and in its direct subfolders.

    A path is removed if it is more than a day old at `now_s`, or if its process was on this host and has ended.
    """
    for path in [*root.glob(".specsim-*.tmp"), *root.glob("*/.specsim-*.tmp")]:
        if _is_stale(path, now_s):
            remove(path)


def remove(path: Path) -> None:
    """Remove a file or folder, as far as possible; a missing one is no error."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _is_stale(path: Path, now_s: float) -> bool:
    try:
        age_s = now_s - path.lstat().st_mtime
    except OSError:
        return False
    told = _NAME.fullmatch(path.name)
    gone = told is not None and told["host"] == _host() and not is_alive(int(told["pid"]))
    return gone or age_s > DAY_S


def is_alive(pid: int) -> bool:
    """Return whether a process of this host has not ended, or may not have."""
    if os.name == "nt":
        # On Windows signal 0 is Ctrl-C, so only the age can tell.
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9.]", "_", platform.node())[:64] or "unnamed"


def readable_name(named: Mapping[str, Any]) -> str:
    """Return settings as the name of a folder or file, of at most `NAME_BYTES`; "run" without settings."""
    text = ",".join(f"{key}={value}" for key, value in named.items()) or "run"
    plain = "".join(each if each.isalnum() or each in "=,.-_" else "_" for each in text)
    return plain.encode()[:NAME_BYTES].decode(errors="ignore")
