"""A value from Python: a setting that is what it is, and is never written as a word and parsed again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PythonValue:
    """A plain value (None, truth value, number, text, list, mapping); its text is only shown."""

    value: Any

    def __str__(self) -> str:
        return _word(self.value)


def _word(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(_word, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_word(each)}" for key, each in value.items()) + "}"
    return str(value)
