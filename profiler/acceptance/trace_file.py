"""A recording as a Parquet file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from specsim.acceptance.recorded import DEPTH, METADATA_KEY, ON_PATH, read_columns
from specsim.core.request import Bools, Floats, Ints
from specsim.errors import SpecsimError
from specsim.files.staging import in_one_step
from specsim.files.yaml_file import MOST_FILE_BYTES, check_file

ABOUT = ("format", "target", "draft", "drafter", "temperature", "proposals", "versions", "date", "hardware")
"""The required keys of the metadata."""
LONGEST_PATH = 3
"""The rank of the least likely token that a path off the target's text begins with."""


@dataclass(frozen=True, slots=True)
class RecordedTrace:
    """A recording in memory, rows sorted by (category, sequence, path, position).

    Attributes
    ----------
    about : the metadata: models, drafter, settings, versions, date, hardware.
    categories : names; `category` (n,) indexes them.
    sequence : (n,) prompt index within the category. position : (n,) output position of the token being guessed.
    path : (n,) -1 on the target's own text; j in 1..3 if the drafter's j-th likeliest token, a wrong one, is at the
        position before.
    confidence : (n, K) the drafter's top-K probabilities, descending.
    rank : (n,) rank of the target's token among them; K for a miss and off the path.
    target_probability : (n, K) the target's probabilities of those tokens, 0 off the path.
    overlap : (n,) sum over the vocabulary of min(p, q); NaN if it was not computed.
    """

    about: Mapping[str, Any]
    categories: tuple[str, ...]
    category: Ints
    sequence: Ints
    position: Ints
    path: Ints
    confidence: Floats
    rank: Ints
    target_probability: Floats
    overlap: Floats

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def width(self) -> int:
        """The most proposals of a row with a probability above 0, at least 1: a lookup has one."""
        return max(int(self.confidence.any(axis=0).sum()), 1)

    @property
    def on_path(self) -> Bools:
        """The rows on the target's own text, as truth values, (n,)."""
        return np.equal(self.path, ON_PATH)

    def rows_of(self, category: str, *, on_path: bool) -> Ints:
        """Return the rows of a category on the target's own text, or off it."""
        return np.flatnonzero((self.on_path == on_path) & (self.category == self.categories.index(category)))


def write_acceptance_trace(path: Path, recorded: RecordedTrace) -> None:
    """Replace the file in one step; probabilities are rounded to half precision.

    Raises
    ------
    SpecsimError
        When it cannot be written.
    """
    table = pa.table(
        {
            "category": pa.DictionaryArray.from_arrays(
                pa.array(recorded.category, pa.int32()), list(recorded.categories)
            ),
            "sequence": pa.array(recorded.sequence, pa.int32()),
            "position": pa.array(recorded.position, pa.int32()),
            "path": pa.array(recorded.path, pa.int8()),
            "confidence": _halves(recorded.confidence),
            "rank": pa.array(recorded.rank, pa.int8()),
            "target_probability": _halves(recorded.target_probability),
            "overlap": pa.array(recorded.overlap, pa.float32()),
        },
        metadata={METADATA_KEY: json.dumps(dict(recorded.about))},
    )
    with in_one_step(path) as partial, partial.open("wb") as raw:
        pq.write_table(table, raw, compression="zstd", compression_level=19)


def read_acceptance_trace(path: Path) -> RecordedTrace:
    """Return a recording, every column checked.

    Raises
    ------
    SpecsimError
        One line naming the file, the column and what was expected.
    """
    check_file(path, MOST_FILE_BYTES, "recording")
    columns, about = read_columns(path)
    missing = [key for key in ABOUT if key not in about]
    if missing or not isinstance(about.get("settings", {}), dict):
        raise SpecsimError(f"{path}: metadata lacks {missing[0] if missing else 'a mapping of settings'!r}")
    if "overlap" not in columns or columns[DEPTH].any():
        raise SpecsimError(f"{path}: columns are not those of `specsim profile acceptance`")
    names, category = np.unique(columns["category"], return_inverse=True)
    given = {name: columns[name].astype(np.int64) for name in ("sequence", "position", "path", "rank")}
    given |= {name: columns[name].astype(np.float64) for name in ("confidence", "target_probability", "overlap")}
    recorded = RecordedTrace(about=about, categories=tuple(names.tolist()), category=category, **given)
    order = np.lexsort((recorded.position, recorded.path, recorded.sequence, recorded.category))
    if (np.diff(order) != 1).any():
        raise SpecsimError(f"{path}: rows: expected them sorted by category, sequence, path, position")
    if set(recorded.category[recorded.on_path].tolist()) != set(range(len(names))):
        raise SpecsimError(f"{path}: category: expected rows of each on the target's text")
    if (recorded.path > LONGEST_PATH).any():
        raise SpecsimError(f"{path}: path: expected -1 or 1 to {LONGEST_PATH}")
    if (recorded.rank[~recorded.on_path] != recorded.confidence.shape[1]).any():
        raise SpecsimError(f"{path}: rank: expected {recorded.confidence.shape[1]} off the path")
    return recorded


def _halves(values: Floats) -> pa.Array:
    halves: npt.NDArray[np.float16] = np.ascontiguousarray(values, dtype=np.float16)
    return pa.FixedSizeListArray.from_arrays(pa.array(halves.ravel(), pa.float16()), values.shape[1])
