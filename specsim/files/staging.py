"""A hidden folder or file in which a run is written before it takes its place; its name tells the writer."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from specsim.errors import SpecsimError

DAY_S = 86_400.0
_NAME = re.compile(r"\.specsim-(?P<host>.+)-(?P<pid>\d+)-[0-9a-f]{8}\.tmp")


def staging_path(parent: Path) -> Path:
    """Return a new hidden path in `parent`, named by host and process."""
    return parent / f".specsim-{_host()}-{os.getpid()}-{uuid4().hex[:8]}.tmp"


@contextmanager
def in_one_step(file: Path) -> Iterator[Path]:
    """Yield a hidden path beside `file` that takes its place when the block ends; the folder is made if missing.

    Raises
    ------
    SpecsimError
        When the file cannot be written; what was there stays.
    """
    partial = staging_path(file.parent)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(file)
    except OSError as error:
        raise SpecsimError(f"{file}: cannot be written: {error.strerror or error}") from None
    finally:
        remove(partial)


def remove_stale(root: Path, now_s: float) -> None:
    """Remove what killed processes left in `root` and in its direct subfolders.

    A path is removed if it is more than a day old at `now_s`, or if its process was on this host and has ended.
    """
    for folder in [root, *_folders(root)]:
        for path in folder.glob(".specsim-*.tmp"):
            if _is_stale(path, now_s):
                remove(path)


def remove(path: Path) -> None:
    """Remove a file or folder, as far as possible; a missing one is no error."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def is_gone(name: str) -> bool:
    """Return whether a staging path belongs to a process of this host that has ended."""
    told = _NAME.fullmatch(name)
    return told is not None and told["host"] == _host() and not is_alive(int(told["pid"]))


def _folders(root: Path) -> list[Path]:
    inside = root.iterdir() if root.is_dir() else ()
    return [each for each in inside if not each.name.startswith(".") and each.is_dir() and not each.is_symlink()]


def _is_stale(path: Path, now_s: float) -> bool:
    try:
        age_s = now_s - path.lstat().st_mtime
    except OSError:
        return False
    if age_s > DAY_S:
        return True
    return is_gone(path.name)


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
