"""Dataclasses from the mappings of files: fields are the keys, and their annotations say what a value may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from math import inf
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from specsim.errors import SpecsimError
from specsim.files.checked_mapping import CheckedMapping, expanded, is_number

T = TypeVar("T")


def typed(kind: type[T], node: CheckedMapping, base: T | None = None, /, **given: Any) -> T:
    """Return a `kind` of the values of a mapping; keys that it leaves out have those of `base`, or their defaults.

    Parameters
    ----------
    given : fields that are no keys of the file.

    Raises
    ------
    SpecsimError
        One line with source and key: an unknown or missing key, a value of another kind, or what `kind` refuses.
    """
    hints, known = get_type_hints(kind), [each for each in fields(cast(Any, kind)) if each.name not in given]
    lacking = [each.name for each in known if each.default is MISSING and each.default_factory is MISSING]
    node.only(lacking if base is None else (), (each.name for each in known))
    values = {name: value_of(hints[name], node, name) for name in node.values}
    try:
        return kind(**values, **given) if base is None else replace(cast(Any, base), **values, **given)
    except SpecsimError as error:
        node.refuse("", str(error))


def value_of(kind: Any, node: CheckedMapping, name: Any) -> Any:
    """Return the value of a key as an annotation has it: text, numbers, lists as tuples, mappings, dataclasses."""
    origin, parts, value = get_origin(kind), get_args(kind), node.values[name]
    if origin is UnionType:
        if value is None and NoneType in parts:
            return None
        some = [each for each in parts if each is not NoneType]
        if some == [int, float]:  # As it was written.
            return value if is_number(value) else node.fail(name, "a finite number")
        return value_of(some[0], node, name)
    if origin is tuple:
        return _items(parts, node, name)
    if origin is Literal:
        return node.choice(name, parts)
    if is_dataclass(kind):
        return typed(cast(type[Any], kind), node.child(name))
    if origin is not None and issubclass(origin, Mapping):
        held = node.child(name)
        return {each: value_of(parts[1], held, each) for each in held.values}
    if kind is float:
        return node.number(name, least=-inf)
    read: dict[Any, Any] = {str: node.text, bool: node.flag, int: lambda each: node.whole(each, 0)}
    return expanded(node.text(name)) if kind is Path else read[kind](name)


def _items(parts: tuple[Any, ...], node: CheckedMapping, name: Any) -> tuple[Any, ...]:
    """Return a list's values: of one kind, where ``...`` stands behind it, or each of its own."""
    value = node.values[name]
    if not isinstance(value, list) or (... not in parts and len(value) != len(parts)):
        node.fail(name, "a list" if ... in parts else f"a list of {len(parts)}")
    held = CheckedMapping(node.source, node.path(name), dict(enumerate(value)))
    kinds = parts[:1] * len(value) if ... in parts else parts
    return tuple(value_of(each, held, place) for place, each in enumerate(kinds))
