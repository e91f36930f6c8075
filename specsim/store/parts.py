"""Summaries of a sweep on disk: Parquet parts below its folder, each named by its content and written in one step."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, TypeVar

from specsim.errors import SpecsimError
from specsim.files.staging import in_one_step
from specsim.results.schema import SCHEMA_VERSION
from specsim.settings.identity import identity, settings_of
from specsim.store.failure import Failure
from specsim.store.run_folder import run_folders
from specsim.store.summaries import Summary, compact

Row = TypeVar("Row", bound=Summary | Failure)
PARTS = "parts"
ROWS = 1000
"""Rows of a part once a sweep has ended."""
NAME_CHARACTERS = 16
COLUMNS = ("key", "name", "config", "metrics", "provenance", "label", "error")
"""Columns of a part, all text: a run has metrics and provenance, a failed one its label and error."""
TRIES = 5


class Parts(NamedTuple):
    """What the parts of a sweep hold, by identity of settings; `files` are those that were read."""

    runs: dict[str, Summary]
    failures: dict[str, Failure]
    files: tuple[Path, ...]
    notes: tuple[str, ...]


def holds_runs(root: Path) -> bool:
    """Return whether a folder is a sweep's: runs in folders, failures, or summaries."""
    return bool(run_folders(root)) or any((root / PARTS).glob("*.parquet"))


def read_parts(root: Path) -> Parts:
    """Return what the parts in a sweep's folder hold; a damaged part is left out, with a note.

    A run that stands in several parts counts once, and goes before a failure of the same settings.
    """
    for _ in range(TRIES):
        try:
            return _read(sorted((root / PARTS).glob("*.parquet")))
        except FileNotFoundError:
            # Another process has merged the parts meanwhile.
            continue
    raise SpecsimError(f"{str(root / PARTS)!r} changes while it is read; expected one sweep at a time in a folder")


def write_part(root: Path, rows: Iterable[Summary | Failure]) -> Path:
    """Write a part of these rows, by name, and return its file: the same rows give the same bytes and name.

    Raises
    ------
    SpecsimError
        When it cannot be written.
    """
    content = _bytes_of([_row(each) for each in sorted(rows, key=lambda each: each.name)])
    file = root / PARTS / f"{_name_of(content)}.parquet"
    if not file.exists():
        with in_one_step(file) as partial:
            partial.write_bytes(content)
    return file


def merge_parts(root: Path, without: Iterable[str] = ()) -> None:
    """Write what the parts hold as parts of `ROWS` rows, by name, but for the keys `without`; remove the others.

    The rows alone decide the files. Those that were read are removed last, so that nothing is lost at any moment.
    """
    found, dropped = read_parts(root), set(without)
    whole: dict[str, Summary | Failure] = {**found.failures, **found.runs}
    rows = [each for key, each in _by_name(whole).items() if key not in dropped]
    kept = {write_part(root, rows[first : first + ROWS]) for first in range(0, len(rows), ROWS)}
    for file in found.files:
        if file not in kept:
            file.unlink(missing_ok=True)


def _read(files: Sequence[Path]) -> Parts:
    runs: dict[str, Summary] = {}
    failures: dict[str, Failure] = {}
    notes = []
    for file in files:
        content = file.read_bytes()
        if _name_of(content) != file.stem:
            notes.append(f"left out: {str(file)!r} is damaged")
            continue
        for key, name, config, metrics, provenance, label, error in _rows_of(content):
            if metrics is not None:
                runs[key] = Summary(key, name, config, metrics, provenance)
            else:
                failures[key] = Failure(json.loads(config), json.loads(label), error, name=name)
    failures = {key: each for key, each in failures.items() if key not in runs}
    return Parts(_by_name(runs), _by_name(failures), tuple(files), tuple(notes))


def _by_name(rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return rows in the order in which the folders of runs are read."""
    return dict(sorted(rows.items(), key=lambda item: (item[1].name, item[0])))


def _row(one: Summary | Failure) -> tuple[str | None, ...]:
    if isinstance(one, Summary):
        return (one.key, one.name, one.config_json, one.metrics_json, one.provenance_json, None, None)
    key = identity(settings_of(one.config))
    return (key, one.name, compact(one.config), None, None, compact(dict(one.label)), one.error)


def _bytes_of(rows: Sequence[tuple[str | None, ...]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.string()) for name in COLUMNS], {"specsim_schema_version": str(SCHEMA_VERSION)})
    columns = [pa.array([row[place] for row in rows], pa.string()) for place in range(len(COLUMNS))]
    written = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), written, compression="zstd", use_dictionary=False)
    return written.getvalue()


def _rows_of(content: bytes) -> Iterator[tuple[str, ...]]:
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(content), columns=list(COLUMNS))
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _name_of(content: bytes) -> str:
    return sha256(content).hexdigest()[:NAME_CHARACTERS]
