"""The names of searches in a folder: each search has files of its own, and all share the folder's runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from specsim.errors import SpecsimError

FIRST = "find"


def name_in(root: Path, identity: str, asked: Mapping[str, Any]) -> str:
    """Return the name of a search's files below `root`: its own if it was there before, or the next free one.

    The name's JSON file holds the `identity` of the search and what was `asked`. Files without one are another's.

    Raises
    ------
    SpecsimError
        When the folder cannot be written.
    """
    names = (FIRST if number == 1 else f"{FIRST}-{number}" for number in count(1))
    told = {"identity": identity, **asked}
    try:
        root.mkdir(parents=True, exist_ok=True)
        return next(name for name in names if _held(root / f"{name}.json") == identity or _taken(root, name, told))
    except OSError as error:
        raise SpecsimError(f"{root}: cannot be written: {error.strerror or error}") from None


def _held(file: Path) -> str | None:
    """Return the identity of the search that a file tells of; None if it tells of none."""
    try:
        return str(json.loads(file.read_bytes())["identity"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _taken(root: Path, name: str, told: Mapping[str, Any]) -> bool:
    """Take a name that is free; return whether it was."""
    if any(root.glob(f"{name}.*")):
        return False
    try:
        with (root / f"{name}.json").open("x", encoding="utf-8") as stream:
            json.dump(told, stream, indent=2)
            stream.write("\n")
    except FileExistsError:
        return False
    return True
