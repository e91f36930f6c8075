"""Stored runs: a folder that takes its place in one step, written and read again."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from errno import EEXIST, ENOTEMPTY
from functools import partial
from hashlib import file_digest, sha256
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.config.configured import Configured
from specsim.config.identity import HASH_CHARACTERS, identity, settings_of
from specsim.errors import SpecsimError, beside, first_line, nearest
from specsim.figures.shown import Shown
from specsim.files.kept import one_at_a_time
from specsim.files.staging import Unwritable, remove, staging_path
from specsim.files.yaml_file import MOST_FILE_BYTES, check_file, config_text
from specsim.metrics.requests import FURTHER_COLUMNS, NOTED, PASS_COLUMNS, PER_POSITION, REQUEST_COLUMNS, SCHEMA_VERSION
from specsim.metrics.tables import run_line

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from pandas import DataFrame

    from specsim.metrics.requests import RequestTable

    Columns = Mapping[str, NDArray[Any]]


METRICS_FILE = "metrics.json"
REQUESTS_FILE = "requests.parquet"
PASSES_FILE = "passes.parquet"
CONFIG_FILE = "config.yaml"
PROVENANCE_FILE = "provenance.json"
FILES = (REQUESTS_FILE, PASSES_FILE, CONFIG_FILE, PROVENANCE_FILE, METRICS_FILE)
"""The files of a run in the order in which they take their places; a folder without the last is no run."""
PLANNED_FILE = ".sweep.json"
"""In a sweep's folder: the keys of the last sweep's points; its time is when that sweep began."""
ROUNDS = "rounds"
"""The key of that list where further rounds of points may follow."""
CHECKSUMS, OWN = "files", "sha256"
"""Keys of a provenance: the checksums of the other files, and of all its own content but that checksum."""
CHECKED = tuple(name for name in FILES if name != PROVENANCE_FILE)


def is_run(folder: Path) -> bool:
    """Return whether ``folder`` holds the files of a run; their content is not checked."""
    return _holds(folder, METRICS_FILE, REQUESTS_FILE)


def holds_remains(folder: Path) -> bool:
    """Return whether ``folder`` holds a run or some files of one."""
    return is_run(folder) or _holds(folder, CONFIG_FILE, PROVENANCE_FILE)


def _holds(folder: Path, *names: str) -> bool:
    """Return whether a folder holds files of these names; False for a folder that may not be looked into."""
    return all(map(os.path.isfile, (Path(folder) / name for name in names)))


def run_folders(folder: Path) -> list[Path]:
    """Return the direct subfolders that hold a run or some files of one, or cannot be looked into, by name.

    A run that is being written is left out.

    Raises
    ------
    SpecsimError
        When the folder itself cannot be looked into.
    """
    try:
        inside = [each for each in Path(folder).iterdir() if not each.name.startswith(".")]
        closed = {each for each in inside if each.is_dir() and not os.access(each, os.R_OK | os.X_OK)}
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise SpecsimError(f"{str(folder)!r} cannot be read: {error.strerror}") from None
    return sorted(each for each in inside if each in closed or holds_remains(each))


def planned_in(root: Path) -> tuple[list[str] | None, float, bool]:
    """Return the keys of the last sweep in a folder in their order, None without one, when it began, if in rounds.

    Raises
    ------
    SpecsimError
        When its note is damaged.
    """
    file = root / PLANNED_FILE
    try:
        noted = json.loads(file.read_bytes())
        keys = noted[ROUNDS] if isinstance(noted, dict) else noted
        if not isinstance(keys, list) or not all(isinstance(each, str) for each in keys):
            raise TypeError
        return keys, file.stat().st_mtime, noted is not keys
    except (FileNotFoundError, NotADirectoryError):
        return None, 0.0, False
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise SpecsimError(f"{str(file)!r} is damaged; the next sweep in the folder writes it anew") from None


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
            return run_line(self.made_of, self.metrics, self.folder, self.notes)
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
    again = "expected the files that the run wrote: run it again"
    if not is_run(folder):
        if holds_remains(folder):
            raise SpecsimError(f"{str(folder)!r}: {damage(folder)}; {again}")
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
        raise SpecsimError(f"{str(folder)!r}: {found}; {again}")
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
        # Of a name, pyarrow reads rps=2 as a partition, and no bytes but UTF-8.
        table = pq.read_table(pa.BufferReader(path.read_bytes()))
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
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise SpecsimError(f"{str(path)!r} is damaged: {first_line(error)}") from error
    if not isinstance(value, dict):
        raise SpecsimError(f"{str(path)!r} holds {type(value).__name__}; expected a mapping of keys to values")
    return value


def new_folder(wanted: Path) -> Path:
    """Make a folder that no other process has made: `wanted`, or the next free name with a number behind it.

    Raises
    ------
    SpecsimError
        When none can be made.
    """
    folder = wanted
    try:
        for number in count(2):
            with suppress(FileExistsError):
                folder.mkdir(parents=True)
                break
            folder = wanted.with_name(f"{wanted.name}-{number}")
    except OSError as error:
        raise SpecsimError(f"out={folder}: cannot be written: {error.strerror}") from None
    return folder


def check_place(folder: Path, made_of: Configured) -> None:
    """Refuse a folder that cannot be written, or that holds a run with other settings, or a sweep.

    Raises
    ------
    SpecsimError
        Before anything has run.
    """
    if _holds(folder, PLANNED_FILE):
        raise SpecsimError(f"out={folder}: holds a sweep; expected another folder, such as {folder / 'single'}")
    check_same_run(folder, made_of)
    check_writable([folder])


def check_same_run(folder: Path, made_of: Configured) -> bool:
    """Return whether `folder` holds a run with these settings, damaged or not; False where it holds none.

    Raises
    ------
    SpecsimError
        When it holds a run with other settings, or neither its files nor its name tell them.
    """
    if not holds_remains(folder):
        return False
    key = key_of(folder)
    if key is None:
        raise SpecsimError(f"out={folder}: holds a run whose {CONFIG_FILE} is damaged; expected a new folder")
    if key != made_of.key:
        raise SpecsimError(f"out={folder}: holds a run with other settings; expected a new folder")
    return True


def check_writable(folders: Iterable[Path]) -> None:
    """Refuse a folder that nothing can be written into; several below one parent are tried once."""
    for there, folder in {_existing(folder): folder for folder in folders}.items():
        try:
            tried = staging_path(there)
            tried.mkdir()
            tried.rmdir()
        except OSError as error:
            raise SpecsimError(f"out={folder}: cannot be written: {error.strerror}") from None


def _existing(folder: Path) -> Path:
    return next(filter(os.path.exists, (folder, *folder.parents)), folder)


GROUP_ROWS = 32_768
"""Rows of a Parquet file that are made and written at once."""


def write_run(
    folder: Path,
    made_of: Configured,
    *,
    table: RequestTable,
    metrics: Mapping[str, Any],
    provenance: Mapping[str, Any],
    passes: Mapping[str, NDArray[np.generic]] | None = None,
) -> dict[str, Any]:
    """Write a run's files; an older run with these settings is replaced, other files in ``folder`` stay.

    Return the content of ``provenance.json`` with the checksums of all files, itself included. Every file is complete
    on disk before the first one moves. If ``folder`` exists, ``metrics.json`` is removed first and moved last: an
    interruption leaves the old run, the new run, or none.

    Raises
    ------
    Unwritable
        When the folder cannot be written.
    SpecsimError
        When ``folder`` holds a run with other settings by now, or a number in a JSON file is not finite.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise Unwritable(f"run folder {str(folder)!r} is a file; expected a new name or a folder")
    staging = staging_path(folder if folder.is_dir() else folder.parent)
    try:
        staging.mkdir(parents=True)
        (staging / CONFIG_FILE).write_text(config_text(made_of.stored), encoding="utf-8")
        _write_parquet(staging / REQUESTS_FILE, table.parts(GROUP_ROWS), table.types)
        if passes is not None:
            _write_parquet(staging / PASSES_FILE, _parts_of(passes, GROUP_ROWS), PASS_COLUMNS)
        _write_json(staging / METRICS_FILE, metrics, sort_keys=False)
        whole = sealed(provenance, staging)
        _write_json(staging / PROVENANCE_FILE, whole, sort_keys=True)
        _place(staging, folder, made_of)
        return whole
    except OSError as error:
        raise Unwritable(f"cannot write run folder {str(folder)!r}: {error.strerror or error}") from error
    finally:
        remove(staging)


def remove_run(folder: Path) -> None:
    """Remove the files of a run, and the folder if it holds no others."""
    for name in reversed(FILES):
        remove(folder / name)
    with suppress(OSError):
        folder.rmdir()


def _place(staging: Path, folder: Path, made_of: Configured) -> None:
    """Move a complete run to its place: by one rename where there is no folder, else file by file."""
    meanwhile = not folder.exists()
    if meanwhile:
        try:
            staging.rename(folder)
            return
        except OSError as error:
            if error.errno not in (EEXIST, ENOTEMPTY):
                raise
    with one_at_a_time(folder):
        if check_same_run(folder, made_of) and meanwhile and damage(folder) is None:
            # Another process has made the same run.
            return
        for name in reversed(FILES):
            if name == METRICS_FILE or not (staging / name).exists() or (folder / name).is_dir():
                remove(folder / name)
        for name in FILES:
            if (staging / name).exists():
                (staging / name).replace(folder / name)


def _write_parquet(path: Path, parts: Iterable[Columns], types: Mapping[str, str]) -> None:
    """Write a row group of each part: its columns in the order of `types`, (rows,) each.

    There are no metadata of pandas, so that bytes depend only on data.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [pa.field(name, pa.type_for_alias(kind), nullable=False) for name, kind in types.items()],
        metadata={"specsim_schema_version": str(SCHEMA_VERSION)},
    )
    # pyarrow takes the name of a new file with a colon for a URI.
    with path.open("wb") as raw, pq.ParquetWriter(raw, schema, compression="zstd") as file:
        for part in parts:
            arrays = [_arrow(part[field.name], field.type) for field in schema]
            file.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _parts_of(columns: Columns, rows: int) -> Iterator[Columns]:
    """Yield columns in parts of so many rows."""
    for first in range(0, len(next(iter(columns.values()))), rows):
        yield {name: column[first : first + rows] for name, column in columns.items()}


def _arrow(column: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return a column without nulls in the memory layout of Arrow; `pyarrow.array` would import pandas."""
    import pyarrow as pa

    if pa.types.is_string(kind):
        words = [word.encode() for word in column.tolist()]
        ends = np.cumsum([0, *map(len, words)], dtype=np.int32)
        buffers = [pa.py_buffer(ends), pa.py_buffer(b"".join(words))]
    elif pa.types.is_boolean(kind):
        buffers = [pa.py_buffer(np.packbits(column, bitorder="little"))]
    else:
        buffers = [
            pa.py_buffer(np.ascontiguousarray(column.astype(kind.to_pandas_dtype(), casting="same_kind", copy=False)))
        ]
    return pa.Array.from_buffers(kind, len(column), [None, *buffers])


def _write_json(path: Path, content: Mapping[str, Any], *, sort_keys: bool) -> None:
    try:
        text = json.dumps(content, indent=2, sort_keys=sort_keys, allow_nan=False, ensure_ascii=False)
    except ValueError as error:
        raise SpecsimError(f"{path.name} cannot hold NaN or infinity; expected null: {error}") from error
    path.write_text(text + "\n", encoding="utf-8")
