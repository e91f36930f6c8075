"""A recording as a Parquet file: schema, writer, and a reader that checks every column."""

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

from specsim.acceptance.recorded import METADATA_KEY, ON_PATH, RECORDING_FORMAT
from specsim.core.request import Bools, Floats, Ints
from specsim.errors import SpecsimError, first_line
from specsim.files.staging import in_one_step
from specsim.files.yaml_file import MOST_FILE_BYTES, check_file

ABOUT = ("format", "target", "draft", "drafter", "temperature", "proposals", "versions", "date", "hardware")
"""The required keys of the metadata."""


@dataclass(frozen=True, slots=True)
class Recorded:
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
    def proposals(self) -> int:
        """K."""
        return int(self.confidence.shape[1])

    @property
    def width(self) -> int:
        """The most proposals of a row with a probability above 0, at least 1: a lookup has one."""
        return max(int(self.confidence.any(axis=0).sum()), 1)

    @property
    def on_path(self) -> Bools:
        """Which rows are on the target's own text, (n,)."""
        return np.equal(self.path, ON_PATH)


def schema(proposals: int) -> pa.Schema:
    """Return the file's schema for K proposals per row."""
    halves = pa.list_(pa.float16(), proposals)
    return pa.schema(
        [
            ("category", pa.dictionary(pa.int32(), pa.string())),
            ("sequence", pa.int32()),
            ("position", pa.int32()),
            ("path", pa.int8()),
            ("confidence", halves),
            ("rank", pa.int8()),
            ("target_probability", halves),
            ("overlap", pa.float32()),
        ]
    )


def write_tape(path: Path, recorded: Recorded) -> None:
    """Replace the file in one step; probabilities are rounded to half precision.

    Raises
    ------
    SpecsimError
        When it cannot be written.
    """
    columns = [
        pa.DictionaryArray.from_arrays(pa.array(recorded.category, pa.int32()), list(recorded.categories)),
        pa.array(recorded.sequence, pa.int32()),
        pa.array(recorded.position, pa.int32()),
        pa.array(recorded.path, pa.int8()),
        _lists(recorded.confidence),
        pa.array(recorded.rank, pa.int8()),
        _lists(recorded.target_probability),
        pa.array(recorded.overlap, pa.float32()),
    ]
    about = {METADATA_KEY: json.dumps(dict(recorded.about)).encode()}
    table = pa.Table.from_arrays(columns, schema=schema(recorded.proposals).with_metadata(about))
    with in_one_step(path) as partial:
        pq.write_table(table, partial, compression="zstd", compression_level=19)


def read_tape(path: Path) -> Recorded:
    """Return a recording, every column checked.

    Raises
    ------
    SpecsimError
        One line naming the file, the column and what was expected.
    """
    check_file(path, MOST_FILE_BYTES, "recording")
    try:
        table = pq.read_table(path, partitioning=None)
    except (OSError, pa.ArrowException) as error:
        raise SpecsimError(f"{path}: cannot be read as Parquet: {first_line(error)}") from None
    about = _about(path, table.schema.metadata or {})
    if not table.schema.remove_metadata().equals(schema(about["proposals"])):
        raise SpecsimError(f"{path}: columns or their types are not those of a recording of format {RECORDING_FORMAT}")
    if not table.num_rows or any(table[name].null_count for name in table.column_names):
        raise SpecsimError(f"{path}: " + ("holds nulls" if table.num_rows else "holds no rows"))
    category = table["category"].unify_dictionaries().combine_chunks()
    recorded = Recorded(
        about,
        tuple(category.dictionary.to_pylist()),
        category.indices.to_numpy().astype(np.int64),
        table["sequence"].to_numpy().astype(np.int64),
        table["position"].to_numpy().astype(np.int64),
        table["path"].to_numpy().astype(np.int64),
        _array(table["confidence"]),
        table["rank"].to_numpy().astype(np.int64),
        _array(table["target_probability"]),
        table["overlap"].to_numpy().astype(np.float64),
    )
    _check(path, recorded)
    return recorded


def _about(path: Path, raw: Mapping[bytes, bytes]) -> dict[str, Any]:
    try:
        about = json.loads(raw[METADATA_KEY])
    except (KeyError, ValueError, RecursionError):
        raise SpecsimError(f"{path}: is no recording of `specsim profile acceptance`") from None
    if not isinstance(about, dict) or about.get("format") != RECORDING_FORMAT:
        raise SpecsimError(f"{path}: is not of format {RECORDING_FORMAT}, which this specsim reads")
    missing = [key for key in ABOUT if key not in about]
    if missing or not isinstance(about["proposals"], int):
        raise SpecsimError(f"{path}: metadata lacks {missing[0] if missing else 'a whole number of proposals'!r}")
    if not isinstance(about.get("settings", {}), dict):
        raise SpecsimError(f"{path}: metadata: settings are no mapping")
    return about


def _check(path: Path, recorded: Recorded) -> None:
    confidence, truth, most = recorded.confidence, recorded.target_probability, recorded.proposals
    held = set(recorded.category[recorded.on_path].tolist())
    checks = {
        "category: expected rows of each on the target's text": held == set(range(len(recorded.categories))),
        "confidence: expected probabilities": _probabilities(confidence),
        "confidence: expected the likeliest first": bool((np.diff(confidence, axis=1) <= 0).all()),
        "target_probability: expected probabilities": _probabilities(truth),
        f"rank: expected 0 to {most}": bool(((recorded.rank >= 0) & (recorded.rank <= most)).all()),
        "position: expected 0 or more": bool((recorded.position >= 0).all()),
        "path: expected -1 or 1 to 3": bool(np.isin(recorded.path, (ON_PATH, 1, 2, 3)).all()),
        f"rank: expected {most} off the path": bool((recorded.rank[~recorded.on_path] == most).all()),
        "rows: expected them sorted by category, sequence, path, position": _sorted(recorded),
    }
    for said, kept in checks.items():
        if not kept:
            raise SpecsimError(f"{path}: {said}")


def _probabilities(values: Floats) -> bool:
    return bool(((values >= 0) & (values <= 1)).all())


def _sorted(recorded: Recorded) -> bool:
    keys = (recorded.position, recorded.path, recorded.sequence, recorded.category)
    order = np.lexsort(keys)
    return bool((np.diff(order) == 1).all())


def _lists(values: Floats) -> pa.Array:
    halves: npt.NDArray[np.float16] = np.ascontiguousarray(values, dtype=np.float16)
    return pa.FixedSizeListArray.from_arrays(pa.array(halves.ravel(), pa.float16()), values.shape[1])


def _array(column: pa.ChunkedArray) -> Floats:
    whole = column.combine_chunks()
    flat = whole.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    return np.asarray(flat.reshape(len(whole), whole.type.list_size))
