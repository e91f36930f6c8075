"""Runs without their requests, and runs that failed: rows of one file a process, read together."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from specsim.config.identity import identity, settings_of
from specsim.errors import SpecsimError
from specsim.figures.shown import Shown
from specsim.files.staging import Unwritable, in_one_step

if TYPE_CHECKING:
    from pandas import DataFrame

SUMMARIES = "summaries"
"""The folder of the rows, below a sweep's. Each file is JSON lines, compressed by gzip, with its checksums."""
SUFFIX = ".jsonl.gz"
OPEN = "process-"
"""Before the names of files that processes append to."""
NAME_CHARACTERS = 16
QUICK, SMALL = 1, 6
"""Levels of gzip for a row that a run waits for, and for all rows of a sweep."""
BY_THE_CLOCK = ("started", "loop_wall_s", "iterations_per_wall_s", "host")
"""Keys of a provenance that differ between two runs with the same settings; no summary holds them."""
TRIES = 5


@dataclass(frozen=True, slots=True)
class Summary(Shown):
    """A run without its requests; each access reads its text.

    Attributes
    ----------
    key : identity of its settings. name : as its folder would be called.
    config_json, metrics_json, provenance_json : the files of a run folder as JSON in one line.
    """

    key: str
    name: str
    config_json: str = field(repr=False)
    metrics_json: str = field(repr=False)
    provenance_json: str = field(repr=False)

    @property
    def metrics(self) -> dict[str, Any]:
        """The content of ``metrics.json``."""
        return dict(json.loads(self.metrics_json))

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        return dict(json.loads(self.config_json))

    @property
    def provenance(self) -> dict[str, Any]:
        """Versions, and what the run was made from; no wall-clock figures."""
        return dict(json.loads(self.provenance_json))

    @property
    def notes(self) -> tuple[str, ...]:
        """The run's notes."""
        return tuple(self.provenance["notes"])

    @property
    def folder(self) -> None:
        """None: the run has no folder of its own."""
        return

    @property
    def requests(self) -> DataFrame:
        """Not kept.

        Raises
        ------
        SpecsimError
            Always.
        """
        expected = "expected a run of these settings, or keep='runs'"
        raise SpecsimError(f"{self.name}: the sweep kept no requests and no passes; {expected}")

    @property
    def passes(self) -> DataFrame | None:
        """Not kept, as `requests`."""
        return self.requests


@dataclass(frozen=True, slots=True)
class Failure:
    """A point of a sweep whose run failed.

    Attributes
    ----------
    config : the resolved configuration. label : the settings that differ in its sweep. error : one line.
    name : as its folder would be called; empty where nothing is stored.
    traceback : Python's traceback.
    """

    config: Mapping[str, Any] = field(repr=False)
    label: Mapping[str, str]
    error: str
    name: str = ""
    traceback: str = field(default="", repr=False)

    @property
    def key(self) -> str:
        """Identity of its settings."""
        return identity(settings_of(self.config))


Row = Summary | Failure


class KeptRows(NamedTuple):
    """Rows below a sweep's folder, by identity of settings; how many each file holds; notes on damaged files."""

    runs: dict[str, Summary]
    failures: dict[str, Failure]
    files: dict[Path, int]
    notes: tuple[str, ...]


def append_row(root: Path, row: Row) -> None:
    """Append a row to the file of this process below a sweep's folder.

    Raises
    ------
    Unwritable
        When it cannot be written.
    """
    file = root / SUMMARIES / _file_of(os.getpid())
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab") as stream:
            stream.write(gzip.compress(_line(row), QUICK, mtime=0))
    except OSError as error:
        # No row follows one that may be cut off.
        _file_of.cache_clear()
        raise Unwritable(f"{file}: cannot be written: {error.strerror or error}") from None


def read_rows(root: Path) -> KeptRows:
    """Return the rows below a sweep's folder in the order of their names, the last one of each run.

    Of a file that a kill has cut off, the rows before the cut are read. A damaged file is left out. A note names both.

    Raises
    ------
    SpecsimError
        When other processes replace the files again and again.
    """
    for _ in range(TRIES):
        with suppress(FileNotFoundError):
            # Otherwise another sweep in the folder has ended, and put all rows into one file.
            return _read(sorted((root / SUMMARIES).glob(f"*{SUFFIX}"), key=lambda each: each.stat().st_mtime_ns))
    raise SpecsimError(f"{str(root)!r} changes while it is read; expected one sweep at a time in a folder")


def settle(root: Path, ended: Mapping[str, Row | None]) -> None:
    """Put all rows below a sweep's folder into one file, whose bytes depend on the rows alone.

    `ended` holds the rows of a sweep by key, in place of those on disk; None: the run has a folder, and needs no row.
    """
    found = read_rows(root)
    before: dict[str, Row | None] = {**found.failures, **found.runs}
    whole = {key: row for key, row in {**before, **ended}.items() if row is not None}
    settled = len(found.files) <= 1 and not found.notes and not any(OPEN in file.name for file in found.files)
    if settled and whole == before:
        return
    rows = sorted(whole.values(), key=lambda row: (row.name, row.key))
    content = gzip.compress(b"".join(map(_line, rows)), SMALL, mtime=0)
    file = root / SUMMARIES / f"{sha256(content).hexdigest()[:NAME_CHARACTERS]}{SUFFIX}"
    if rows and found.files.get(file) != len(rows):
        with in_one_step(file) as partial:
            partial.write_bytes(content)
    for each in found.files:
        if not rows or each != file:
            each.unlink(missing_ok=True)
    if not rows:
        with suppress(OSError):
            (root / SUMMARIES).rmdir()


def compact(content: Any) -> str:
    """Return plain values as JSON in one line; mappings keep their order.

    Raises
    ------
    SpecsimError
        When a number is not finite.
    """
    try:
        return json.dumps(content, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    except ValueError as error:
        raise SpecsimError(f"a summary cannot hold NaN or infinity; expected null: {error}") from error


@cache
def _file_of(process: int) -> str:
    """Return the name of the file that a process appends to: no other process has ever written it."""
    return f"{OPEN}{uuid4().hex}{SUFFIX}"


def _read(files: Iterable[Path]) -> KeptRows:
    whole: dict[str, Row] = {}
    counts, notes = {}, []
    for file in files:
        rows: dict[str, Row] = {}
        try:
            with gzip.open(file) as lines:
                for line in lines:
                    _add(rows, json.loads(line))
        except FileNotFoundError:
            raise
        except EOFError:
            notes.append(f"left out: the last row of {str(file)!r} is cut off")
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, zlib.error):
            notes.append(f"left out: {str(file)!r} is damaged")
            rows = {}
        counts[file] = len(rows)
        whole |= rows
    ordered = dict(sorted(whole.items(), key=lambda item: (item[1].name, item[0])))
    runs = {key: row for key, row in ordered.items() if isinstance(row, Summary)}
    failures = {key: row for key, row in ordered.items() if isinstance(row, Failure)}
    return KeptRows(runs, failures, counts, tuple(notes))


def _add(rows: dict[str, Row], content: Mapping[str, Any]) -> None:
    key, name = content["key"], content["name"]
    if "error" in content:
        config, label = json.loads(content["config"]), json.loads(content["label"])
        rows[key] = Failure(config, label, content["error"], name, content.get("traceback", ""))
    else:
        rows[key] = Summary(key, name, *(content[each] for each in ("config", "metrics", "provenance")))


def _line(row: Row) -> bytes:
    """Return a row as a line of JSON: the content of a run's files is text in it."""
    if isinstance(row, Summary):
        content = {"config": row.config_json, "metrics": row.metrics_json, "provenance": row.provenance_json}
    else:
        content = {"config": compact(row.config), "label": compact(dict(row.label)), "error": row.error}
        content["traceback"] = row.traceback
    return f"{compact({'key': row.key, 'name': row.name, **content})}\n".encode()
