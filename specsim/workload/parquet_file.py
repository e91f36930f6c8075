"""A Parquet file as a table: only the columns that are asked for, rows counted from 1."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from specsim.errors import SpecsimError
from specsim.regular_file import check_rows
from specsim.workload.damage import Damage
from specsim.workload.table import Cells, Rows, Table


def open_parquet(raw: bytes, file: Path) -> Table:
    """Return the table of a Parquet file; timestamps come as ``numpy.datetime64[ns]``.

    Raises
    ------
    SpecsimError
        When it is damaged, cut, or states too many rows.
    """
    # pyarrow takes longer to import than any trace takes to read.
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        held = pq.ParquetFile(BytesIO(raw))
        count, names = held.metadata.num_rows, tuple(held.schema_arrow.names)
    except (pa.ArrowException, OSError):
        raise SpecsimError(f"{file}: damaged or cut Parquet file") from None
    check_rows(file, count, len(raw))

    def read(wanted: Sequence[str]) -> tuple[Cells, Rows]:
        try:
            table = held.read(columns=list(wanted))
            cells = {name: _cells(table.column(name)) for name in wanted}
        except (pa.ArrowException, OSError):
            raise SpecsimError(f"{file}: damaged or cut Parquet file") from None
        return cells, Rows(range(1, count + 1), Damage(file, "row"), [])

    return Table(file, "Parquet", names, read)


def _cells(column: Any) -> list[object]:
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        return list(column.cast(pa.timestamp("ns")).to_numpy())
    cells: list[object] = column.to_pylist()
    return cells
