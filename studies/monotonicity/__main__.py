"""Write docs/anomalies.md: ``python -m studies.monotonicity [--runs DIR]`` (docs/anomalies.md tells how).

With ``--runs`` the rows are taken anew from the sweeps in that folder; without it, from those that are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from profiler.text import write
from specsim import load_sweep
from specsim.commands.parser import Parser, run
from studies.monotonicity.compared import compared
from studies.monotonicity.page import page
from studies.monotonicity.study import measures
from studies.report import keep, kept

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
        keep(measures(load_sweep(runs).table), KEPT, {})
    rows = kept(KEPT)
    write(PAGE, page(rows, compared(rows)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
