"""Acceptance from recorded drafts, and the checks of a recording.

A fault is a SpecsimError of one line that names the file with its column and row, or the source with its key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from specsim.acceptance.curves import MOST_POSITIONS
from specsim.acceptance.trace import AcceptanceTrace, Evidence, of_category
from specsim.core.request import Bools, Floats, Ints
from specsim.errors import SpecsimError, first_line, represented
from specsim.files.checked_mapping import CheckedMapping, expanded
from specsim.files.yaml_file import MOST_FILE_BYTES, check_file, check_rows
from specsim.kernels.growth import pool_of
from specsim.rng import STRIDE, Words, stream_keys

ON_PATH = -1
PROBABLE = 1.001
"""The most that one probability, or all of a row, comes to in half precision."""
RISE = 1e-3
"""By which a later confidence may be larger in half precision."""
WHOLE = ("sequence", "position", "path", "rank")
DEPTH = "depth"
"""The column of draft positions, which a recording may lack."""
PROBABILITIES = ("confidence", "target_probability")


def check_columns(path: Path, columns: Mapping[str, Any]) -> None:
    """Refuse a recording whose columns, arrays by name, do not hold what the documentation says."""
    _check_types(path, columns)
    for name in PROBABILITIES:
        values = columns[name]
        _each(path, columns, name, ((values >= 0) & (values <= PROBABLE)).all(axis=1), "probabilities, 0 to 1")
        _each(path, columns, name, values.sum(axis=1) <= PROBABLE, "probabilities whose sum is at most 1")
    _each(path, columns, "confidence", (np.diff(columns["confidence"]) <= RISE).all(axis=1), "the likeliest first")
    most = columns["confidence"].shape[1]
    _each(path, columns, "rank", (columns["rank"] >= 0) & (columns["rank"] <= most), f"0 to {most}")
    for name in ("position", DEPTH):
        _each(path, columns, name, columns[name] >= 0, "0 or more")
    _each(path, columns, DEPTH, columns[DEPTH] < MOST_POSITIONS, f"below {MOST_POSITIONS}")
    kinds = columns["path"]
    _each(path, columns, "path", (kinds == ON_PATH) | (kinds > 0), "-1, or 1, 2, ... behind a wrong turn")
    _check_texts(path, columns)


def _check_types(path: Path, columns: Mapping[str, Any]) -> None:
    for name in (*WHOLE, DEPTH):
        if columns[name].dtype.kind != "i":
            raise SpecsimError(f"{path}: {name}: expected whole numbers")
    if not all(isinstance(each, str) for each in columns["category"]):
        raise SpecsimError(f"{path}: category: expected names")
    for name in PROBABILITIES:
        values = columns[name]
        if values.ndim != 2 or values.shape != columns["confidence"].shape:
            raise SpecsimError(f"{path}: {name}: expected one list of K numbers a row")


def _each(path: Path, columns: Mapping[str, Any], name: str, right: Bools, expected: str) -> None:
    """Refuse the first row that is not right."""
    if not right.all():
        row = int(np.flatnonzero(~right)[0])
        found = represented(columns[name][row].tolist())
        raise SpecsimError(f"{path}: row {row + 1}: {name}: {found}; expected {expected}")


def _check_texts(path: Path, columns: Mapping[str, Any]) -> None:
    """Refuse a text whose positions on the target's path are not one after the other, in whatever order they stand.

    A text has a row of draft position 0, and at most one of each other.
    """
    _, code = np.unique(columns["category"], return_inverse=True)
    sequence, position, depth = columns["sequence"], columns["position"].astype(np.int64), columns[DEPTH]
    rows = np.flatnonzero(columns["path"] == ON_PATH)
    rows = rows[np.lexsort((depth[rows], position[rows], sequence[rows], code[rows]))]
    place = np.stack((code, sequence, position), axis=1)[rows]
    follows = (place[1:] == place[:-1]).all(axis=1) & (np.diff(depth[rows]) > 0)
    right = np.ones(len(code), dtype=np.bool_)
    right[rows[:1]] = depth[rows[:1]] == 0
    right[rows[1:]] = follows | (depth[rows[1:]] == 0)
    _each(path, columns, DEPTH, right, "0 at each position, and each other once")
    rows = rows[depth[rows] == 0]
    first = np.diff(code[rows], prepend=-1) | np.diff(sequence[rows], prepend=-1) != 0
    right[rows] = first | (np.diff(position[rows], prepend=0) == 1)
    _each(path, columns, "position", right, "one more than the position before in its text")


RECORDING_FORMAT = 1
METADATA_KEY = b"specsim"
COLUMNS = ("category", "sequence", "position", "path", "confidence", "rank", "target_probability")
OPTIONAL = (DEPTH, "overlap")
LEAST_CONFIDENCE = 1e-7
"""Confidence of a proposal whose own was rounded to 0 in half precision."""
_UNSTRIDE = np.uint64(pow(int(STRIDE), -1, 1 << 64))


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded acceptance trace by category, and the recorded category for each category of a trace.

    Attributes
    ----------
    path : the Parquet file. categories : recorded category by a trace's category; ``default`` for all others.
    """

    evidence: ClassVar[Evidence] = "recorded"
    path: Path
    categories: Mapping[str, str]

    @property
    def sha256(self) -> str:
        """The checksum of the file."""
        return sha256(self.path.read_bytes()).hexdigest()

    def acceptance_trace(self, category: Sequence[str], slo_class: Ints, rows: Ints, seed: int) -> AcceptanceTrace:
        """Return the acceptance of the requests in `rows` (N,) of a trace; `slo_class` (N,) indexes `category`."""
        pages = _pages(self.path)
        names = [of_category(self.categories, each) for each in category]
        draws = stream_keys(seed, "recorded_text", rows)
        firsts = [pages.sequences[name] for name in names]
        opening = np.zeros(len(slo_class), dtype=np.int64)
        for code, starts in enumerate(firsts):
            mine = slo_class == code
            opening[mine] = starts[(draws[mine] % np.uint64(len(starts))).astype(np.int64)] - pages.on[names[code]][0]
        on = np.array([pages.on[name] for name in names])[slo_class]
        off = np.array([pages.off[name] for name in names])[slo_class]
        keys = stream_keys(seed, "text", rows)
        texts = RecordedTexts(keys, on[:, 0], off[:, 0], opening, on[:, 1], off[:, 1], pages.at_depth)
        return AcceptanceTrace(pages.confidence, pages.rank, texts, keys, pages.truth)


class Pages(NamedTuple):
    """The rows of one recorded file: first those on the target's path, then those off it, each grouped by category.

    Attributes
    ----------
    confidence, truth : (rows, K). rank : (rows,).
    on, off : by category, (first row, rows) on the target's path and in its off-path pool.
    sequences : by category, the first row of each recorded text.
    at_depth : (depths, rows on the path) row of each at each draft position; None: the same at all.
    """

    confidence: Floats
    truth: Floats
    rank: Ints
    on: Mapping[str, tuple[int, int]]
    off: Mapping[str, tuple[int, int]]
    sequences: Mapping[str, Ints]
    at_depth: Ints | None


@dataclass(frozen=True, slots=True)
class RecordedTexts:
    """Texts read row after row as recorded; off the target's path a hash picks a row of the pool.

    A request begins at a recorded text of its category, continues with the next one, and begins again after the last.

    Attributes
    ----------
    keys : (N,) uint64, the key of each request's position 0.
    start, off_start : (N,) first row of its category on and off the target's path.
    opening : (N,) row at which the request's text begins, counted from `start`.
    length, off_length : (N,) number of rows of its category on and off the path.
    at_depth : as of `Pages`.
    """

    keys: Words
    start: Ints
    off_start: Ints
    opening: Ints
    length: Ints
    off_length: Ints
    at_depth: Ints | None = None

    @property
    def depths(self) -> int:
        """Draft positions with rows of their own; deeper ones have those of the last."""
        return 1 if self.at_depth is None else len(self.at_depth)

    def rows(self, requests: Ints, keys: Words, hashed: Words, on: Bools, depth: Ints) -> Ints:
        """Return the row of each key, (n,)."""
        position = ((keys - self.keys[requests]) * _UNSTRIDE).view(np.int64)
        along = np.where(on, position + self.opening[requests], 0) % self.length[requests]
        away = (hashed % self.off_length[requests].astype(np.uint64)).view(np.int64)
        here = self.start[requests] + along
        if self.at_depth is not None:
            here = self.at_depth[pool_of(depth, self.depths), here]
        return np.where(on, here, self.off_start[requests] + away)

    def text_rows(self, requests: Ints, depth: int = 0) -> Ints:
        """Return the rows of these requests' categories, each row once."""
        spans = np.unique(np.stack((self.start[requests], self.length[requests]), axis=1), axis=0)
        rows = np.concatenate([np.arange(first, first + rows) for first, rows in spans.tolist()])
        return rows if self.at_depth is None else self.at_depth[min(depth, self.depths - 1), rows]


def recording_of(node: CheckedMapping, folder: Path) -> Recording:
    """Return the recording of the checked keys `path` and `categories`; its path is relative to `folder`."""
    source = node.source
    node.only(("kind", "path", "categories"), ("description", "pair"))
    path = folder / expanded(node.text("path", "the name of a Parquet file"), f"{source}: path: ")
    check_file(path, MOST_FILE_BYTES, "recording", f"{source}: path: ")
    categories = node.child("categories", "a trace's categories, each with a recorded one", 1)
    known = _pages(path).on
    return Recording(path, {str(key): categories.choice(key, known) for key in categories.values})


def _pages(path: Path) -> Pages:
    """Return the rows of a file, read anew when it has changed."""
    check_file(path, MOST_FILE_BYTES, "recording")
    facts = path.stat()
    return _pages_of(path, facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=4)
def _pages_of(path: Path, _changed_ns: int, _size: int) -> Pages:
    table, about = read_columns(path)
    path_column, category = table["path"], table["category"]
    codes, code = np.unique(category, return_inverse=True)
    away, depth = path_column != ON_PATH, table[DEPTH].astype(np.int64)
    # Rows of deeper draft positions lie behind all others.
    deep = np.where(away, 0, depth)
    order = np.lexsort((path_column, table["position"], table["sequence"], code, away, deep))
    code, away, sequence, deep = code[order], away[order], table["sequence"][order], deep[order]
    confidence, truth = table["confidence"][order], table["target_probability"][order]
    rank = table["rank"][order].astype(np.int64)
    used = max(int(np.count_nonzero(confidence.any(axis=0))), 1)
    confidence, truth = np.ascontiguousarray(confidence[:, :used]), np.ascontiguousarray(truth[:, :used])
    if about.get("drafter") != "lookup":
        confidence = np.maximum(confidence, LEAST_CONFIDENCE)
    on, off, sequences = {}, {}, {}
    for index, name in enumerate(codes.tolist()):
        mine = np.flatnonzero((code == index) & ~away & (deep == 0))
        if not len(mine):
            continue
        on[name] = int(mine[0]), len(mine)
        pool = np.flatnonzero((code == index) & away)
        off[name] = (int(pool[0]), len(pool)) if len(pool) else on[name]
        sequences[name] = mine[np.flatnonzero(np.diff(sequence[mine], prepend=-1))]
    if not on:
        raise SpecsimError(f"{path}: holds no row of a target's own text (path {ON_PATH})")
    at_depth = _at_depth(deep, away, np.stack((code, sequence, table["position"][order]), axis=1))
    return Pages(confidence, truth, rank, on, off, sequences, at_depth)


def _at_depth(deep: Ints, away: Bools, place: Ints) -> Ints | None:
    """Return the row of each row on the target's path at each draft position, None where there is but one.

    A position without a row of its own at a draft position has that of the one before.

    Parameters
    ----------
    deep : (rows,) draft positions, in rising order. place : (rows, 3) category, text and position.
    """
    if not deep.any():
        return None
    _, which = np.unique(place, axis=0, return_inverse=True)
    texts = int(np.count_nonzero(~away & (deep == 0)))
    at = np.zeros(int(which.max()) + 1, dtype=np.int64)
    at[which[:texts]] = np.arange(texts)
    found = np.tile(np.arange(texts), (int(deep.max()) + 1, 1))
    for depth in range(1, len(found)):
        rows = np.flatnonzero(deep == depth)
        found[depth:, at[which[rows]]] = rows
    return found


def read_columns(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the columns of a recording as arrays, and its metadata.

    Raises
    ------
    SpecsimError
        One line that names the file, and the column and row at fault; see `check_columns`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        held = pq.ParquetFile(path)
        check_rows(path, held.metadata.num_rows, path.stat().st_size)
        table = held.read()
    except (OSError, pa.ArrowException) as error:
        raise SpecsimError(f"{path}: cannot be read as Parquet: {first_line(error)}") from None
    about = _metadata(path, table.schema.metadata or {})
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing or not table.num_rows:
        raise SpecsimError(f"{path}: " + (f"column {missing[0]!r} is missing" if missing else "holds no rows"))
    try:
        columns = {name: _array(table[name]) for name in (*COLUMNS, *OPTIONAL) if name in table.column_names}
    except (pa.ArrowException, ValueError, AttributeError) as error:
        raise SpecsimError(f"{path}: unexpected column types: {first_line(error)}") from None
    columns.setdefault(DEPTH, np.zeros(len(columns["rank"]), dtype=np.int64))
    check_columns(path, columns)
    return columns, about


def _metadata(path: Path, raw: Mapping[bytes, bytes]) -> dict[str, Any]:
    try:
        about = json.loads(raw[METADATA_KEY])
    except (KeyError, ValueError, RecursionError):
        raise SpecsimError(f"{path}: is no recording of `specsim profile acceptance`") from None
    if not isinstance(about, dict) or about.get("format") != RECORDING_FORMAT:
        found = about.get("format") if isinstance(about, dict) else about
        raise SpecsimError(f"{path}: format {found!r}; this specsim reads format {RECORDING_FORMAT}")
    return about


def _array(column: Any) -> Any:
    import pyarrow as pa

    whole = column.combine_chunks()
    if whole.null_count:
        raise ValueError("a value is missing")
    if pa.types.is_fixed_size_list(whole.type):
        flat = whole.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
        return flat.reshape(len(whole), whole.type.list_size)
    if pa.types.is_dictionary(whole.type):
        whole = whole.dictionary_decode()
    return whole.to_numpy(zero_copy_only=False)
