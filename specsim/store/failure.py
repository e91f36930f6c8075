"""A point of a sweep whose run failed, and its file, which stays until a run of the point succeeds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specsim.errors import SpecsimError
from specsim.files.staging import remove, staging_path
from specsim.store.run_folder import FAILURE_FILE, FILES, Stamp, stamp_of
from specsim.store.writer import Unwritable


@dataclass(frozen=True, slots=True)
class Failure:
    """A point of a sweep whose run failed.

    Attributes
    ----------
    config : the resolved configuration. label : the settings that differ in its sweep. error : one line.
    folder : where it is stored; None: in memory, or among the summaries of its sweep, where it has a `name`.
    traceback : Python's traceback; empty if the failure was read from a folder.
    """

    config: Mapping[str, Any] = field(repr=False)
    label: Mapping[str, str]
    error: str
    folder: Path | None = None
    traceback: str = field(default="", repr=False)
    name: str = ""


def write_failure(failure: Failure, seen: Stamp | None) -> None:
    """Write a failure into its folder, in place of the run that was `seen` there; a run that came meanwhile stays.

    Raises
    ------
    Unwritable
        When the folder cannot be written.
    """
    folder = failure.folder
    if folder is None or stamp_of(folder) != seen:
        return
    kept = {"error": failure.error, "label": failure.label, "config": failure.config}
    text = json.dumps(kept, indent=2, sort_keys=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        staged = staging_path(folder)
        try:
            staged.write_text(text + "\n", encoding="utf-8")
            for name in FILES:
                (folder / name).unlink(missing_ok=True)
            staged.replace(folder / FAILURE_FILE)
        finally:
            remove(staged)
    except OSError as error:
        raise Unwritable(f"cannot write {str(folder / FAILURE_FILE)!r}: {error.strerror or error}") from error


def read_failure(folder: Path) -> Failure:
    """Return the failure stored in a folder.

    Raises
    ------
    SpecsimError
        When its file is damaged.
    """
    path = folder / FAILURE_FILE
    try:
        kept = json.loads(path.read_bytes())
        config, label, error = kept["config"], dict(kept["label"]), str(kept["error"])
        whole = isinstance(config["choices"], dict)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise SpecsimError(f"{str(path)!r} is damaged; expected what a failed run left")
    return Failure(config, label, error, folder)
