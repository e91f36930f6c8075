"""Write the shipped profiles: ``python -m tools.public --data DIR --out conf/profile``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from profiler.text import write, yaml_text
from specsim.commands.parser import Parser, run
from tools.public.build import artifact_profile, composed_profile
from tools.public.recipes import ARTIFACTS, RECIPES
from tools.public.tables import markdown, renewed

HEADING = "Written by `python -m tools.public`; docs/profiles.md says how. Seconds, bytes and tokens."


def texts(data: Path) -> Iterator[tuple[str, str]]:
    """Yield name and YAML text of every shipped profile, built from the measurements below `data`."""
    for recipe in RECIPES:
        yield recipe.name, yaml_text(composed_profile(data, recipe), HEADING)
    for artifact in ARTIFACTS:
        yield artifact.name, yaml_text(artifact_profile(data, artifact), HEADING)


def main(argv: Sequence[str] | None = None) -> int:
    """Build the files, or with ``--tables`` write the tables of docs/profiles.md into that page."""
    parser = Parser(prog="python -m tools.public", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds perf/ and adaserve/")
    parser.add_argument("--out", type=Path, default=Path("conf/profile"), help="folder of the profiles")
    parser.add_argument("--tables", type=Path, metavar="PAGE", help="write no profile; renew the tables of this page")
    options = parser.parse_args(argv)
    return run(lambda: _command(options.data, options.out, options.tables))


def _command(data: Path, out: Path, tables: Path | None) -> int:
    if tables is not None:
        write(tables, renewed(tables.read_text(encoding="utf-8"), markdown(out)))
        return 0
    for name, text in texts(data):
        write(out / f"{name}.yaml", text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
