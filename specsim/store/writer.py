"""Writing of a run, and the place it has in the store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from errno import EEXIST, ENOTEMPTY
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.config.configured import Configured
from specsim.errors import SpecsimError
from specsim.files.kept import one_at_a_time
from specsim.files.staging import Unwritable, remove, staging_path
from specsim.files.yaml_file import config_text
from specsim.metrics.requests import PASS_COLUMNS, SCHEMA_VERSION
from specsim.store.runs import (
    CONFIG_FILE,
    FILES,
    METRICS_FILE,
    PASSES_FILE,
    PLANNED_FILE,
    PROVENANCE_FILE,
    REQUESTS_FILE,
    damage,
    holds_remains,
    key_of,
    sealed,
)


def new_folder(wanted: Path) -> Path:
    """Make a folder that nobody else has made: `wanted`, or the next free name with a number behind it.

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
    if (folder / PLANNED_FILE).is_file():
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
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from specsim.metrics.requests import RequestTable

    Columns = Mapping[str, NDArray[Any]]

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
    if folder.is_dir() and not any(folder.iterdir()):
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
    with pq.ParquetWriter(path, schema, compression="zstd") as file:
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
