"""Settings as Python gives them: keys with two underscores for a dot, values that are what they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from specsim.config.plain import python_value
from specsim.config.points import GROUPS, TEXTS, check_key
from specsim.config.python_value import PythonValue
from specsim.errors import SpecsimError, represented
from specsim.files.checked_mapping import shown

Given = str | PythonValue
HANDED = ("scheduler", "trace", "profile", "slo")
"""Groups that an object may stand for, in `specsim.api.simulate` alone."""


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
        if isinstance(several, str | bytes | Mapping | set | frozenset) or not _iterable(several):
            raise SpecsimError(f"sweep: {name}={several!r}: expected a list of values")
        if _key(name) in values:
            raise SpecsimError(f"{name}: given twice; expected it among the axes or the settings")
        values[_key(name)] = [_value(_key(name), value) for value in several]
    return values


def _iterable(value: Any) -> bool:
    """Return whether a value holds several, in order; an array without a dimension holds none."""
    return isinstance(value, Iterable) and getattr(value, "ndim", 1) > 0


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
        alone = " (only simulate takes objects)" if key in HANDED else ""
        raise SpecsimError(f"{key}: {represented(value)}; expected a name or a path{alone}")
    return str(value)
