"""Arguments held against a signature: each key is a parameter, each value of the kind that its annotation names."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

from specsim.errors import SpecsimError, nearest


def check_arguments(target: Any, arguments: Mapping[str, Any], where: str, *, complete: bool) -> None:
    """Refuse an unknown key, a value of another kind than its annotation and, if `complete`, a missing key.

    Raises
    ------
    SpecsimError
        One line that begins with `where` and names the key.
    """
    parameters = parameters_of(target)
    for key in arguments:
        if key not in parameters:
            raise SpecsimError(f"{where}: unknown key {key!r}{nearest(key, parameters)}")
    missing = [name for name, each in parameters.items() if each.default is inspect.Parameter.empty]
    for name in missing if complete else ():
        if name not in arguments:
            raise SpecsimError(f"{where}: missing key {name!r}")
    hints = parameter_types(target)
    for key, value in arguments.items():
        _check_type(hints.get(key), value, f"{where}: {key}")


@lru_cache(maxsize=256)
def parameters_of(target: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class or function by name."""
    return inspect.signature(target).parameters


def parameter_types(target: Any) -> dict[str, Any]:
    """Return the annotations of a class's or function's parameters; inherited fields as their own modules read them."""
    return dict(_types_of_class(target)) if isinstance(target, type) else typing.get_type_hints(target)


@lru_cache(maxsize=256)
def _types_of_class(target: Any) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for base in reversed(target.__mro__):
        known |= vars(sys.modules[base.__module__])
    return typing.get_type_hints(target.__init__, known)


def lacks(made: object, protocol: type) -> str | None:
    """Return the first public member of a protocol that an object has not, None where it has all."""
    absent = object()
    members = (name for name in _members(protocol) if inspect.getattr_static(made, name, absent) is absent)
    return next(members, None)


def _members(protocol: type) -> list[str]:
    return [name for name in vars(protocol) if name == "__call__" or not name.startswith("_")]


def _check_type(hint: Any, value: Any, where: str) -> None:
    """Refuse a value of another kind than the annotation names; nothing is ever coerced."""
    if typing.get_origin(hint) is types.UnionType:
        if value is None and type(None) in typing.get_args(hint):
            return
        if isinstance(
            value, tuple(each for each in typing.get_args(hint) if inspect.isclass(each) and each not in _KINDS)
        ):
            return
        hint = next(each for each in typing.get_args(hint) if each is not type(None))
    _check_kind(hint, value, where)


def _check_kind(hint: Any, value: Any, where: str) -> None:
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise SpecsimError(f"{where}: {value!r} is unknown{nearest(str(value), map(str, choices))}")
    elif origin is Callable:
        _check_callable(typing.get_args(hint)[0], value, where)
    elif getattr(hint, "_is_protocol", False):
        if not all(hasattr(value, name) for name in _members(hint)):
            raise SpecsimError(f"{where}: {value!r} is no {hint.__name__}; expected a _target_ and its arguments")
    elif hint in _KINDS:
        kinds, expected = _KINDS[hint]
        if not isinstance(value, kinds) or (isinstance(value, bool) and hint is not bool):
            raise SpecsimError(f"{where}: {value!r} is not {expected}")
        if isinstance(value, float) and not isfinite(value):
            raise SpecsimError(f"{where}: {value!r} is not {expected}")


_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "a name"),
    bool: ((bool,), "true or false"),
    Path: ((str, Path), "the name of a file"),
}


def _check_callable(arguments: Any, value: Any, where: str) -> None:
    if not callable(value):
        raise SpecsimError(f"{where}: {value!r} is no function; expected a _target_ and its arguments")
    try:
        inspect.signature(value).bind(*arguments)
    except TypeError:
        raise SpecsimError(
            f"{where}: _target_ names a function that does not take {len(arguments)} arguments"
        ) from None
