"""Write docs/anomalies.md: ``python -m studies.monotonicity [--runs DIR]`` (docs/anomalies.md tells how).

With ``--runs`` the rows are taken anew from the sweeps in that folder; without it, from those that are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.text import write
from specsim.commands.terminal import Parser, run
from specsim.errors import SpecsimError
from specsim.results.staging import in_one_step
from studies.monotonicity.compared import compared
from studies.monotonicity.page import page
from studies.monotonicity.study import measures

if TYPE_CHECKING:
    from pandas import DataFrame

KEPT = Path("results/anomalies/measures.parquet")
PAGE = Path("docs/anomalies.md")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the rows, where they are new, and the page below the working folder."""
    parser = Parser(prog="python -m studies.monotonicity", description=__doc__)
    parser.add_argument("--runs", type=Path, help="folder of the four sweeps")
    options = parser.parse_args(argv)
    return run(lambda: _command(options.runs))


def _command(runs: Path | None) -> int:
    if runs is not None:
        keep(runs, KEPT)
    rows = read(KEPT)
    write(PAGE, page(rows, compared(rows)))
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
