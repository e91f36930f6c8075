"""What the pages of docs/ show: blocks of code, and commands of specsim."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def blocks(text: str) -> list[tuple[str, str]]:
    """Return the language and the text of each block of code."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def block(text: str, kind: str, holding: str = "") -> str:
    """Return the first block in a language that holds a text."""
    return next(each for name, each in blocks(text) if name == kind and holding in each)


def commands(text: str) -> list[list[str]]:
    """Return the words behind `$ specsim` of each line that begins so."""
    return [shlex.split(each) for each in re.findall(r"^\$ specsim (.*)$", text, re.MULTILINE)]
