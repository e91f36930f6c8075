"""The container of a file, told by its first bytes: Parquet, JSON or CSV, plain or gzip, in any Unicode encoding."""

from __future__ import annotations

from pathlib import Path

from specsim.errors import SpecsimError
from specsim.workload.csv_file import open_csv
from specsim.workload.damage import content
from specsim.workload.encoding import lines
from specsim.workload.json_file import open_json
from specsim.workload.parquet_file import open_parquet
from specsim.workload.table import Table

FOREIGN = {
    b"PK\x03\x04": "a ZIP archive or an Excel sheet",
    b"BZh": "packed with bzip2",
    b"\xfd7zXZ": "packed with xz",
    b"(\xb5/\xfd": "packed with Zstandard",
}


def open_table(file: Path, known: frozenset[str]) -> Table:
    """Return the table in a file; `known` names of columns tell the separator of a CSV, and an object of lists.

    Raises
    ------
    SpecsimError
        When the file holds no table.
    """
    raw = content(file)
    for magic, what in FOREIGN.items():
        if raw.startswith(magic):
            raise SpecsimError(f"{file}: {what}; expected CSV, JSON or Parquet, plain or gzip")
    if raw.startswith(b"PAR1"):
        return open_parquet(raw, file)
    start = lines(raw, "\n").read(4096).lstrip()
    return open_json(raw, file, known) if start[:1] in ("{", "[") else open_csv(raw, file, known)
