"""Text that a command writes: Markdown tables, and files that are replaced in one step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from specsim.files.staging import in_one_step


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table, without a line break at its end."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def write(path: Path, text: str) -> None:
    """Replace a file in one step; a folder that is missing is made.

    Raises
    ------
    SpecsimError
        When the file cannot be written.
    """
    with in_one_step(path) as partial:
        partial.write_text(text, encoding="utf-8")
