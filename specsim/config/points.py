"""From words as typed, key=value, to the points that they span; no file of the user's is opened here."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from specsim.config.groups import choices_with, defaults, names, names_for
from specsim.config.instead import for_word, refuse_key
from specsim.config.python_value import PythonValue
from specsim.config.schema import GROUPS, TEXTS, TYPED, known_keys
from specsim.config.values import several, several_names, unquoted
from specsim.errors import SpecsimError, nearest
from specsim.files.paths import is_path

Point = Mapping[str, str | PythonValue]
"""Key to value: text as typed, or a value from Python. Groups, `belief` and `out` are always text."""
Typed = TypeVar("Typed", str, str | PythonValue)


def points(words: Sequence[str], *, sweep: bool) -> list[dict[str, str]]:
    """Return the points that the words span, one without commas; the last word runs fastest.

    Raises
    ------
    SpecsimError
        For a word that is no ``key=value``, an unknown key, a key given twice, and several values when `sweep` is
        False.
    """
    axes: dict[str, list[str]] = {}
    for word in words:
        key, value = _setting(word)
        if key in axes:
            raise SpecsimError(f"{key}: given twice; expected one value, or -m {key}=a,b for a sweep")
        axes[key] = _values(key, value, sweep)
    return product(axes)


def check_typed(keys: Iterable[str], where: str) -> None:
    """Refuse keys of a file that only the command line and Python set; `where` names the file.

    Raises
    ------
    SpecsimError
        One line.
    """
    for key in keys:
        if key in TYPED:
            raise SpecsimError(f"{where}: {key}: no file sets it; expected {key}= on the command line or in Python")


def _setting(word: str) -> tuple[str, str]:
    """Return key and value of a word; ``+`` and ``++`` mean nothing more, and spaces around ``=`` nothing."""
    refuse_key(word)
    key, equals, value = word.partition("=")
    key, value = key.strip().removeprefix("+").removeprefix("+"), value.strip()
    if not equals or not key:
        raise SpecsimError(f"{word!r} is no setting; expected key=value in one word")
    check_key(key)
    if not value:
        hint = nearest("", names(key)) if key in GROUPS else "; expected one, or null for none"
        raise SpecsimError(f"{key}=: no value{hint}")
    return key, value


def product(axes: Mapping[str, Sequence[Typed]]) -> list[dict[str, Typed]]:
    """Return every combination of the values of each key, the last key fastest.

    Raises
    ------
    SpecsimError
        When a key has no value, or one value twice.
    """
    for key, values in axes.items():
        meant = [_meant(str(value)) for value in values]
        if len(set(meant)) < len(meant):
            twice = next(value for value, each in zip(values, meant, strict=True) if meant.count(each) > 1)
            raise SpecsimError(f"{key}={twice}: stands twice in the sweep")
        if not values:
            raise SpecsimError(f"{key}: expected at least one value")
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _meant(value: str) -> str | float:
    """Return the number that a value is, so that 2 and 2.0 are one."""
    try:
        return float(value)
    except ValueError:
        return value


def _values(key: str, value: str, sweep: bool) -> list[str]:
    setting = f"{key}={value}"
    if key == "out" and ((sweep and "," in value) or value[:1] in ("[", "{") or value in ("true", "false")):
        raise SpecsimError(f"{setting}: expected one folder")
    if key == "out":
        return [unquoted(value)]
    if key in GROUPS or key in TEXTS:
        split = sweep or not is_path(value)
        found = several_names(setting, value, lambda: names_for(key), split=split)
    else:
        found = several(setting, value)
    if len(found) > 1 and not sweep:
        raise SpecsimError(f"{setting} holds {len(found)} values; expected one, or -m for a sweep")
    return found


def check_key(key: str) -> None:
    """Refuse a key that no run has.

    Raises
    ------
    SpecsimError
        One line with the nearest valid key.
    """
    known = known_keys()
    head, *rest = key.split(".")
    if head not in known:
        raise SpecsimError(f"{key}: unknown key{for_word(key) or _below_a_group(key) or nearest(head, known, 0.65)}")
    if head not in GROUPS and (rest or known[head]) and rest not in [[each] for each in known[head]]:
        raise SpecsimError(f"{key}: unknown key{nearest('.'.join(rest), known[head])}")


def _below_a_group(key: str) -> str:
    """Return the hint at a key of that name in the file of a group, with a choice that has it; empty where none has."""
    for group, choice in choices_with(key):
        beside = "" if choice == defaults()[group] else f" with {group}={choice}"
        return f"; did you mean {f'{group}.{key}'!r}{beside}?"
    return ""
