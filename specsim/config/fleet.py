"""Profiles that differ by replica: `replica_profiles` names one for each, and says how many replicas there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specsim.config.groups import names, names_for
from specsim.config.points import Point
from specsim.config.values import PythonValue, value_of
from specsim.errors import SpecsimError, nearest
from specsim.files.checked_mapping import expanded
from specsim.files.yaml_file import is_path, read_yaml, shipped

KEY = "replica_profiles"


def with_fleet(point: Point, held: Mapping[str, Any]) -> tuple[Point, tuple[str, ...]]:
    """Return the point and the profile of each replica, () where all have the run's.

    The first of them is the run's own `profile`, and their number is `replicas`.

    Raises
    ------
    SpecsimError
        When the value is no list of profiles, or another key says something else.
    """
    fleet = _named(point)
    if not fleet:
        return point, ()
    for key in ("profile", "replicas"):
        _check_same(point, held, key, fleet[0] if key == "profile" else str(len(fleet)))
    for key in point:
        if key.startswith("profile."):
            raise SpecsimError(f"{key}={point[key]}: {KEY} names each profile; expected a file with this value there")
    return {**point, "profile": fleet[0], "replicas": str(len(fleet))}, fleet


def profile_named(chosen: str, key: str) -> dict[str, Any]:
    """Return the keys of the profile that a `key` names, by its name or by path.

    Raises
    ------
    SpecsimError
        When there is none.
    """
    if is_path(chosen):
        return read_yaml(expanded(chosen, f"{key}="), group=f"{key}=")
    if chosen not in names("profile"):
        raise SpecsimError(f"{key}={chosen}: unknown{nearest(chosen, names_for(key))}")
    return read_yaml(shipped("conf") / "profile" / f"{chosen}.yaml")


def _named(point: Point) -> tuple[str, ...]:
    """Return the profiles that the point names, () where it names none."""
    text = point.get(KEY, "null")
    value = text.value if isinstance(text, PythonValue) else value_of(f"{KEY}={text}", text)
    if value is None:
        return ()
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        raise SpecsimError(f"{KEY}={text}: expected a list of profiles, one for each replica")
    return tuple(value)


def _check_same(point: Point, held: Mapping[str, Any], key: str, wanted: str) -> None:
    """Refuse a key that does not say what the list says of it."""
    if key in held or str(point.get(key, wanted)) != wanted:
        says = "its first profile" if key == "profile" else "one profile for each"
        raise SpecsimError(f"{key}={point[key]}: {KEY} says {wanted}, {says}; expected one of the two keys")
