"""From a point to a plain, resolved configuration: the files of the choices, what they suggest, and the settings."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from specsim.acceptance.curves import CONFIDENCE, KEYS
from specsim.config.groups import (
    DATA_SUFFIXES,
    FORMS,
    OF_DATA,
    SPACE,
    TEMPLATE,
    YAML_SUFFIXES,
    chosen_by_default,
    file_of,
    holds_data,
    names,
    names_for,
    rates_typed,
    shipped_names,
)
from specsim.config.points import Point, check_typed, put
from specsim.config.schema import GROUPS, TEXTS, defaults
from specsim.config.synonyms import for_trace, for_word
from specsim.config.values import PythonValue, value_of
from specsim.errors import SpecsimError, nearest
from specsim.files.checked_mapping import copied, expanded
from specsim.files.yaml_file import UNFOLLOWED, is_path, leaves, peek_yaml, read_yaml, shipped
from specsim.registry import ENTRY_POINTS, TARGET, installed, plugins_used

FLEET = "replica_profiles"


def compose(point: Point, objects: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """Return the configuration of one point as plain values, every key present.

    `choices` names each group's file and `followed` the suggestions that were taken up. Files named by path are read
    in place of their group. `profiles` holds by name those of `replica_profiles` that are not the first. `objects`
    holds by group what stands there for an object that Python handed in; the point names it.

    Raises
    ------
    SpecsimError
        One line naming the key and value, what was expected and the nearest valid name.
    """
    held = objects or {}
    fleet = _fleet(point[FLEET]) if FLEET in point else ()
    if fleet:
        point = _with_fleet(point, held, fleet)
    for key in (*GROUPS, "cost_model"):
        _check_path(key, str(point.get(key, "")))
    of_groups = {key: text for key, text in point.items() if key.partition(".")[0] in GROUPS}
    of_run = {key: text for key, text in point.items() if key not in of_groups}
    of_groups, followed = with_suggestions(of_groups, servers=not any(key in of_run for key in SERVERS))
    chosen = {group: str(of_groups[group]) for group in GROUPS}
    settings = {key: text for key, text in (of_run | of_groups).items() if key not in (*GROUPS, *TEXTS)}
    for key, text in settings.items():
        if "${" in str(text):
            raise SpecsimError(f"{key}={text}: {UNFOLLOWED}")
    changed = {key.partition(".")[0] for key in settings}
    tree = defaults()
    for group, name in chosen.items():
        keys = held[group] if group in held else _keys_of(group, name)
        # Other points share what this one leaves alone.
        tree[group] = copied(keys) if group in changed or group in held else keys
    put(tree, settings, chosen)
    for group, name in chosen.items():
        if group in changed or name not in shipped_names(group):
            _check_whole(group, name, tree[group])
    resolved = {**tree, "choices": chosen, "followed": followed}
    out, cost_model = _text(point, "out"), _text(point, "cost_model")
    resolved["out"] = None if out is None else str(expanded(out, "out="))
    whose = resolved["profile"], held, fleet
    resolved["cost_model"] = None if cost_model is None else _cost_model(cost_model, *whose)
    if fleet:
        resolved["profiles"] = {name: _keys_of("profile", name, FLEET) for name in fleet[1:] if name != fleet[0]}
    return with_its_plugins(resolved, resolved["plugins"])


def with_its_plugins(config: dict[str, Any], plugins: Any) -> dict[str, Any]:
    """Return a configuration with those of the `plugins`, as typed, that its run rests on."""
    plugins, observers = _listed(plugins), _listed(config["observers"])
    if plugins and isinstance(plugins, list) and all(isinstance(each, str) for each in plugins):
        seeing = {str(each): {TARGET: each} for each in observers} if isinstance(observers, list) else {}
        plugins = plugins_used({each: config[each] for each in ENTRY_POINTS} | seeing, plugins)
    return {**config, "plugins": plugins}


def typed_plugins(point: Point) -> Any:
    """Return the plug-ins that a point names, whether its run rests on them or not."""
    return _listed(_value("plugins", point["plugins"])) if "plugins" in point else []


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _value(key: str, text: str | PythonValue) -> Any:
    return text.value if isinstance(text, PythonValue) else value_of(f"{key}={text}", text)


def _fleet(text: str | PythonValue) -> tuple[str, ...]:
    """Return the profile of each replica, () where all have the run's."""
    value = _value(FLEET, text)
    if value is None:
        return ()
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        raise SpecsimError(f"{FLEET}={text}: expected a list of profiles, one for each replica")
    return tuple(value)


def _with_fleet(point: Point, held: Mapping[str, Any], fleet: Sequence[str]) -> Point:
    """Return the point whose own `profile` is the first of a fleet, and whose `replicas` is their number."""
    told = {"profile": (fleet[0], "its first profile"), "replicas": (str(len(fleet)), "one profile for each")}
    for key, (wanted, says) in told.items():
        if key in held or str(point.get(key, wanted)) != wanted:
            raise SpecsimError(f"{key}={point[key]}: {FLEET} says {wanted}, {says}; expected one of the two keys")
    for key in point:
        if key.startswith("profile."):
            raise SpecsimError(f"{key}={point[key]}: {FLEET} names each profile; expected a file with this value there")
    return {**point, **{key: wanted for key, (wanted, _) in told.items()}}


def _check_path(key: str, chosen: str) -> None:
    """Refuse an address, the home folder of an unknown user, and a missing file whose name is that of a choice."""
    if not is_path(chosen) or rates_typed(key, chosen) is not None:
        return
    path = expanded(chosen, f"{key}=")
    name = path.stem
    if name in names_for(key) and not path.exists():
        raise SpecsimError(f"{key}={chosen}: no such file; did you mean {key}={name}?")


def _text(point: Point, key: str) -> str | None:
    return None if str(point.get(key, "null")) == "null" else str(point[key])


def _cost_model(
    chosen: str, profile: Mapping[str, Any], held: Mapping[str, Any], fleet: Sequence[str]
) -> dict[str, Any]:
    """Return the cost model of schedulers: a profile of its own, or the run's in another form.

    Of a `fleet` each replica's own profile gets that form: no key but the form is returned.
    """
    if chosen in FORMS:
        if "profile" in held:
            raise SpecsimError(f"cost_model={chosen}: profile is an object; expected the name or the file of a profile")
        return {"form": chosen} if fleet else {**profile, "form": chosen}
    return _keys_of("profile", chosen, "cost_model")


@cache
def _shipped_keys(group: str, name: str) -> dict[str, Any]:
    return _open(group, peek_yaml(shipped("conf") / group / f"{name}.yaml"))


def _open(group: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a file that a run reads; confidences may be set, whatever the file says of them."""
    keys = {name: value for name, value in found.items() if (group, name) != ("scheduler", SPACE)}
    confidence = keys.get(CONFIDENCE) or {}
    if group == "acceptance" and isinstance(confidence, Mapping):
        keys[CONFIDENCE] = {**dict.fromkeys(KEYS), **confidence}
    return keys


def _keys_of(group: str, chosen: str, key: str = "") -> dict[str, Any]:
    """Return the keys of a group's choice: its file, what another package installs, or what stands for bare data.

    They are to be looked at and not changed. `key` chose it, by default the group's own.
    """
    key = key or group
    rates = rates_typed(group, chosen)
    if rates is not None:
        said = {"cumulative" if isinstance(rates, list) else "conditional": rates}
        body = said | dict.fromkeys(("concentration", "spread", "tail", "match"))
        any_pair = {"target": "any", "draft": "any"}
        found = {"kind": "positions", "pair": any_pair, "width": 4, "levels": 16, "categories": {"default": body}}
        return _open(group, found)
    if holds_data(group, chosen):
        if group == "trace":
            return {**peek_yaml(shipped("conf") / group / TEMPLATE), "path": chosen}
        return _open(group, {"kind": "runs", "path": Path(chosen).name, **dict.fromkeys(("k", "field", "spread"))})
    if chosen.endswith(".py"):
        raise SpecsimError(f"{key}={chosen}: a module, which plugins= takes; expected a YAML file that names its class")
    if is_path(chosen):
        own = read_yaml(expanded(chosen, f"{key}="), group=f"{key}=")
        check_typed(own, f"{key}={chosen}")
        return _open(group, own)
    if chosen in shipped_names(group):
        return _shipped_keys(group, chosen)
    if chosen in installed(group):
        from specsim.registry import defaults_of

        return _open(group, defaults_of(installed(group)[chosen], group))
    known = names_for(key)
    alike = nearest(chosen, (each for each in known if each.split("_")[0] == chosen.split("_")[0]), 0.6)
    close = alike if "did you mean" in alike else nearest(chosen, known)
    raise SpecsimError(f"{key}={chosen}: unknown{_hint(group, chosen) or close}")


def _hint(group: str, chosen: str) -> str:
    """Return what may be meant by a name that a group lacks: a file, its newest version, another's word or choice."""
    files = (f"./{chosen}{suffix}" for suffix in (*YAML_SUFFIXES, *(DATA_SUFFIXES if group in OF_DATA else ())))
    if file := next(filter(os.path.isfile, files), None):
        return f"; did you mean {file!r}?"
    versions = {name: name.removeprefix(f"{chosen}_") for name in names(group) if name.startswith(f"{chosen}_")}
    numbered = {
        name: [*map(int, each.split("_"))] for name, each in versions.items() if each.replace("_", "").isdigit()
    }
    if numbered or len(versions) == 1:
        return f"; did you mean {max(numbered or versions, key=lambda name: numbered.get(name, []))!r}?"
    known = for_trace(chosen) if group == "trace" else for_word(f"{group}.{chosen}")
    other = (each for each in (group, "drafter", *GROUPS) if chosen.lower() in names(each))
    return known or next((f"; expected {each}={chosen.lower()}" for each in other), "")


def _check_whole(group: str, chosen: str, keys: Mapping[str, Any]) -> None:
    """Refuse the keys of a choice that have a gap (``???``)."""
    for place, value in leaves(keys):
        if value == "???":
            raise SpecsimError(f"{group}={chosen}: {'.'.join(map(str, (group, *place)))}: missing; expected a value")


SUGGESTING = ("scheduler", "drafter", "profile", "trace")
"""Groups whose files may hold `suggests`.

Where several suggest one key the first wins: a scheduler names the drafter that it is made for, a drafter the
acceptance that was measured with it, a profile the acceptance of its own draft model, and a trace the number of servers
that its bursts need. A profile's acceptance of the very kind of head goes before that of the drafter's file.
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
            if (key == REPLICAS and not servers) or (group == "drafter" and key == "acceptance" and _of_head(full)):
                continue
            if _stands(key, full) != value:
                followed.setdefault(f"{group}={chosen}", []).append(f"{key}={value}")
            told[key] = full[key] = value
    return full, followed


def _of_head(full: Point) -> bool:
    """Return whether the profile brings an acceptance of heads of the drafter's kind, of its target or one near it."""
    brought = _suggests("profile", str(full["profile"]), str(full["scheduler"])).get("acceptance")
    files = file_of("drafter", str(full["drafter"])), None if brought is None else file_of("acceptance", brought)
    drafter, acceptance = (None if path is None else peek_yaml(path) for path in files)
    if drafter is None or acceptance is None or not isinstance(pair := acceptance.get("pair"), Mapping):
        return False
    return bool(pair.get("draft") == f"{drafter.get('kind')} head")


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
