"""Where runs go: new folders, and those that may hold another run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from specsim.config.identity import identity, settings_of
from specsim.errors import SpecsimError
from specsim.files.staging import staging_path
from specsim.store.run_folder import CONFIG_FILE, holds_remains, holds_sweep
from specsim.store.runs import key_of

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
        When its settings are others than those of `config`, or neither its files nor its name tell them.
    """
    if not holds_remains(folder):
        return False
    key = key_of(folder)
    if key is None:
        raise SpecsimError(f"out={folder}: holds a run whose {CONFIG_FILE} is damaged; expected a new folder")
    if key != identity(settings_of(config)):
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
