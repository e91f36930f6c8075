"""A profile's mapping as YAML text: stable order, six significant digits, one line per small mapping."""

from __future__ import annotations

import json
from collections.abc import Mapping
from textwrap import wrap
from typing import Any

INLINE_WIDTH = 170


def yaml_text(mapping: Mapping[str, Any], heading: str) -> str:
    """Return the file's text."""
    lines = [f"# {heading}"]
    for key, value in mapping.items():
        lines += block(key, value, 0)
    return "\n".join(lines) + "\n"


def block(key: str, value: object, depth: int) -> list[str]:
    """Return the lines of one entry."""
    pad = "  " * depth
    line = f"{pad}{key}: {inline(value)}"
    simple = not isinstance(value, Mapping | list) or is_flat(value)
    if simple and len(line) <= INLINE_WIDTH:
        return [line]
    if isinstance(value, Mapping):
        return [f"{pad}{key}:"] + [each for k, v in value.items() for each in block(k, v, depth + 1)]
    if isinstance(value, list) and is_flat(value):
        return wrap(line, INLINE_WIDTH, subsequent_indent=f"{pad}  ", break_long_words=False)
    if isinstance(value, list):
        return [f"{pad}{key}:"] + [each for item in value for each in entry(item, depth + 1)]
    return [line]


def is_flat(value: object) -> bool:
    """Return whether a mapping or list has neither nested values nor long text."""
    items = list(value.values()) if isinstance(value, Mapping) else value
    return isinstance(items, list) and all(isinstance(each, int | float) or each is None for each in items)


def entry(item: object, depth: int) -> list[str]:
    """Return the lines of one item of a list."""
    pad = "  " * depth
    if not isinstance(item, Mapping):
        return [f"{pad}- {inline(item)}"]
    lines = [line for key, value in item.items() for line in block(key, value, depth + 1)]
    return [f"{pad}- {lines[0].strip()}", *lines[1:]]


def inline(value: object) -> str:
    """Return a value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {inline(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(inline(each) for each in value) + "]"
    if isinstance(value, float):
        return number(value)
    return json.dumps(value, ensure_ascii=False)


def number(value: float) -> str:
    """Return six significant digits, written so that every YAML reader reads a number."""
    text = f"{value:.6g}"
    mantissa, _, exponent = text.partition("e")
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    return f"{mantissa}e{exponent}" if exponent else mantissa
