"""Write the shipped profiles: ``python -m tools.public --data DIR --out conf/profile``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from profiler.latency.text import write, yaml_text
from specsim.errors import SpecsimError
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


def main(arguments: list[str] | None = None) -> int:
    """Build the files, or with ``--tables`` write the tables of docs/profiles.md into that page."""
    parser = argparse.ArgumentParser(prog="python -m tools.public", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds perf/ and adaserve/")
    parser.add_argument("--out", type=Path, default=Path("conf/profile"), help="folder of the profiles")
    parser.add_argument("--tables", type=Path, metavar="PAGE", help="write no profile; renew the tables of this page")
    options = parser.parse_args(arguments)
    try:
        if options.tables:
            write(options.tables, renewed(options.tables.read_text(encoding="utf-8"), markdown(options.out)))
            return 0
        options.out.mkdir(parents=True, exist_ok=True)
        for name, text in texts(options.data):
            write(options.out / f"{name}.yaml", text)
    except SpecsimError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
