"""The user's own trace: CSV (plain or gzip) or Parquet with the columns of ``docs/traces.md``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path

from specsim.errors import SpecsimError, nearest
from specsim.workload import columns
from specsim.workload.columns import Rows
from specsim.workload.damage import Damage, content, shown
from specsim.workload.formats import checked_width, csv_rows
from specsim.workload.trace import Floats, Trace, TraceSource

REQUIRED = ("arrival_s", "prompt_tokens", "output_tokens")
OPTIONAL = ("slo_class", "tpot_slo_s", "tpot_slo_ratio", "ttft_slo_s")


def read_user_file(file: Path, source: TraceSource) -> Trace:
    """Return the trace of a CSV, CSV.gz or Parquet file; damage is told by line (CSV) or row from 1.

    Raises
    ------
    SpecsimError
        One line for whatever is damaged or unknown; nothing is dropped.
    """
    if content(file)[:4] == b"PAR1":
        return _from_cells(*_parquet(file), source)
    header, lines = csv_rows(file)
    _check_header(file, header, "line 1: ")
    rows = Rows([line for line, _ in lines], Damage(file))
    cells = checked_width(lines, header, rows)
    return _from_cells(dict(zip(header, cells, strict=True)), rows, source)


def parquet_columns(file: Path, names: Sequence[str] | None = None) -> dict[str, list[object]]:
    """Return the columns of a Parquet file as Python values.

    Raises
    ------
    SpecsimError
        When the file is missing, not Parquet, cut, or lacks a column of ``names``.
    """
    # pyarrow takes longer to import than any trace takes to read.
    import pyarrow as pa
    import pyarrow.parquet as pq

    raw = content(file)
    try:
        table = pq.read_table(BytesIO(raw))
    except (pa.ArrowInvalid, OSError):
        raise SpecsimError(f"{file}: damaged or cut Parquet file") from None
    for name in names or ():
        if name not in table.column_names:
            raise SpecsimError(f"{file}: no column {name!r}{nearest(name, table.column_names)}")
    return {name: table.column(name).to_pylist() for name in names or table.column_names}


def _parquet(file: Path) -> tuple[dict[str, list[object]], Rows]:
    cells = parquet_columns(file)
    _check_header(file, list(cells), "")
    count = len(cells[REQUIRED[0]])
    if count == 0:
        raise SpecsimError(f"{file}: no row")
    return cells, Rows(range(1, count + 1), Damage(file, "row"))


def _check_header(file: Path, header: list[str], where: str) -> None:
    known = (*REQUIRED, *OPTIONAL)
    for name in header:
        if name not in known:
            raise SpecsimError(f"{file}: {where}unknown column {shown(name)}{nearest(name, known)}")
        if header.count(name) > 1:
            raise SpecsimError(f"{file}: {where}column {name!r} stands twice")
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        raise SpecsimError(f"{file}: {where}no column {', '.join(missing)}; needs {', '.join(REQUIRED)}")


def _from_cells(cells: Mapping[str, Sequence[object]], rows: Rows, source: TraceSource) -> Trace:
    arrival_s = columns.arrivals(cells["arrival_s"], "arrival_s", rows)
    prompt = columns.tokens(cells["prompt_tokens"], "prompt_tokens", rows)
    output = columns.tokens(cells["output_tokens"], "output_tokens", rows)
    slo: dict[str, Floats] = {name: columns.slos(cells[name], name, rows) for name in OPTIONAL[1:] if name in cells}
    if "tpot_slo_s" in slo and "tpot_slo_ratio" in slo:
        for i, both in enumerate((slo["tpot_slo_s"] > 0) & (slo["tpot_slo_ratio"] > 0)):
            if both:
                rows.damage.add(rows.numbers[i], "tpot_slo_s and tpot_slo_ratio are both given")
    code, names = columns.classes(cells["slo_class"], "slo_class", rows) if "slo_class" in cells else (None, ())
    rows.damage.check()
    trace = columns.trace(arrival_s, prompt, output, source)
    return replace(
        trace,
        slo_class=code,
        slo_names=names,
        tpot_slo_s=slo.get("tpot_slo_s"),
        tpot_slo_ratio=slo.get("tpot_slo_ratio"),
        ttft_slo_s=slo.get("ttft_slo_s"),
    )
