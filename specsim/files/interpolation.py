"""References in a YAML file: a value ``${..other}`` repeats another value of the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from specsim.errors import SpecsimError

FOLLOWS = re.compile(r"\$\{(\.+)([\w.]+)\}")
MOST_STEPS = 16
MOST_REPEATED = 10_000
"""The most values that the references of one file may repeat."""

PLAIN = (bool, int, float, type(None))
MOST_PLAIN = 40
"""Levels that are looked at; a file has `MOST_DEPTH` at most."""

Place = tuple[Any, ...]
"""Keys and list indices from the top of a file down to a value."""


def check_references(mapping: Mapping[str, Any]) -> None:
    """Refuse every ``${...}`` of a file, except a whole value that repeats another of the file, as ``${..key}``.

    The environment, keys of the run and text around a reference are never resolved.

    Raises
    ------
    SpecsimError
        One line that begins with the dotted key; also when references lead in a circle or repeat too much.
    """
    for count, place in enumerate(_repeated(mapping, mapping, (), 0)):
        if count >= MOST_REPEATED:
            said = f"references stand for over {MOST_REPEATED:,} values; expected fewer"
            raise SpecsimError(f"{_dotted(place)}: {said}")


def _repeated(mapping: Mapping[str, Any], node: Any, place: Place, steps: int) -> Iterator[Place]:
    """Yield the place of each reference below a node, and of each value that a reference repeats."""
    for each, value in _leaves(node, place):
        refers = isinstance(value, str) and "${" in value
        if steps or refers:
            yield each
        if not refers:
            continue
        where = f"{_dotted(each)}: {value[:60]!r}"
        if steps == MOST_STEPS:
            raise SpecsimError(f"{where}: refers to itself, or through {MOST_STEPS} others to a value")
        yield from _repeated(mapping, *_named(mapping, each, value, where), steps + 1)


def _named(mapping: Mapping[str, Any], place: Place, text: str, where: str) -> tuple[Any, Place]:
    """Return the value that a reference at a place repeats, and the place of that value."""
    found = FOLLOWS.fullmatch(text)
    if found is None:
        raise SpecsimError(f"{where}: expected a value, or a key of this file alone, such as ${{..key}}")
    above = len(place) - len(found[1])
    if above < 0:
        raise SpecsimError(f"{where}: leads out of this file; expected the value itself")
    named = (*place[:above], *found[2].split("."))
    node: Any = mapping
    try:
        for name in named:
            node = node[name]
    except (KeyError, IndexError, TypeError):
        raise SpecsimError(f"{where}: this file has no such key") from None
    return node, named


def _leaves(node: Any, place: Place) -> Iterator[tuple[Place, Any]]:
    """Yield each value that is neither a mapping nor a list, with its place."""
    if not isinstance(node, Mapping | list) or not node:
        yield place, node
        return
    for name, value in node.items() if isinstance(node, Mapping) else enumerate(node):
        yield from _leaves(value, (*place, name))


def _dotted(place: Place) -> str:
    return ".".join(map(str, place))


def is_plain(value: Any, depth: int = 0) -> bool:
    """Return whether a value of a YAML is what it says: no text in it refers to another or is missing (``???``)."""
    if isinstance(value, dict):
        return depth < MOST_PLAIN and all(type(k) is str and is_plain(v, depth + 1) for k, v in value.items())
    if isinstance(value, list):
        return depth < MOST_PLAIN and all(is_plain(each, depth + 1) for each in value)
    return type(value) in PLAIN or (type(value) is str and "$" not in value and value != "???")


def is_closed(value: Any, depth: int = 0) -> bool:
    """Return whether every reference in a value leads to a place within it; `depth` is that of the value."""
    if isinstance(value, dict | list):
        inside = value.values() if isinstance(value, dict) else value
        return depth < MOST_PLAIN and all(is_closed(each, depth + 1) for each in inside)
    if not isinstance(value, str) or "$" not in value:
        return True
    found = FOLLOWS.fullmatch(value)
    return found is not None and len(found[1]) <= depth
