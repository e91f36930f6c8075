"""From a point to a plain, resolved configuration: the files of the choices, and the settings put into them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from specsim.acceptance.reported import CONFIDENCE, KEYS
from specsim.config.groups import FORMS, TEMPLATE, holds_data, names_for, rates_typed, shipped_names
from specsim.config.points import Point, check_typed, put
from specsim.config.schema import GROUPS, TEXTS, defaults
from specsim.config.space import SPACE
from specsim.config.suggestions import SERVERS, with_suggestions
from specsim.config.synonyms import for_trace
from specsim.config.values import PythonValue, value_of
from specsim.errors import SpecsimError, nearest
from specsim.files.checked_mapping import copied, expanded
from specsim.files.yaml_file import is_closed, is_path, is_plain, peek_yaml, read_yaml, shipped
from specsim.registry.plugins import installed

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
    changed = {key.partition(".")[0] for key in settings}
    tree = defaults()
    for group, name in chosen.items():
        keys = held[group] if group in held else _keys_of(group, name)
        # Other points share what this one leaves alone.
        tree[group] = copied(keys) if group in changed or group in held else keys
    put(tree, settings, chosen)
    resolved = {**_resolved(tree, chosen), "choices": chosen, "followed": followed}
    if holds_data("trace", chosen["trace"]) and "trace.path" not in of_groups:
        # A shell may have put it there for a `*`: what a file is called is never resolved.
        resolved["trace"]["path"] = chosen["trace"]
    out, cost_model = _text(point, "out"), _text(point, "cost_model")
    resolved["out"] = None if out is None else str(expanded(out, "out="))
    whose = resolved["profile"], held, fleet
    resolved["cost_model"] = None if cost_model is None else _cost_model(cost_model, *whose)
    if fleet:
        resolved["profiles"] = {name: _keys_of("profile", name, FLEET) for name in fleet[1:] if name != fleet[0]}
    return resolved


def _fleet(text: str | PythonValue) -> tuple[str, ...]:
    """Return the profile of each replica, () where all have the run's."""
    value = text.value if isinstance(text, PythonValue) else value_of(f"{FLEET}={text}", text)
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
    if is_path(chosen):
        own = read_yaml(expanded(chosen, f"{key}="), group=f"{key}=")
        check_typed(own, f"{key}={chosen}")
        return _open(group, own)
    if chosen in shipped_names(group):
        return _shipped_keys(group, chosen)
    if chosen in installed(group):
        from specsim.registry.build import defaults_of

        return _open(group, defaults_of(installed(group)[chosen], group))
    hint = for_trace(chosen) if group == "trace" else ""
    raise SpecsimError(f"{key}={chosen}: unknown{hint or nearest(chosen, names_for(key))}")


def _resolved(tree: dict[str, Any], chosen: Mapping[str, str]) -> dict[str, Any]:
    """Return the tree with every reference followed; OmegaConf, which takes long, gets as little of it as it can."""
    referring = {key: value for key, value in tree.items() if not is_plain(value)}
    if not referring:
        return tree
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        part = referring if all(map(is_closed, referring.values())) else tree
        plain = OmegaConf.to_container(OmegaConf.create(part), resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        key = str(error.full_key or "")
        group = key.partition(".")[0]
        where = f"{group}={chosen[group]}: " if group in chosen else ""
        raise SpecsimError(f"{where}{key}: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise SpecsimError("settings: nested too deep to resolve, or ${...} that leads in a circle") from None
    assert isinstance(plain, dict)
    return {**tree, **plain}
