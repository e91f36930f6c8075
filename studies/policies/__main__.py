"""Run the study and write its tables and figure: ``python -m studies.policies [--jobs 2]``.

Rows of finished cells are kept in results/policies; an interrupted study goes on where it was. ``--redraw`` runs
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from profiler.text import write
from specsim.commands.parser import Parser, run
from studies.policies import running
from studies.policies.page import FIGURE, PAGE, figure, page
from studies.report import kept, without_images


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing, then write the page and its figure below the working folder."""
    parser = Parser(prog="python -m studies.policies", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/runs/policies"), help="folder of the runs")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--redraw", action="store_true", help="write the page from the rows that are kept")
    options = parser.parse_args(argv)
    return run(lambda: _command(options.out, options.jobs, options.redraw))


def _command(out: Path, jobs: int, redraw: bool) -> int:
    rows = kept(running.KEPT) if redraw else running.run(out, jobs)
    figure(rows).savefig(FIGURE, bbox_inches="tight")
    write(PAGE, without_images(page(rows)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
