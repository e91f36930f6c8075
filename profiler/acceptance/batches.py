"""Unfinished recordings: one file per finished batch, so that a killed job loses only the current batch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from profiler.acceptance.rows import TapeRows
from profiler.text import write
from specsim.errors import SpecsimError, first_line
from specsim.files.staging import in_one_step

Text = tuple[str, int]
"""Category and sequence number of a recorded text."""


class Batches:
    """The folder beside an unfinished recording.

    Parameters
    ----------
    out : the recording's file; the folder is named after it.
    settings : what a text's rows depend on, with hardware and versions; a folder of other settings is refused.

    Raises
    ------
    SpecsimError
        When the folder cannot be written, or holds a recording of other settings; the line names the first.

    Only one `Batches` at a time may use a folder (`profiler.lock.only_one`).
    """

    def __init__(self, out: Path, settings: Mapping[str, Any]) -> None:
        self.folder = out.with_name(f"{out.name}.parts")
        told = self.folder / "settings.json"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if told.is_file():
                same_settings(json.loads(told.read_text("utf-8")), settings, str(self.folder))
            write(told, json.dumps(dict(settings), indent=1))
        except (OSError, ValueError, RecursionError) as error:
            raise SpecsimError(f"{self.folder}: cannot be used: {first_line(error)}") from None

    def add(self, number: int, rows: Mapping[Text, TapeRows]) -> None:
        """Store the rows of some texts under a new number.

        Raises
        ------
        SpecsimError
            When they cannot be written.
        """
        columns: dict[str, Any] = {}
        for index, (text, each) in enumerate(rows.items()):
            columns[f"text{index}"] = np.array([text[0], str(text[1])])
            columns |= {f"{index}.{name}": column for name, column in each._asdict().items()}
        path = self.folder / f"{number:06d}.npz"
        with in_one_step(path) as partial, partial.open("wb") as file:
            np.savez_compressed(file, **columns)

    def read(self) -> dict[Text, TapeRows]:
        """Return the rows of every stored text; texts of an unreadable file are left out and recorded anew."""
        found: dict[Text, TapeRows] = {}
        for path in self._files():
            try:
                found |= dict(_texts(path))
            except Exception:  # A damaged archive may raise anything: zlib.error, BadZipFile, NotImplementedError, ...
                continue
        return found

    def next_number(self) -> int:
        """Return a number above all used ones."""
        return max((int(path.stem) for path in self._files()), default=-1) + 1

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder)

    def _files(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("*.npz") if path.stem.isdigit())


def same_settings(there: object, wanted: Mapping[str, Any], where: str) -> None:
    """Raise SpecsimError, one line naming `where` and the first key that differs, unless both are equal."""
    if not isinstance(there, Mapping):
        raise SpecsimError(f"{where}: its settings are no mapping; give another --out or delete it")
    for key in wanted:
        if key not in there or there[key] != wanted[key]:
            raise SpecsimError(
                f"{where}: holds a recording with {key} {there.get(key)!r}, not {wanted[key]!r}; "
                "give another --out or delete it"
            )


def _texts(path: Path) -> Iterator[tuple[Text, TapeRows]]:
    with path.open("rb") as raw, np.load(raw) as file:
        for index in range(sum(name.startswith("text") for name in file.files)):
            category, sequence = file[f"text{index}"]
            yield (str(category), int(sequence)), TapeRows(*(file[f"{index}.{name}"] for name in TapeRows._fields))
