"""Columns of a run as Parquet: a row group at a time, and without an import of pandas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.results.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Columns = Mapping[str, NDArray[Any]]

GROUP_ROWS = 32_768
"""Rows that are made and written at once."""


def write_parquet(path: Path, parts: Iterable[Columns], types: Mapping[str, str]) -> None:
    """Write a row group of each part: its columns in the order of `types`, (rows,) each.

    There are no metadata of pandas, so that bytes depend only on data.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [pa.field(name, pa.type_for_alias(kind), nullable=False) for name, kind in types.items()],
        metadata={"specsim_schema_version": str(SCHEMA_VERSION)},
    )
    with pq.ParquetWriter(path, schema, compression="zstd") as file:
        for part in parts:
            arrays = [_arrow(part[field.name], field.type) for field in schema]
            file.write_table(pa.Table.from_arrays(arrays, schema=schema))


def parts_of(columns: Columns, rows: int) -> Iterator[Columns]:
    """Yield columns in parts of so many rows."""
    for first in range(0, len(next(iter(columns.values()))), rows):
        yield {name: column[first : first + rows] for name, column in columns.items()}


def _arrow(column: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return a column without nulls in the memory layout of Arrow; `pyarrow.array` would import pandas."""
    import pyarrow as pa

    if pa.types.is_string(kind):
        words = [word.encode() for word in column.tolist()]
        ends = np.cumsum([0, *map(len, words)], dtype=np.int32)
        buffers = [pa.py_buffer(ends), pa.py_buffer(b"".join(words))]
    elif pa.types.is_boolean(kind):
        buffers = [pa.py_buffer(np.packbits(column, bitorder="little"))]
    else:
        buffers = [
            pa.py_buffer(np.ascontiguousarray(column.astype(kind.to_pandas_dtype(), casting="same_kind", copy=False)))
        ]
    return pa.Array.from_buffers(kind, len(column), [None, *buffers])
