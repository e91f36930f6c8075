"""A run's folder: the names of its files, which folders hold a run, and whether a file in one is damaged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

METRICS_FILE = "metrics.json"
REQUESTS_FILE = "requests.parquet"
PASSES_FILE = "passes.parquet"
CONFIG_FILE = "config.yaml"
PROVENANCE_FILE = "provenance.json"
FILES = (REQUESTS_FILE, PASSES_FILE, CONFIG_FILE, PROVENANCE_FILE, METRICS_FILE)
"""The files of a run in the order in which they take their places; a folder without the last is no run."""
PLANNED_FILE = ".sweep.json"
"""In a sweep's folder: the keys of the last sweep's points; its time is when that sweep began."""
NAME_BYTES = 120
"""The most bytes of a readable name; with a hash behind it, it stays below a file system's 255."""
CHECKSUMS, OWN = "files", "sha256"
"""Keys of a provenance: the checksums of the other files, and of all its own content but that checksum."""
CHECKED = tuple(name for name in FILES if name != PROVENANCE_FILE)


def is_run(folder: Path) -> bool:
    """Return whether ``folder`` holds the files of a run; their content is not checked."""
    return all((Path(folder) / name).is_file() for name in (METRICS_FILE, REQUESTS_FILE))


def holds_remains(folder: Path) -> bool:
    """Return whether ``folder`` holds a run or some files of one."""
    return is_run(folder) or all((Path(folder) / name).is_file() for name in (CONFIG_FILE, PROVENANCE_FILE))


def holds_sweep(folder: Path) -> bool:
    """Return whether the runs of a sweep lie below ``folder``."""
    return (folder / PLANNED_FILE).is_file()


def run_folders(folder: Path) -> list[Path]:
    """Return the direct subfolders that hold a run or some files of one, by name.

    A run that is being written is left out.
    """
    inside = Path(folder).iterdir() if Path(folder).is_dir() else ()
    return sorted(each for each in inside if not each.name.startswith(".") and holds_remains(each))


def readable_name(named: Mapping[str, Any]) -> str:
    """Return settings as the name of a folder or file, of at most `NAME_BYTES`; "run" without settings."""
    text = ",".join(f"{key}={value}" for key, value in named.items()) or "run"
    plain = "".join(each if each.isalnum() or each in "=,.-_" else "_" for each in text)
    return plain.encode()[:NAME_BYTES].decode(errors="ignore")


def sealed(provenance: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a provenance with the checksums of the run's other files in `folder`, and of all its own content."""
    files = {name: checksum for name in CHECKED if (checksum := _of_file(folder / name)) is not None}
    whole = {**provenance, CHECKSUMS: files}
    return {**whole, OWN: _of_content(whole)}


def damage(folder: Path) -> str | None:
    """Return which file of the run in `folder` has changed since the run wrote it; None if none has."""
    path = folder / PROVENANCE_FILE
    try:
        if not path.exists():
            return f"{PROVENANCE_FILE} is missing"
        provenance = json.loads(path.read_bytes()) if path.is_file() else {}
        own, files = provenance.pop(OWN), dict(provenance[CHECKSUMS])
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return f"{PROVENANCE_FILE} is damaged"
    if own != _of_content(provenance):
        return f"{PROVENANCE_FILE} is damaged"
    for name in CHECKED:
        there = _of_file(folder / name)
        if there != files.get(name):
            return f"{name} is {'missing' if there is None else 'damaged'}"
    return None


def _of_file(path: Path) -> str | None:
    """Return the checksum of a file; None where nothing is, empty for what cannot be read or would block a reader."""
    try:
        if not path.is_file():
            return "" if path.exists() else None
        with path.open("rb") as stream:
            return file_digest(stream, "sha256").hexdigest()
    except OSError:
        return ""


def _of_content(content: Mapping[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
