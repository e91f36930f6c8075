"""When two resolved configurations are the same: their settings by dotted key, and a hash of them."""

from __future__ import annotations

import json
import marshal
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

from specsim.config.groups import LABELS, YAML_SUFFIXES
from specsim.config.schema import UNALTERING

Value = str | int | float | bool
AS_IT_IS = frozenset((str, int, bool))
MARSHAL_VERSION = 2
"""Of bytes that depend on values alone, and tell 1 from 1.0 and from True; later ones depend on who shares what."""
HASH_CHARACTERS = 12
NOT_OF_THE_RUN = ("followed", *UNALTERING)
"""Keys of a configuration that change no number: what was suggested, and those that the schema names."""


def settings_of(config: Mapping[str, Any]) -> dict[str, Value]:
    """Return the settings of a run by dotted key; null keys are left out, and keys that change no number.

    A group's own key (``scheduler``) holds its choice, ``cost_model`` the name of the profile. Lists are JSON text.
    """
    cost_model = config.get("cost_model") or {}
    found = flat({**config["choices"], "cost_model": cost_model.get("name")})
    single = {}
    cost_model = _unlabelled("profile", cost_model.get("name"), cost_model)
    for key, value in config.items():
        if key in ("choices", "cost_model", *NOT_OF_THE_RUN):
            continue
        if type(value) is dict:
            if key == "profiles":
                value = {name: _unlabelled("profile", name, each) for name, each in value.items()}
            found |= _part(key, _unlabelled(key, config["choices"].get(key), value))
        else:
            single[key] = value
    return found | flat({**single, "cost_model": cost_model or None})


def _unlabelled(group: str, chosen: object, values: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a user's own file without `LABELS`; those of a shipped one stay, as do identities."""
    own = isinstance(chosen, str) and chosen.endswith(YAML_SUFFIXES)
    return {key: each for key, each in values.items() if key not in LABELS[group]} if own else values


def _part(key: str, value: dict[str, Any]) -> dict[str, Value]:
    """Return `flat` of a mapping below its key, kept: the points of a sweep repeat most of theirs."""
    try:
        return _kept_part(key, marshal.dumps(value, MARSHAL_VERSION))
    except ValueError:
        return flat({key: value})


@lru_cache(maxsize=1024)
def _kept_part(key: str, value: bytes) -> dict[str, Value]:
    return flat({key: marshal.loads(value)})


def identity(settings: Mapping[str, Value]) -> str:
    """Return what two runs share when all their settings are equal: 12 hexadecimal characters; 2 equals 2.0."""
    text = json.dumps(sorted(settings.items()), ensure_ascii=False)
    return sha256(text.encode()).hexdigest()[:HASH_CHARACTERS]


def shared_identity(settings: dict[str, Any]) -> str:
    """Return `identity`, kept for the next run with these settings."""
    return _kept_identity(marshal.dumps(settings, MARSHAL_VERSION))


@lru_cache(maxsize=256)
def _kept_identity(settings: bytes) -> str:
    return identity(marshal.loads(settings))


def flat(mapping: Mapping[str, Any]) -> dict[str, Value]:
    """Return a nested mapping by dotted key, without what is null."""
    found: dict[str, Value] = {}
    _flatten("", mapping, found)
    return found


def _flatten(prefix: str, mapping: Mapping[str, Any], found: dict[str, Value]) -> None:
    for key, value in mapping.items():
        kind = type(value)
        if kind in AS_IT_IS:
            found[f"{prefix}{key}"] = value
        elif (kind is dict or isinstance(value, Mapping)) and value:
            _flatten(f"{prefix}{key}.", value, found)
        elif value is not None:
            whole = _whole(value)
            text = json.dumps(whole, ensure_ascii=False, sort_keys=True) if isinstance(whole, list | dict) else whole
            found[f"{prefix}{key}"] = text if isinstance(text, Value) else str(text)


def _whole(value: Any) -> Any:
    """Return a value whose whole floats are integers, as equality has it."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {str(key): _whole(each) for key, each in value.items()}
    return [_whole(each) for each in value] if isinstance(value, list | tuple) else value
