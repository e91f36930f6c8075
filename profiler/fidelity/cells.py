"""The cells of a study: one scheduler at one load, real or simulated; each is kept in a Parquet file of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from profiler.fidelity.study import REAL, Cell
from specsim.files.staging import in_one_step
from specsim.pass_shape import PassShape

if TYPE_CHECKING:
    import pyarrow as pa
    from pandas import DataFrame

    from profiler.fidelity.journal import Entry

CELLS = "cells"
"""Folder of what a study keeps to go on with: cells, and the profiles that they rest on."""
METADATA = b"specsim"
LISTS = ("ids", "emitted")
"""Columns of a cell's passes that hold lists."""
SHAPE = PassShape._fields


class Outcome(NamedTuple):
    """The outcome of a cell: its passes, a number or text by name, and columns of its requests."""

    passes: Sequence[Entry]
    numbers: Mapping[str, Any]
    requests: Mapping[str, Sequence[Any]]


def place_of(root: Path, cell: Cell, key: str) -> Path:
    """Return the file of a cell, named by the hash of what it rests on."""
    turn = cell.repeat + 1 if cell.side == REAL else ""
    scheduler = cell.scheduler.replace("/", "_")
    return root / CELLS / f"{cell.pair}-{scheduler}-{cell.load:g}-{cell.side}{turn}-{key}.parquet"


def no_passes() -> DataFrame:
    """Return the table of passes where no run has any."""
    table = _table([]).drop_columns(list(LISTS)).to_pandas()
    empty: DataFrame = table.assign(**dict.fromkeys(Cell._fields, ""))
    return empty


def store(file: Path, cell: Cell, outcome: Outcome) -> None:
    """Write a cell in one step."""
    import pyarrow.parquet as pq

    told = {"cell": cell._asdict(), "numbers": dict(outcome.numbers), "requests": dict(outcome.requests)}
    table = _table(outcome.passes).replace_schema_metadata({METADATA: json.dumps(told).encode()})
    with in_one_step(file) as partial:
        pq.write_table(table, partial, compression="zstd")


def stored(files: Sequence[Path]) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """Yield what each file holds: its cell, numbers and requests, and its passes."""
    import pyarrow.parquet as pq

    for file in files:
        table = pq.read_table(file, partitioning=None)
        yield json.loads(table.schema.metadata[METADATA]), table.replace_schema_metadata(None)


def read_outcome(file: Path) -> Outcome:
    """Return what a stored cell left."""
    from profiler.fidelity.journal import Entry, Timed

    ((told, table),) = stored([file])
    rows = table.to_pylist()
    passes = [
        Entry(
            row["role"],
            row["kind"],
            PassShape(*(row[name] for name in SHAPE)),
            Timed(row["measured_s"], row["predicted_s"]),
            row["host_s"],
            tuple(row["ids"]),
            tuple(row["emitted"]),
        )
        for row in rows
    ]
    return Outcome(passes, told["numbers"], told["requests"])


def _table(entries: Sequence[Entry]) -> pa.Table:
    import pyarrow as pa

    texts, numbers, ids = ("role", "kind"), (*SHAPE, "measured_s", "predicted_s", "host_s"), pa.list_(pa.int32())
    columns = dict.fromkeys(texts, pa.string()) | dict.fromkeys(numbers, pa.float64()) | dict.fromkeys(LISTS, ids)
    rows = [
        (each.role, each.kind, *map(float, each.shape), *each.time, each.host_s, each.requests, each.emitted)
        for each in entries
    ]
    return pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], pa.schema(columns))
