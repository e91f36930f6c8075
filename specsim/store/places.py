"""Where runs go: new folders, and those that may hold another run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from specsim.errors import SpecsimError
from specsim.files.staging import staging_path
from specsim.settings.identity import HASH_CHARACTERS, identity, settings_of
from specsim.store.checksums import damage
from specsim.store.failure import read_failure
from specsim.store.run_folder import has_failed, holds_remains, holds_sweep
from specsim.store.runs import read_config

Config = Mapping[str, Any]


def new_folder(wanted: Path) -> Path:
    """Make a folder that nobody else has made: `wanted`, or the next free name with a number behind it.

    Raises
    ------
    SpecsimError
        When none can be made.
    """
    folder, count = wanted, 1
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        while not _made(folder):
            count += 1
            folder = wanted.with_name(f"{wanted.name}-{count}")
    except OSError as error:
        raise SpecsimError(f"out={folder}: cannot be written: {error.strerror}") from None
    return folder


def _made(folder: Path) -> bool:
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


def remove_empty(folder: Path) -> None:
    """Remove a folder that nothing was written into."""
    with suppress(OSError):
        folder.rmdir()


def check_place(config: Config, folder: Path | None) -> None:
    """Refuse a folder that cannot be written, or that holds a run with other settings, or a sweep.

    Raises
    ------
    SpecsimError
        Before anything has run.
    """
    if folder is None:
        return
    if holds_sweep(folder):
        raise SpecsimError(f"out={folder}: holds a sweep; expected another folder, such as {folder / 'single'}")
    check_same_run(folder, config)
    check_writable([folder])


def check_no_run(root: Path) -> None:
    """Refuse a folder for a sweep that is the folder of one run.

    Raises
    ------
    SpecsimError
        Before anything has run.
    """
    if holds_remains(root):
        raise SpecsimError(f"out={root}: holds a single run; expected a new folder, or one of sweeps")


def check_same_run(folder: Path, config: Config) -> bool:
    """Return whether `folder` holds a run with these settings, damaged or not; False where it holds none.

    Raises
    ------
    SpecsimError
        When its settings are others than those of `config`, or cannot be read; but a damaged run whose name tells
        that it is this one.
    """
    if not holds_remains(folder) and not has_failed(folder):
        return False
    settings, wrong = settings_of(config), "holds a run with other settings; expected a new folder"
    try:
        if settings_in(folder) == settings:
            return True
    except SpecsimError as error:
        wrong = f"holds a run whose settings cannot be read: {error}"
    if told_by_name(folder) == identity(settings) and damage(folder) is not None:
        return True
    raise SpecsimError(f"out={folder}: {wrong}")


def told_by_name(folder: Path) -> str | None:
    """Return the hash of settings that a folder's name ends with, None where it has none."""
    found = re.search(rf"-([0-9a-f]{{{HASH_CHARACTERS}}})$", folder.name)
    return found and found[1]


def settings_in(folder: Path) -> dict[str, Any]:
    """Return the settings of the run, or of the failure, that a folder holds.

    Raises
    ------
    SpecsimError
        When they are missing or damaged.
    """
    config = read_config(folder) if holds_remains(folder) else read_failure(folder).config
    try:
        return dict(settings_of(config))
    except (KeyError, TypeError, AttributeError):
        raise SpecsimError(f"{str(folder)!r} is damaged: it holds no settings of a run") from None


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
