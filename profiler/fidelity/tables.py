"""The cells of a study, a Parquet file each, and tables of all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from profiler.fidelity.study import REAL, StudyCell
from profiler.text import write
from specsim.errors import SpecsimError, first_line
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
NAMES = ("cells", "passes", "requests", "samples")
ABOUT = "study.json"
NUMBERS = (
    "mean_ttft_ms",
    "mean_tpot_ms",
    "mean_e2el_ms",
    "slo_attainment",
    "mean_tokens_per_verification",
    "iterations",
    "slo_goodput_tokens_per_s",
    "pace",
    "own.e2el_s",
    "other.e2el_s",
)
"""Columns of cells that a report reads; those of runs that all failed are empty."""


class CellOutcome(NamedTuple):
    """The outcome of a cell: its passes, a number or text by name, and columns of its requests."""

    passes: Sequence[Entry]
    numbers: Mapping[str, Any]
    requests: Mapping[str, Sequence[Any]]


def place_of(root: Path, cell: StudyCell, key: str) -> Path:
    """Return the file of a cell, named by the hash of what it rests on."""
    turn = cell.repeat + 1 if cell.side == REAL else ""
    scheduler = cell.scheduler.replace("/", "_")
    return root / CELLS / f"{cell.pair}-{scheduler}-{cell.load:g}-{cell.side}{turn}-{key}.parquet"


def store(file: Path, cell: StudyCell, outcome: CellOutcome) -> None:
    """Write a cell in one step."""
    import pyarrow.parquet as pq

    told = {"cell": cell._asdict(), "numbers": dict(outcome.numbers), "requests": dict(outcome.requests)}
    table = _table(outcome.passes).replace_schema_metadata({METADATA: json.dumps(told).encode()})
    with in_one_step(file) as partial, partial.open("wb") as raw:
        pq.write_table(table, raw, compression="zstd")


def stored(files: Sequence[Path]) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """Yield what each file holds: its cell, numbers and requests, and its passes."""
    import pyarrow.parquet as pq

    for file in files:
        table = pq.read_table(file, partitioning=None)
        yield json.loads(table.schema.metadata[METADATA]), table.replace_schema_metadata(None)


def read_outcome(file: Path) -> CellOutcome:
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
    return CellOutcome(passes, told["numbers"], told["requests"])


def _table(entries: Sequence[Entry]) -> pa.Table:
    import pyarrow as pa

    texts, numbers, ids = ("role", "kind"), (*SHAPE, "measured_s", "predicted_s", "host_s"), pa.list_(pa.int32())
    columns = dict.fromkeys(texts, pa.string()) | dict.fromkeys(numbers, pa.float64()) | dict.fromkeys(LISTS, ids)
    rows = [
        (each.role, each.kind, *map(float, each.shape), *each.time, each.host_s, each.requests, each.emitted)
        for each in entries
    ]
    return pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], pa.schema(columns))


class Tables(NamedTuple):
    """The findings of a study.

    Attributes
    ----------
    about : the study, its machine, and facts of each pair. cells : a row a run, its numbers by name.
    passes : a row a real pass, on the clock of measured seconds. requests : a row a request of a run.
    samples : a row a point of a measured profile.
    """

    about: dict[str, Any]
    cells: DataFrame
    passes: DataFrame
    requests: DataFrame
    samples: DataFrame


def gathered(files: Sequence[Path], root: Path) -> Tables:
    """Return the tables of cells in their files, and of the profiles in the folder of their study."""
    import pandas as pd

    cells, passes, requests = [], [], []
    for told, table in stored(files):
        cell = told["cell"]
        cells.append(cell | told["numbers"])
        requests.append(pd.DataFrame(told["requests"]).assign(**cell))
        if cell["side"] == REAL and "error" not in told["numbers"]:
            passes.append(table.drop_columns(list(LISTS)).to_pandas().assign(**cell))
    about = json.loads((root / ABOUT).read_text(encoding="utf-8"))
    measured = {name: facts["samples"] for name, facts in about["pairs"].items() if facts.get("samples")}
    samples = [pd.read_parquet(root / CELLS / file).assign(pair=name) for name, file in measured.items()]
    no_passes = _table([]).drop_columns(list(LISTS)).to_pandas().assign(**dict.fromkeys(StudyCell._fields, ""))
    empty = no_passes, pd.DataFrame(columns=StudyCell._fields), pd.DataFrame(columns=["pair"])
    whole = [
        pd.concat(each, ignore_index=True) if each else none
        for each, none in zip((passes, requests, samples), empty, strict=True)
    ]
    runs = pd.DataFrame(cells)
    return Tables(about, runs.reindex(columns=[*runs.columns, *(each for each in NUMBERS if each not in runs)]), *whole)


def write_tables(tables: Tables, folder: Path) -> None:
    """Write the tables and the facts of the study, each in one step."""
    for name in NAMES:
        with in_one_step(folder / f"{name}.parquet") as partial:
            getattr(tables, name).to_parquet(partial, index=False, compression="zstd")
    write(folder / ABOUT, json.dumps(tables.about, indent=1) + "\n")


def read_tables(folder: Path) -> Tables:
    """Return the tables in a folder.

    Raises
    ------
    SpecsimError
        One line naming a file that is missing or cannot be read.
    """
    import pandas as pd

    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        return Tables(about, *(pd.read_parquet(folder / f"{name}.parquet") for name in NAMES))
    except (OSError, ValueError) as error:
        raise SpecsimError(f"{folder}: holds no study of specsim fidelity: {first_line(error)}") from None
