"""Where a value of a YAML really stands: a key that reads ``${..other}`` only repeats another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

FOLLOWS = re.compile(r"\$\{(\.+)([\w.]+)\}")
MOST_STEPS = 16


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
