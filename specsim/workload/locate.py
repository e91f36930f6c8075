"""The search for a published trace by name and checksum, in $SPECSIM_DATA, then in the user cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from specsim.errors import SpecsimError
from specsim.files.checked_mapping import expanded
from specsim.files.kept import user_cache
from specsim.workload.damage import content, sha256

DATA_VARIABLE = "SPECSIM_DATA"


class Found(NamedTuple):
    """The file, if it was found, and a text for the user about files of its name that were passed over."""

    file: Path | None
    passed_over: tuple[str, ...]


def data_folders() -> tuple[Path, ...]:
    """Return the folders of $SPECSIM_DATA, colon separated, in order."""
    return tuple(expanded(part, f"{DATA_VARIABLE}=") for part in os.environ.get(DATA_VARIABLE, "").split(":") if part)


def locate(name: str, checksum: str) -> Found:
    """Find the file ``name`` (or its ``.gz``) whose unpacked content has the SHA-256 ``checksum``."""
    passed_over: list[str] = []
    for file in _candidates(name):
        try:
            if sha256(content(file)) == checksum:
                return Found(file, tuple(passed_over))
            passed_over.append(f"{file} has another sha256 and is not used")
        except SpecsimError as error:
            passed_over.append(f"{error} and is not used")
    return Found(None, tuple(passed_over))


def _candidates(name: str) -> Iterator[Path]:
    wanted = {name, f"{name}.gz"}
    for top in (*data_folders(), user_cache()):
        for folder, below, files in os.walk(top):
            below.sort()
            yield from (Path(folder) / file for file in sorted(wanted.intersection(files)))
