"""Write docs/served-points.md from public measurements: ``python -m studies.served_points --data DIR --out FILE``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from profiler.text import write
from specsim.commands.parser import Parser, run
from specsim.errors import say
from studies.served_points import composed_tables, passes, serving
from studies.served_points.sets import SETS, compared

TEMPLATE = Path(__file__).with_name("page.md")


def page(data: Path) -> str:
    """Return the page: the prose of `TEMPLATE`, its places filled with what is measured below `data`."""
    those = [compared(data, each) for each in SETS]
    filled = {
        "sets": serving.sets_table(those),
        "unused": serving.unused(data),
        "errors": serving.errors_table(those),
        "means": serving.means(those),
        "composed_kinds": composed_tables.kinds_table(),
        "composed_groups": composed_tables.groups_table(),
        "composed_clients": composed_tables.clients_table(),
        "composed_left_out": composed_tables.left_out_table(),
        "nearer": composed_tables.farther(),
        "splitwise_errors": passes.splitwise_errors(data),
        "whole_passes": passes.whole_pass_errors(data),
        "attention": passes.attention_ratio(data),
    }
    return TEMPLATE.read_text(encoding="utf-8").format(**filled)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page to a file, or to standard output."""
    parser = Parser(prog="python -m studies.served_points", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds perf/")
    parser.add_argument("--out", type=Path, help="file of the page; standard output where it is not given")
    options = parser.parse_args(argv)
    return run(lambda: _command(options.data, options.out))


def _command(data: Path, out: Path | None) -> int:
    text = page(data)
    if out is None:
        say(text.rstrip("\n"))
    else:
        write(out, text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
