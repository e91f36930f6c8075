"""The page of docs/ that lists the keys of a run, from their declarations: ``python -m tools.keys`` writes it."""

from __future__ import annotations

from pathlib import Path

from specsim.config.schema import Declared, declared
from specsim.config.values import PythonValue

PAGE = Path(__file__).parents[1] / "docs" / "keys.md"
HEAD = """\
# Keys of a run

`python -m tools.keys` writes this page from `specsim/config/schema.py`. On the command line a key is written as here
(`split.prefill=2`), in Python with two underscores for a dot (`split__prefill=2`). `null` (Python: `None`) means none.
Keys marked * change no number, so runs that differ in them alone are one run. Each group (`scheduler`, `trace`, `slo`,
`acceptance`, `profile`, `drafter`, `engine`, `router`) has the keys of its chosen file
([command-line.md](command-line.md)).

| key | default | values | unit | |
|---|---|---|---|---|
"""


def page() -> str:
    """Return the page as Markdown."""
    return HEAD + "".join(f"{_row(each)}\n" for each in declared())


def _row(each: Declared) -> str:
    mark = "" if each.key.alters else " *"
    cells = (
        f"`{each.name}`{mark}",
        f"`{PythonValue(each.default)}`",
        each.key.kind.values,
        each.key.unit,
        each.key.doc,
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
