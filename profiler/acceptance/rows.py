"""The rows of recorded texts: batches kept until a recording is complete, and one recording of all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from profiler.acceptance.settings import same_settings
from profiler.acceptance.trace_file import RecordedTrace
from profiler.text import write
from specsim.acceptance.recorded import ON_PATH
from specsim.core.request import Floats, Ints
from specsim.errors import SpecsimError, first_line
from specsim.files.staging import in_one_step

Text = tuple[str, int]
"""Category and sequence number of a recorded text."""
MOST_WRONG = 3
"""The wrong tokens that are tried in place of the target's: those of ranks 1 to this."""
MATCHES = (1, 2, 3, 4, 6, 9, 13)
"""The shortest match of each bucket of a lookup; bucket 0 is no match."""


class AcceptanceRows(NamedTuple):
    """Rows of one text, sorted by (path, position); columns as in `profiler.acceptance.trace_file.RecordedTrace`.

    Attributes
    ----------
    position, path, rank, match : (n,); `match` is the length of a lookup's match, 0 for a model.
    confidence, target_probability : (n, K). overlap : (n,).
    """

    position: Ints
    path: Ints
    confidence: Floats
    rank: Ints
    target_probability: Floats
    overlap: Floats
    match: Ints


def joined(parts: Sequence[AcceptanceRows]) -> AcceptanceRows:
    """Return the rows of all parts, one after the other."""
    return AcceptanceRows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def off_path(position: Ints, path: Ints, confidence: Floats, match: Ints | int = 0) -> AcceptanceRows:
    """Return rows behind a wrong token, where no proposal is right and the target has no probabilities."""
    none = np.zeros_like(position)
    rank, overlap = none + confidence.shape[1], np.full_like(confidence[:, 0], np.nan)
    return AcceptanceRows(position, path, confidence, rank, np.zeros_like(confidence), overlap, none + match)


def on_path(confidence: Floats, rank: Ints, truth: Floats, overlap: Floats, match: Ints | int = 0) -> AcceptanceRows:
    """Return the rows of a text's positions 0, 1, ..."""
    none = np.zeros_like(rank)
    return AcceptanceRows(np.arange(len(rank)), none + ON_PATH, confidence, rank, truth, overlap, none + match)


def parts_folder(out: Path) -> Path:
    """Return the folder of the batches of a recording until it is complete."""
    return out.with_name(f"{out.name}.parts")


class RecordedBatches:
    """The folder beside an unfinished recording.

    Parameters
    ----------
    out : the recording's file; the folder is named after it.
    settings : what a text's rows depend on, with hardware and versions; a folder of other settings is refused.

    Raises
    ------
    SpecsimError
        When the folder cannot be written, or holds a recording of other settings; the line names the first.

    Only one `RecordedBatches` at a time may use a folder (`profiler.lock.only_one`).
    """

    def __init__(self, out: Path, settings: Mapping[str, Any]) -> None:
        self.folder = parts_folder(out)
        told = self.folder / "settings.json"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if told.is_file():
                same_settings(json.loads(told.read_text("utf-8")), settings, str(self.folder))
            write(told, json.dumps(dict(settings), indent=1))
        except (OSError, ValueError, RecursionError) as error:
            raise SpecsimError(f"{self.folder}: cannot be used: {first_line(error)}") from None

    def add(self, rows: Mapping[Text, AcceptanceRows]) -> None:
        """Store the rows of some texts under a number above all used ones.

        Raises
        ------
        SpecsimError
            When they cannot be written.
        """
        columns: dict[str, Any] = {}
        for index, (text, each) in enumerate(rows.items()):
            columns[f"text{index}"] = np.array([text[0], str(text[1])])
            columns |= {f"{index}.{name}": column for name, column in each._asdict().items()}
        number = max((int(path.stem) for path in self._files()), default=-1) + 1
        path = self.folder / f"{number:06d}.npz"
        with in_one_step(path) as partial, partial.open("wb") as file:
            np.savez_compressed(file, **columns)

    def read(self) -> dict[Text, AcceptanceRows]:
        """Return the rows of every stored text; texts of an unreadable file are left out and recorded anew."""
        found: dict[Text, AcceptanceRows] = {}
        for path in self._files():
            try:
                found |= dict(_texts(path))
            except Exception:  # A damaged archive may raise anything: zlib.error, BadZipFile, NotImplementedError, ...
                continue
        return found

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder)

    def _files(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("*.npz") if path.stem.isdigit())


def _texts(path: Path) -> Iterator[tuple[Text, AcceptanceRows]]:
    with path.open("rb") as raw, np.load(raw) as file:
        for index in range(sum(name.startswith("text") for name in file.files)):
            category, sequence = file[f"text{index}"]
            yield (
                (str(category), int(sequence)),
                AcceptanceRows(*(file[f"{index}.{name}"] for name in AcceptanceRows._fields)),
            )


def assemble(rows: Mapping[Text, AcceptanceRows], about: Mapping[str, Any], *, lookup: bool) -> RecordedTrace:
    """Return the recording of all texts, sorted; a lookup's confidences become measured frequencies.

    ``long_matches`` in a lookup's metadata is the share of positions behind a match of the longest bucket, where text
    repeats itself or its prompt.
    """
    texts = sorted(rows)
    names = tuple(sorted({category for category, _ in texts}))
    whole = joined([rows[text] for text in texts])
    counts = [len(rows[text].rank) for text in texts]
    category = np.repeat([names.index(name) for name, _ in texts], counts)
    sequence = np.repeat([number for _, number in texts], counts)
    confidence = _calibrated(category, whole) if lookup else whole.confidence
    order = np.lexsort((whole.position, whole.path, sequence, category))
    on = whole.path == ON_PATH
    told = dict(about) | {
        "sequences": {name: sum(each == name for each, _ in texts) for name in names},
        "tokens": {name: int((on & (category == code)).sum()) for code, name in enumerate(names)},
    }
    if lookup:
        long = whole.match >= MATCHES[-1]
        told["long_matches"] = {
            name: round(float(long[on & (category == code)].mean()), 4) for code, name in enumerate(names)
        }
    return RecordedTrace(
        told,
        names,
        category[order],
        sequence[order],
        whole.position[order],
        whole.path[order],
        confidence[order],
        whole.rank[order],
        whole.target_probability[order],
        whole.overlap[order],
    )


def _calibrated(category: Ints, rows: AcceptanceRows) -> Floats:
    """Return confidences (n, K) equal to the acceptance of matches of the same length and category, in-sample.

    Rows off the path have the same numbers. Matches of a length that is not on the path have 0.
    """
    cell = category * (len(MATCHES) + 1) + np.searchsorted(MATCHES, rows.match, side="right")
    on = rows.path == ON_PATH
    made = np.bincount(cell[on], minlength=int(cell.max()) + 1)
    right = np.bincount(cell[on], weights=rows.rank[on] == 0, minlength=len(made))
    rate = np.divide(right, made, out=np.zeros(len(made)), where=made > 0)
    confidence = np.zeros_like(rows.confidence)
    confidence[:, 0] = np.where(rows.match > 0, rate[cell], 0.0)
    return confidence
