"""Run the study and write its page and figures: ``python -m studies.speedups [--jobs 2]``; SPECSIM_DATA has the rows.

Rows of finished series are kept in results/speedups; an interrupted study goes on where it was. ``--redraw`` runs
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from specsim.commands.parser import Parser, run
from studies.report import kept
from studies.speedups import running
from studies.speedups.page import written


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing, then write the page and its figures below the working folder."""
    parser = Parser(prog="python -m studies.speedups", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1, help="series at once")
    parser.add_argument("--redraw", action="store_true", help="write the page from the rows that are kept")
    options = parser.parse_args(argv)
    return run(lambda: _command(options.jobs, redraw=options.redraw))


def _command(jobs: int, *, redraw: bool) -> int:
    if not redraw:
        running.run(jobs)
    return written(kept(running.KEPT))


if __name__ == "__main__":
    raise SystemExit(main())
