"""Settings as Python gives them: keys with two underscores for a dot, values that are what they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, TypeVar

from specsim.config.plain import python_value
from specsim.config.points import check_key
from specsim.config.python_value import PythonValue
from specsim.config.schema import GROUPS, TEXTS, declared
from specsim.errors import SpecsimError, represented
from specsim.files.checked_mapping import shown

Given = str | PythonValue
HANDED = ("scheduler", "trace", "profile", "slo")
"""Groups that an object may stand for."""

Function = TypeVar("Function", bound=Callable[..., Any])


def with_keys(function: Function) -> Function:
    """Put every key of a run into the signature, before ``**settings``: `help`, Jupyter and editors show them."""
    shown = signature(function)
    *own, rest = shown.parameters.values()
    chosen = [(group, None, "str | Path | None") for group in GROUPS]
    typed = [(each.name.replace(".", "__"), each.default, each.type) for each in declared()]
    keys = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, default, kind in (*chosen, *typed)
        if name not in shown.parameters
    ]
    function.__signature__ = shown.replace(parameters=[*own, *keys, rest])  # type: ignore[attr-defined]
    return function


def point_of(settings: Mapping[str, Any]) -> dict[str, Given]:
    """Return settings by their dotted keys.

    Raises
    ------
    SpecsimError
        One line for an unknown key, or a value that is no setting.
    """
    return {_key(name): _value(_key(name), value) for name, value in settings.items()}


def axes_of(axes: Mapping[str, Iterable[Any]], settings: Mapping[str, Any]) -> dict[str, list[Given]]:
    """Return the values of each key, one of each of `settings`, several of `axes`.

    Raises
    ------
    SpecsimError
        One line for an unknown key, a key given twice, or values that are none.
    """
    if not isinstance(axes, Mapping):
        raise SpecsimError(f"sweep: {shown(axes)}: expected values by key, as {{'rps': [2, 4]}}")
    values = {key: [value] for key, value in point_of(settings).items()}
    for name, several in axes.items():
        if not is_several(several):
            raise SpecsimError(f"sweep: {name}={several!r}: expected a list of values")
        if _key(name) in values:
            raise SpecsimError(f"{name}: given twice; expected it among the axes or the settings")
        values[_key(name)] = [_value(_key(name), value) for value in several]
    return values


def is_several(value: Any) -> bool:
    """Return whether a value holds several, in order; an array without a dimension holds none."""
    unordered = isinstance(value, str | bytes | Mapping | set | frozenset)
    return isinstance(value, Iterable) and not unordered and getattr(value, "ndim", 1) > 0


def _key(name: object) -> str:
    if not isinstance(name, str):
        raise SpecsimError(f"sweep: {shown(name)}: expected a key, as 'rps'")
    key = name.replace("__", ".")
    check_key(key)
    return key


def _value(key: str, value: Any) -> Given:
    """Return the text that names a group's file, and any other setting as the value that it is."""
    if key not in (*GROUPS, *TEXTS):
        return python_value(key, value)
    if value is None and key in TEXTS:
        return "null"
    if not isinstance(value, str | Path):
        raise SpecsimError(f"{key}: {represented(value)}; expected a name or a path")
    return str(value)
