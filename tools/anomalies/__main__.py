"""Write docs/anomalies.md: ``python -m tools.anomalies [--runs DIR]`` (docs/anomalies.md tells how).

With ``--runs`` the rows are taken anew from the sweeps in that folder; without it, from those that are kept.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.errors import SpecsimError
from specsim.files.staging import in_one_step
from tools.anomalies.compared import compared
from tools.anomalies.page import page
from tools.anomalies.study import measures

if TYPE_CHECKING:
    from pandas import DataFrame

KEPT = Path("results/anomalies/measures.parquet")
PAGE = Path("docs/anomalies.md")


def main(arguments: list[str] | None = None) -> int:
    """Write the rows, where they are new, and the page below the working folder."""
    parser = argparse.ArgumentParser(prog="python -m tools.anomalies", description=__doc__)
    parser.add_argument("--runs", type=Path, help="folder of the four sweeps")
    options = parser.parse_args(arguments)
    try:
        if options.runs is not None:
            keep(options.runs, KEPT)
        rows = read(KEPT)
        with in_one_step(PAGE) as partial:
            partial.write_text(page(rows, compared(rows)), encoding="utf-8")
    except SpecsimError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def keep(runs: Path, file: Path) -> None:
    """Write the rows of the sweeps in a folder."""
    from specsim import load_sweep

    rows = measures(load_sweep(runs).table)
    with in_one_step(file) as partial:
        rows.to_parquet(partial, compression="zstd", index=False)


def read(file: Path) -> DataFrame:
    """Return the rows that are kept.

    Raises
    ------
    SpecsimError
        When there is no such file.
    """
    from pandas import read_parquet

    if not file.is_file():
        raise SpecsimError(f"{file}: no such file; expected the working folder to be the repository's root")
    return read_parquet(file)


if __name__ == "__main__":
    raise SystemExit(main())
