"""When two resolved configurations are the same: their settings by dotted key, and a hash of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

Value = str | int | float | bool
AS_IT_IS = frozenset((str, int, bool))
HASH_CHARACTERS = 12
NOT_OF_THE_RUN = ("out", "followed", "step_limit_s", "kernel")
"""Keys that change no number: where a run is kept, what was suggested, how long a step may take, what computes it."""


def settings_of(config: Mapping[str, Any]) -> dict[str, Value]:
    """Return the settings of a run by dotted key; what is null is left out, and so is what changes no number.

    A group's own key (``scheduler``) holds its choice, ``belief`` the name of the profile. Lists are JSON text.
    """
    return _settings(config, {})


def identities(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the `identity` of the settings of each; what several hold as one object is flattened once."""
    flattened: dict[int, dict[str, Value]] = {}
    return [identity(_settings(config, flattened)) for config in configs]


def _settings(config: Mapping[str, Any], flattened: dict[int, dict[str, Value]]) -> dict[str, Value]:
    """Return `settings_of`; `flattened` has what was flattened before, by the identity of an object that lives on."""
    belief = config.get("belief") or {}
    found = flat({**config["choices"], "belief": belief.get("name")})
    for key, value in config.items():
        if key in ("choices", "belief") or key in NOT_OF_THE_RUN:
            continue
        if type(value) is not dict:
            found |= flat({key: value})
        else:
            if id(value) not in flattened:
                flattened[id(value)] = flat({key: value})
            found |= flattened[id(value)]
    return found | flat({"belief": belief or None})


def identity(settings: Mapping[str, Value]) -> str:
    """Return what two runs share when all their settings are equal: 12 hexadecimal characters; 2 equals 2.0."""
    text = json.dumps(sorted(settings.items()), ensure_ascii=False)
    return sha256(text.encode()).hexdigest()[:HASH_CHARACTERS]


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
        elif kind is float:
            found[f"{prefix}{key}"] = _number(value)
        elif (kind is dict or isinstance(value, Mapping)) and value:
            _flatten(f"{prefix}{key}.", value, found)
        elif value is not None:
            found[f"{prefix}{key}"] = _plain(value)


def _plain(value: Any) -> Value:
    """Return a list or an empty mapping as text."""
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list | tuple | Mapping):
        return json.dumps(_whole(value), ensure_ascii=False, sort_keys=True)
    return value if isinstance(value, Value) else str(value)


def _whole(value: Any) -> Any:
    if type(value) in AS_IT_IS:
        return value
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        return {str(key): _whole(each) for key, each in value.items()}
    return [_whole(each) for each in value] if isinstance(value, list | tuple) else value


def _number(value: float) -> int | float:
    """Return a whole float as an integer, as equality has it."""
    return int(value) if value.is_integer() else value
