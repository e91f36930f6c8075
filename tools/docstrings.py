"""Docstrings for `mkdocs`: ``name : text`` is a name and its meaning, since annotations give the type."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

SECTION = re.compile(r"^(?:Parameters|Attributes)\n-+\n(?:.+\n?)+", re.MULTILINE)
NAMES = r"\*{0,2}\w+(?:, \*{0,2}\w+)*"
ITEM = re.compile(rf"(?:^|(?<=[.;]) )({NAMES}) : ", re.MULTILINE)


class LightNumpydoc(Extension):
    """Rewrite each ``name : text`` as numpydoc's name with its text below."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of one object before it is parsed."""
        if obj.docstring:
            obj.docstring.value = SECTION.sub(lambda section: ITEM.sub(_below, section[0]), obj.docstring.value)


def _below(item: re.Match[str]) -> str:
    lead = "\n" if item[0].startswith(" ") else ""
    return f"{lead}{item[1]}\n    "
