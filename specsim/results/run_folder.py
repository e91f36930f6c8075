"""A run's folder: the names of its files, which folders hold one, and when it is another one by now."""

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
"""Of a run; without the first it is none."""
FAILURE_FILE = "failure.json"
NAME_BYTES = 120
"""Of a readable name: with a hash behind it, it stays below the 255 of a file system."""


class Stamp(NamedTuple):
    """What tells a stored run from another one that takes its place."""

    inode: int
    modified_ns: int


def stamp_of(folder: Path) -> Stamp | None:
    """Return the stamp of the run in `folder`, None where there is none."""
    try:
        found = (folder / METRICS_FILE).stat()
    except OSError:
        return None
    return Stamp(found.st_ino, found.st_mtime_ns)


def is_run(folder: Path) -> bool:
    """Return whether ``folder`` holds a run: complete, as far as the names of its files tell."""
    return all((Path(folder) / name).is_file() for name in (METRICS_FILE, REQUESTS_FILE))


def holds_remains(folder: Path) -> bool:
    """Return whether ``folder`` holds a run, or what is left of one."""
    return is_run(folder) or all((Path(folder) / name).is_file() for name in (CONFIG_FILE, PROVENANCE_FILE))


def has_failed(folder: Path) -> bool:
    """Return whether ``folder`` holds the failure of a run."""
    return (folder / FAILURE_FILE).is_file()


def run_folders(folder: Path) -> list[Path]:
    """Return the folders right below ``folder`` that hold a run, what is left of one, or a failure, by name.

    A run that is just being written is none.
    """
    inside = Path(folder).iterdir() if Path(folder).is_dir() else ()
    seen = [each for each in inside if not each.name.startswith(".")]
    return sorted(each for each in seen if holds_remains(each) or has_failed(each))


def readable_name(named: Mapping[str, Any]) -> str:
    """Return settings as a name for a folder or file, at most `NAME_BYTES` long; "run" for none."""
    text = ",".join(f"{key}={value}" for key, value in named.items()) or "run"
    plain = "".join(each if each.isalnum() or each in "=,.-_" else "_" for each in text)
    return plain.encode()[:NAME_BYTES].decode(errors="ignore")
