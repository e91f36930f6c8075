"""Writing a run into its folder: whole or not at all, and never over another run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from errno import EEXIST, ENOTEMPTY
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError
from specsim.files.staging import is_gone, remove, staging_path
from specsim.results.schema import PASS_COLUMNS
from specsim.store.checksums import sealed
from specsim.store.parquet import GROUP_ROWS, parts_of, write_parquet
from specsim.store.run_folder import (
    CONFIG_FILE,
    FAILURE_FILE,
    METRICS_FILE,
    PASSES_FILE,
    PROVENANCE_FILE,
    REQUESTS_FILE,
    Stamp,
    stamp_of,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from specsim.results.request_table import RequestTable

CLASSES = ("slo", "classes")
PLACING = ".specsim-placing.tmp"
"""Holds the files of a run while they move into an existing folder; only one process can create it."""
OWNER = ".owner"
PLACING_S = 60.0
"""A few renames never take this long: an older folder was left by a killed process."""


class Taken(SpecsimError):
    """Another process has put a run in this run's place."""


class Unwritable(SpecsimError):
    """The folder of a run cannot be written: the disk is full, or permission is missing."""


def write_run(
    folder: Path,
    *,
    seen: Stamp | None,
    table: RequestTable,
    metrics: Mapping[str, Any],
    config: Mapping[str, Any],
    provenance: Mapping[str, Any],
    passes: Mapping[str, NDArray[np.generic]] | None = None,
) -> dict[str, Any]:
    """Write a run's files; the older run that was `seen` in ``folder`` is replaced, other files there stay.

    Return the content of ``provenance.json`` with the checksums of all files, itself included. Every file is complete
    on disk before the first one moves. If ``folder`` exists, ``metrics.json`` is removed first and moved last: an
    interruption leaves the old run, the new run, or none.

    Raises
    ------
    Taken
        When ``folder`` holds another run than the one `seen`, from another process.
    Unwritable
        When the folder cannot be written.
    SpecsimError
        When a number in a JSON file is not finite.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise Unwritable(f"run folder {str(folder)!r} is a file; expected a new name or a folder")
    staging = staging_path(folder if folder.is_dir() else folder.parent)
    try:
        staging.mkdir(parents=True)
        (staging / CONFIG_FILE).write_text(config_text(config), encoding="utf-8")
        write_parquet(staging / REQUESTS_FILE, table.parts(GROUP_ROWS), table.types)
        if passes is not None:
            write_parquet(staging / PASSES_FILE, parts_of(passes, GROUP_ROWS), PASS_COLUMNS)
        _write_json(staging / METRICS_FILE, metrics, sort_keys=False)
        whole = sealed(provenance, staging)
        _write_json(staging / PROVENANCE_FILE, whole, sort_keys=True)
        _place(staging, folder, seen)
        return whole
    except OSError as error:
        raise Unwritable(f"cannot write run folder {str(folder)!r}: {error.strerror or error}") from error
    finally:
        remove(staging)


def _place(staging: Path, folder: Path, seen: Stamp | None) -> None:
    """Move a complete run to its place, unless another run has come there meanwhile.

    A rename replaces an empty folder, but never one with content, so only one process succeeds.
    """
    if not folder.exists():
        _rename(staging, folder, folder)
        return
    placing = folder / PLACING
    if placing.exists() and (staging.stat().st_mtime - placing.stat().st_mtime > PLACING_S or _is_left(placing)):
        remove(placing)
    (staging / OWNER).write_text(staging.name, encoding="utf-8")
    _rename(staging, placing, folder)
    try:
        if stamp_of(folder) != seen:
            raise Taken(_taken(folder))
        for name in (METRICS_FILE, PASSES_FILE, FAILURE_FILE):
            remove(folder / name)
        (placing / OWNER).unlink()
        for path in sorted(placing.iterdir(), key=lambda staged: staged.name == METRICS_FILE):
            path.replace(folder / path.name)
    finally:
        remove(placing)


def _is_left(placing: Path) -> bool:
    """Return whether the process that created `placing` has been killed."""
    try:
        return is_gone((placing / OWNER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False


def _rename(staging: Path, place: Path, folder: Path) -> None:
    try:
        staging.rename(place)
    except OSError as error:
        if error.errno in (EEXIST, ENOTEMPTY):
            raise Taken(_taken(folder)) from None
        raise


def _taken(folder: Path) -> str:
    return f"out={folder}: another process has put a run there meanwhile; expected a folder of its own for each run"


def _write_json(path: Path, content: Mapping[str, Any], *, sort_keys: bool) -> None:
    try:
        text = json.dumps(content, indent=2, sort_keys=sort_keys, allow_nan=False, ensure_ascii=False)
    except ValueError as error:
        raise SpecsimError(f"{path.name} cannot hold NaN or infinity; expected null: {error}") from error
    path.write_text(text + "\n", encoding="utf-8")


def _ordered(value: Any, *above: str) -> Any:
    """Return mappings with sorted keys, but for a mix's classes, whose order decides which request is of which."""
    if isinstance(value, list | tuple):
        return [_ordered(each, *above) for each in value]
    if not isinstance(value, Mapping):
        return value
    keys = value if above == CLASSES else sorted(value)
    return {key: _ordered(value[key], *above, key) for key in keys}


def config_text(value: Any, *above: str) -> str:
    """Return a run's settings, or those below the keys `above`, as the text of ``config.yaml``."""
    return yaml_text(_ordered(value, *above), sort_keys=False)


def yaml_text(value: Any, *, sort_keys: bool = True) -> str:
    """Return plain values as YAML."""
    import yaml

    text: str = yaml.safe_dump(value, sort_keys=sort_keys, allow_unicode=True, default_flow_style=False)
    return text.removesuffix("...\n")
