"""Write docs/h200.md from the rows of a session: ``python -m studies.h200``."""

from __future__ import annotations

from collections.abc import Sequence

from profiler.text import write
from specsim.commands.parser import Parser, run
from studies.h200.page import FIGURE, PAGE, figure, page
from studies.report import without_images


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page and its figure below the working folder."""
    Parser(prog="python -m studies.h200", description=__doc__).parse_args(argv)
    return run(_command)


def _command() -> int:
    figure().savefig(FIGURE, bbox_inches="tight")
    write(PAGE, without_images(page()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
