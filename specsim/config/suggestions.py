"""Suggestions: a chosen file brings settings of other groups along, unless the user chooses otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specsim.config.groups import chosen_by_default, file_of, names
from specsim.config.points import Point
from specsim.config.schema import GROUPS
from specsim.config.values import PythonValue
from specsim.errors import SpecsimError, nearest
from specsim.files.checked_mapping import expanded
from specsim.files.yaml_file import is_path, peek_yaml

SUGGESTING = ("scheduler", "drafter", "profile", "trace")
"""Groups whose files may hold `suggests`.

Where several suggest one key the first wins: a scheduler names the drafter that it is made for, a drafter the
acceptance that was measured with it, a profile the acceptance of its own draft model, and a trace the number of servers
that its bursts need.
"""
REPLICAS = "replicas"
SERVERS = (REPLICAS, "concurrency")
"""Keys that go before a suggested number of servers: clients that wait for their answers send no bursts."""


def with_suggestions(
    point: Point, *, servers: bool = True
) -> tuple[dict[str, str | PythonValue], dict[str, list[str]]]:
    """Return the point with each group's choice, the suggested ones first, and by file what they change.

    `point` holds groups and keys below them; `servers`: whether a number of servers may be suggested.

    A name is left out where the point sets a key that its file does not have.
    """
    told, full = dict(point), {**chosen_by_default(), **point}
    followed: dict[str, list[str]] = {}
    for group in SUGGESTING:
        chosen = str(full[group])
        for key, value in _suggests(group, chosen, str(full["scheduler"])).items():
            if _is_set(key, told) or (key in GROUPS and not _holds(key, value, told)):
                continue
            if key == REPLICAS and not servers:
                continue
            if _stands(key, full) != value:
                followed.setdefault(f"{group}={chosen}", []).append(f"{key}={value}")
            told[key] = full[key] = value
    return full, followed


def _is_set(key: str, point: Point) -> bool:
    """Return whether the point sets a key, or a mapping above it in its group."""
    return key in point or any("." in each and key.startswith(f"{each}.") for each in point)


def _stands(key: str, full: Point) -> str | None:
    """Return what a key is without a suggestion for it, None where that is unknown; `full` has each group's choice."""
    group, _, below = key.partition(".")
    if not below:
        return "1" if key == REPLICAS else str(full[group])
    path = file_of(group, str(full[group]))
    return None if path is None else _word_at(peek_yaml(path), below)


def _suggests(group: str, chosen: str, scheduler: str) -> dict[str, str]:
    """Return the suggestions in a group's file as words; a path in it is relative to that file."""
    path = file_of(group, chosen)
    if path is None:
        return {}
    said, source = peek_yaml(path).get("suggests") or {}, f"{group}={chosen}: suggests"
    if not isinstance(said, Mapping):
        raise SpecsimError(f"{source}: expected settings by key")
    words: dict[str, str] = {}
    for key, value in said.items():
        head, word = str(key).partition(".")[0], str(PythonValue(value))
        if isinstance(value, Mapping):
            words |= _constants(str(key), value, source, scheduler)
            continue
        if head not in GROUPS and (group, key) != ("trace", REPLICAS):
            raise SpecsimError(f"{source}: {key!r} is no group or key of one")
        if key in GROUPS and is_path(word):
            word = str(path.parent / expanded(word))
        elif key in GROUPS and word not in names(head):
            raise SpecsimError(f"{source}: {key}={word}: unknown{nearest(word, names(head))}")
        words[str(key)] = word
    return words


def _constants(family: str, constants: Mapping[Any, Any], source: str, scheduler: str) -> dict[str, str]:
    """Return what is suggested for a `family` of schedulers as settings of the chosen one, {} where it is no member.

    Members are shipped schedulers whose file says so: every value in a file by path is the user's own.
    """
    first = _shipped_scheduler(family)
    if first.get("family") != family:
        raise SpecsimError(f"{source}: {family!r} is no family of schedulers{nearest(family, names('scheduler'))}")
    for key in constants:
        if _word_at(first, str(key)) is None:
            hint = nearest(str(key), first)
            raise SpecsimError(f"{source}: {family}.{key}: scheduler={family} has no such key{hint}")
    mine = _shipped_scheduler(scheduler)
    if mine.get("family") != family:
        return {}
    mine_too = {str(key): value for key, value in constants.items() if _word_at(mine, str(key)) is not None}
    return {f"scheduler.{key}": str(PythonValue(value)) for key, value in mine_too.items()}


def _shipped_scheduler(name: str) -> Mapping[str, Any]:
    path = None if is_path(name) else file_of("scheduler", name)
    return {} if path is None else peek_yaml(path)


def _word_at(mapping: Mapping[str, Any], key: str) -> str | None:
    """Return the value of a dotted key as it would be typed, None if there is none."""
    value: Any = mapping
    for name in key.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
    return str(PythonValue(value))


def _holds(group: str, chosen: str, point: Point) -> bool:
    """Return whether a group's file has every key that the point sets below the group; a mix may have more."""
    path = file_of(group, chosen)
    below = {key.split(".")[1] for key in point if key.startswith(f"{group}.")}
    return not below or group == "slo" or path is None or below <= set(peek_yaml(path))
