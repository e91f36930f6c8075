"""A Parquet file as a table: reads only the columns asked for, counts rows from 1."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from specsim.errors import SpecsimError
from specsim.files.regular_file import check_rows
from specsim.workload.damage import Damage, check_unpacked
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
        texts = [field.name for field in held.schema_arrow if pa.types.is_string(field.type)]
        held = pq.ParquetFile(BytesIO(raw), read_dictionary=texts)
    except (pa.ArrowException, OSError):
        raise SpecsimError(f"{file}: damaged or cut Parquet file") from None
    check_rows(file, count, len(raw))
    check_unpacked(file, "Parquet", _unpacked_bytes(held), len(raw))

    def read(wanted: Sequence[str]) -> tuple[Cells, Rows]:
        try:
            table = held.read(columns=list(wanted))
            cells = {name: _cells(table.column(name)) for name in wanted}
        except (pa.ArrowException, OSError):
            raise SpecsimError(f"{file}: damaged or cut Parquet file") from None
        return cells, Rows(range(1, count + 1), Damage(file, "row"), [])

    return Table(file, "Parquet", names, read)


def _unpacked_bytes(held: Any) -> int:
    groups = (held.metadata.row_group(place) for place in range(held.metadata.num_row_groups))
    return sum(group.total_byte_size for group in groups)


def _cells(column: Any) -> list[object]:
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        return list(column.cast(pa.timestamp("ns")).to_numpy())
    if not pa.types.is_dictionary(column.type):
        cells: list[object] = column.to_pylist()
        return cells
    # A text that repeats in many rows is held once.
    found: list[object] = []
    for chunk in column.chunks:
        values = chunk.dictionary.to_pylist()
        found += [None if index is None else values[index] for index in chunk.indices.to_pylist()]
    return found
