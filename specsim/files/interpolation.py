"""Where a value of a YAML really stands: a key that reads ``${..other}`` only repeats another."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from specsim.errors import SpecsimError

FOLLOWS = re.compile(r"\$\{(\.+)([\w.]+)\}")
MOST_STEPS = 16
MOST_REPEATED = 10_000
"""Values that the references of one file may stand for."""

Place = tuple[Any, ...]
"""Keys, and places in lists, from the top of a file down to a value."""


def check_references(mapping: Mapping[str, Any]) -> None:
    """Refuse every ``${...}`` of a file but one that alone repeats a value of the same file, as ``${..key}`` does.

    Nothing else is ever resolved: not the environment, no key of the run, no text around a reference.

    Raises
    ------
    SpecsimError
        One line that begins with the dotted key; also where references lead in a circle, or stand for too much.
    """
    for count, place in enumerate(_repeated(mapping, mapping, (), 0)):
        if count >= MOST_REPEATED:
            said = f"references stand for over {MOST_REPEATED:,} values; expected fewer"
            raise SpecsimError(f"{_dotted(place)}: {said}")


def _repeated(mapping: Mapping[str, Any], node: Any, place: Place, steps: int) -> Iterator[Place]:
    """Yield the place of each reference below a node, and of each value that a reference stands for."""
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
    """Return what a reference at a place names, and the place of that."""
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
    """Yield what holds nothing below it, with its place."""
    if not isinstance(node, Mapping | list) or not node:
        yield place, node
        return
    for name, value in node.items() if isinstance(node, Mapping) else enumerate(node):
        yield from _leaves(value, (*place, name))


def _dotted(place: Place) -> str:
    return ".".join(map(str, place))


def place_of(mapping: Mapping[str, Any], key: str) -> str:
    """Return the dotted key at which the value of `key` is written, `key` itself where it repeats none.

    `mapping` is a YAML as it is read, nothing resolved; only relative keys (``${.sibling}``, ``${..above}``) count.
    """
    for _ in range(MOST_STEPS):
        other = _next(mapping, key)
        if other is None:
            return key
        key = other
    return key


def value_at(mapping: Mapping[str, Any], key: str) -> Any:
    """Return the value of a dotted key, what it repeats included; KeyError where there is none."""
    value: Any = mapping
    for name in place_of(mapping, key).split("."):
        if not isinstance(value, Mapping):
            raise KeyError(key)
        value = value[name]
    return value


def _next(mapping: Mapping[str, Any], key: str) -> str | None:
    """Return the key that the first repeating part of `key` names, with the rest of `key` behind it; None without."""
    names, node = key.split("."), mapping
    for depth, name in enumerate(names):
        value = node.get(name)
        found = FOLLOWS.fullmatch(value) if isinstance(value, str) else None
        if found:
            above = names[: depth + 1 - len(found[1])]
            return ".".join([*above, found[2], *names[depth + 1 :]])
        if not isinstance(value, Mapping):
            return None
        node = value
    return None
