"""A run's folder: the names of its files, which folders hold a run, and whether a run has been replaced."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

METRICS_FILE = "metrics.json"
REQUESTS_FILE = "requests.parquet"
PASSES_FILE = "passes.parquet"
CONFIG_FILE = "config.yaml"
PROVENANCE_FILE = "provenance.json"
FILES = (METRICS_FILE, REQUESTS_FILE, PASSES_FILE, CONFIG_FILE, PROVENANCE_FILE)
"""The files of a run; a folder without the first is no run."""
FAILURE_FILE = "failure.json"
PLANNED_FILE = ".sweep.json"
"""Stands in a sweep's folder, and holds the keys of the last sweep's points; its time is when that sweep began."""
NAME_BYTES = 120
"""The most bytes of a readable name; with a hash behind it, it stays below a file system's 255."""


class Stamp(NamedTuple):
    """The identity of a stored run: another run in its place has another stamp."""

    inode: int
    modified_ns: int


def stamp_of(folder: Path) -> Stamp | None:
    """Return the stamp of the run in `folder`; None if there is no run."""
    try:
        found = (folder / METRICS_FILE).stat()
    except OSError:
        return None
    return Stamp(found.st_ino, found.st_mtime_ns)


def is_run(folder: Path) -> bool:
    """Return whether ``folder`` holds the files of a run; their content is not checked."""
    return all((Path(folder) / name).is_file() for name in (METRICS_FILE, REQUESTS_FILE))


def holds_remains(folder: Path) -> bool:
    """Return whether ``folder`` holds a run or some files of one."""
    return is_run(folder) or all((Path(folder) / name).is_file() for name in (CONFIG_FILE, PROVENANCE_FILE))


def holds_sweep(folder: Path) -> bool:
    """Return whether the runs of a sweep lie below ``folder``."""
    return (folder / PLANNED_FILE).is_file()


def has_failed(folder: Path) -> bool:
    """Return whether ``folder`` holds the failure of a run."""
    return (folder / FAILURE_FILE).is_file()


def run_folders(folder: Path) -> list[Path]:
    """Return the direct subfolders that hold a run, some files of one, or a failure, by name.

    A run that is being written is left out.
    """
    inside = Path(folder).iterdir() if Path(folder).is_dir() else ()
    seen = [each for each in inside if not each.name.startswith(".")]
    return sorted(each for each in seen if holds_remains(each) or has_failed(each))


def readable_name(named: Mapping[str, Any]) -> str:
    """Return settings as the name of a folder or file, of at most `NAME_BYTES`; "run" without settings."""
    text = ",".join(f"{key}={value}" for key, value in named.items()) or "run"
    plain = "".join(each if each.isalnum() or each in "=,.-_" else "_" for each in text)
    return plain.encode()[:NAME_BYTES].decode(errors="ignore")
