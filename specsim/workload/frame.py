"""A trace from a DataFrame with the columns of a user's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.errors import SpecsimError, represented
from specsim.files.checked_mapping import CheckedMapping
from specsim.workload import entry as keys
from specsim.workload.arrivals import Unit
from specsim.workload.damage import Damage, shown
from specsim.workload.formats import REQUIRED
from specsim.workload.published import noted
from specsim.workload.table import COLUMNS, Cells, Rows, Table
from specsim.workload.trace import Trace, TraceSource
from specsim.workload.user_file import read_table

if TYPE_CHECKING:
    from pandas import DataFrame


def trace_of(
    columns: DataFrame | Mapping[str, Any],
    name: str = "DataFrame",
    *,
    time_unit: Unit | None = None,
    tick_s: float | None = None,
) -> Trace:
    """Return the trace of these columns, in order of arrival, with the first arrival at 0.

    Parameters
    ----------
    columns : a DataFrame, or sequences of one length by name: those of any file that docs/traces.md names, as
        ``arrival_s``, ``prompt_tokens`` and ``output_tokens``; a missing value (None, NaN) is an empty cell.
    name : of the trace, in messages and in the provenance, which also holds the checksum of the columns.
    time_unit : of arrivals that are numbers: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``; None: as docs/traces.md says.
    tick_s : seconds over which requests of one stamp are spread evenly; None: they arrive together.

    Raises
    ------
    SpecsimError
        One line for an unknown or missing column, and for damaged rows, by the index of a DataFrame, else from 1.
    """
    try:
        named = [(str(each), column) for each, column in columns.items()]
        cells = {each: _cells(column, each) for each, column in named}
    except (TypeError, ValueError, AttributeError):
        raise SpecsimError(f"{name}: {represented(columns)} holds no columns by name") from None
    counts = {len(column) for column in cells.values()}
    if len(counts) > 1:
        raise SpecsimError(f"{name}: its columns differ in length")
    count = counts.pop() if counts else 0

    def read(wanted: Sequence[str]) -> tuple[Cells, Rows]:
        return {each: cells[each] for each in wanted}, Rows(range(1, count + 1), _damage(columns, name), [])

    node = CheckedMapping(name, "", {"time_unit": time_unit, "tick_s": tick_s})
    how: dict[str, Any] = {"time_unit": keys.time_unit(node), "tick_s": keys.tick_s(node)}
    table = Table(Path(name), COLUMNS, tuple(each for each, _ in named), read)
    trace, said = read_table(table, TraceSource(name, "object"), **how)
    return noted(replace(trace, source=replace(trace.source, sha256=content_sha256(trace))), f"{name}: {said}")


def content_sha256(trace: Trace) -> str:
    """Return the checksum of a trace: of all columns and the names of the classes."""
    digest = sha256(repr(trace.slo_names).encode())
    for name, column in trace.columns().items():
        digest.update(f"{name}:".encode())
        digest.update(np.ascontiguousarray(column).tobytes())
    if (prefixes := trace.prefixes) is not None:
        hashes = [prefixes.hashes[at : at + size] for at, size in zip(prefixes.first, prefixes.count, strict=True)]
        for each in (prefixes.count, *hashes, np.array(prefixes.block_tokens)):
            digest.update(each.tobytes())
    return digest.hexdigest()


def _damage(columns: DataFrame | Mapping[str, Any], name: str) -> Damage:
    """Return what collects damaged rows: a DataFrame's have labels of their own."""
    index: Any = getattr(columns, "index", None)
    if not hasattr(index, "tolist"):
        return Damage(Path(name), "row")
    return Damage(Path(name), "index", lambda row: shown(index[row - 1 : row].tolist()[0]))


def _cells(column: Any, name: str) -> list[object]:
    """Return a column as plain values: times, and time since any moment, as ``numpy.datetime64[ns]``.

    Missing values are None, unless the column may have none: then they stay what they are.
    """
    if getattr(getattr(column, "dtype", None), "tz", None) is not None:
        column = column.dt.tz_convert(None)
    values = np.asarray(column)
    if values.dtype.kind == "m":
        values = np.datetime64(0, "ns") + values
    if values.dtype.kind == "M":
        return ["NaT" if np.isnat(each) else each for each in values.astype("datetime64[ns]")]
    cells: list[object] = values.tolist()
    return cells if name in REQUIRED else [None if _is_missing(cell) else cell for cell in cells]


def _is_missing(cell: Any) -> bool:
    """Return whether a cell is None, NaN or pandas' NA, which equals nothing and differs from nothing."""
    return cell is None or type(cell).__name__ == "NAType" or bool(cell != cell)
