"""Stored runs: a folder that takes its place in one step."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import file_digest, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.config.identity import HASH_CHARACTERS, identity, settings_of
from specsim.errors import SpecsimError, beside, first_line, nearest
from specsim.figures.any_run import Shown
from specsim.files.yaml_file import MOST_FILE_BYTES, check_file
from specsim.metrics.requests import FURTHER_COLUMNS, NOTED, PASS_COLUMNS, PER_POSITION, REQUEST_COLUMNS, SCHEMA_VERSION
from specsim.metrics.tables import run_line

if TYPE_CHECKING:
    from pandas import DataFrame


METRICS_FILE = "metrics.json"
REQUESTS_FILE = "requests.parquet"
PASSES_FILE = "passes.parquet"
CONFIG_FILE = "config.yaml"
PROVENANCE_FILE = "provenance.json"
FILES = (REQUESTS_FILE, PASSES_FILE, CONFIG_FILE, PROVENANCE_FILE, METRICS_FILE)
"""The files of a run in the order in which they take their places; a folder without the last is no run."""
PLANNED_FILE = ".sweep.json"
"""In a sweep's folder: the keys of the last sweep's points; its time is when that sweep began."""
CHECKSUMS, OWN = "files", "sha256"
"""Keys of a provenance: the checksums of the other files, and of all its own content but that checksum."""
CHECKED = tuple(name for name in FILES if name != PROVENANCE_FILE)


def is_run(folder: Path) -> bool:
    """Return whether ``folder`` holds the files of a run; their content is not checked."""
    return all((Path(folder) / name).is_file() for name in (METRICS_FILE, REQUESTS_FILE))


def holds_remains(folder: Path) -> bool:
    """Return whether ``folder`` holds a run or some files of one."""
    return is_run(folder) or all((Path(folder) / name).is_file() for name in (CONFIG_FILE, PROVENANCE_FILE))


def run_folders(folder: Path) -> list[Path]:
    """Return the direct subfolders that hold a run or some files of one, by name.

    A run that is being written is left out.
    """
    inside = Path(folder).iterdir() if Path(folder).is_dir() else ()
    return sorted(each for each in inside if not each.name.startswith(".") and holds_remains(each))


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


@dataclass(frozen=True, slots=True)
class StoredRun(Shown):
    """A run in its folder: ``metrics`` in memory, everything else read from disk at each access.

    Raises
    ------
    SpecsimError
        From each property, when its file is missing, damaged or lacks a column.
    """

    folder: Path
    metrics: dict[str, Any]

    @property
    def requests(self) -> DataFrame:
        """The rows of ``requests.parquet``, one per arrived request, with what moved and what was noted."""
        return _read_parquet(self.folder / REQUESTS_FILE, REQUEST_COLUMNS)

    @property
    def passes(self) -> DataFrame | None:
        """The rows of ``passes.parquet``, one per forward pass; None where they were not recorded."""
        path = self.folder / PASSES_FILE
        return _read_parquet(path, PASS_COLUMNS) if path.exists() else None

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        return read_config(self.folder)

    @property
    def notes(self) -> tuple[str, ...]:
        """The run's notes."""
        return tuple(self.provenance.get("notes", ()))

    def __repr__(self) -> str:
        try:
            return run_line(self.config, self.metrics, self.folder)
        except (SpecsimError, KeyError, TypeError) as error:
            return f"<Run in {self.folder}: {first_line(error)}>"

    @property
    def provenance(self) -> dict[str, Any]:
        """Wall-clock figures, dates, host and versions."""
        return _mapping(self.folder / PROVENANCE_FILE, json.loads)


def read_run(folder: Path) -> StoredRun:
    """Return the run in ``folder``.

    Raises
    ------
    SpecsimError
        When it is no run folder, a file in it is not what the run wrote, or another schema than this version reads.
    """
    folder = Path(folder)
    if not is_run(folder):
        below = run_folders(folder)
        hint = f"; did you mean {str(below[0])!r}?" if below else beside(folder)
        raise SpecsimError(f"no run folder {str(folder)!r}: expected one with {METRICS_FILE} and {REQUESTS_FILE}{hint}")
    metrics = _mapping(folder / METRICS_FILE, json.loads)
    block = metrics.get("specsim")
    version = block.get("schema_version") if isinstance(block, dict) else None
    if version != SCHEMA_VERSION:
        said = f"{str(folder)!r} has schema_version {version}; this specsim reads {SCHEMA_VERSION}"
        raise SpecsimError(f"{said}: expected a run of this version")
    found = damage(folder)
    if found is not None:
        raise SpecsimError(f"{str(folder)!r}: {found}; expected the files that the run wrote: run it again")
    return StoredRun(folder, metrics)


def read_config(folder: Path) -> dict[str, Any]:
    """Return the resolved configuration of the run in ``folder``; other files are not checked.

    Raises
    ------
    SpecsimError
        When it is missing or damaged.
    """
    import yaml

    # The same values as safe_load, eight times as fast with libyaml.
    return _mapping(folder / CONFIG_FILE, partial(yaml.load, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def key_of(folder: Path) -> str | None:
    """Return the identity of the settings of the run in ``folder``.

    A damaged run has that which its folder's name tells. None: nothing tells it.
    """
    named = re.search(rf"-([0-9a-f]{{{HASH_CHARACTERS}}})$", folder.name)
    told = None if named is None else named[1]
    try:
        key = identity(settings_of(read_config(folder)))
    except (SpecsimError, KeyError, TypeError, AttributeError):
        return told
    return key if told in (None, key) or damage(folder) is None else told


def _read_parquet(path: Path, types: Mapping[str, str]) -> DataFrame:
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_file(path, MOST_FILE_BYTES)
    try:
        # A folder named rps=2 is a sweep's, not a partition.
        table = pq.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise SpecsimError(f"{str(path)!r} is damaged: not a Parquet file ({first_line(error)})") from error
    missing = [name for name in types if name not in table.column_names]
    if missing:
        raise SpecsimError(f"{str(path)!r} lacks the column {missing[0]!r}{nearest(missing[0], table.column_names)}")
    own = (NOTED, PER_POSITION)
    further = [name for name in table.column_names if name in FURTHER_COLUMNS or name.startswith(own)]
    frame: DataFrame = table.select([*types, *further]).to_pandas()
    return frame


def _mapping(path: Path, parse: Callable[[str], Any]) -> dict[str, Any]:
    """Return the mapping in a run's file of text; a folder, a pipe or a device in its place is refused."""
    import yaml

    check_file(path, MOST_FILE_BYTES)
    try:
        value = parse(path.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError) as error:
        raise SpecsimError(f"{str(path)!r} is damaged: {first_line(error)}") from error
    if not isinstance(value, dict):
        raise SpecsimError(f"{str(path)!r} holds {type(value).__name__}; expected a mapping of keys to values")
    return value
