"""Places of the shipped files: ``specsim/_data`` in a wheel, beside the package in a checkout."""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path


@cache
def shipped(name: str) -> Path:
    """Return the folder ``conf`` or ``traces`` of this installation.

    Raises
    ------
    FileNotFoundError
        When the installation is broken and has neither.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_data" / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"this installation of specsim lacks its {name}/ folder")


@lru_cache(maxsize=4096)
def is_path(value: str) -> bool:
    """Return whether a group's value means a file: it has a slash or a suffix."""
    return "/" in value or bool(Path(value).suffix)
