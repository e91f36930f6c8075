"""From words on a command line to plain, resolved configurations: Hydra composes, every point is checked first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from specsim.errors import SpecsimError, first_line, nearest
from specsim.paths import is_path, shipped
from specsim.points import GROUPS, TEXTS, Point
from specsim.reading import read_yaml

FILE_OPTION = "file"
SUGGESTING = ("scheduler", "drafter")
"""Groups whose files may hold `suggests`: settings that go with them, unless the user chooses otherwise."""


def names(group: str) -> list[str]:
    """Return the names that a group may take, in order."""
    found = {path.stem for path in (shipped("conf") / group).glob("*.yaml")} - {FILE_OPTION}
    return sorted(found | set(_installed()) if group == "scheduler" else found)


def choices(group: str) -> dict[str, str]:
    """Return the names that a group may take and a line about each."""
    lines = {}
    for name in names(group):
        path = shipped("conf") / group / f"{name}.yaml"
        said = read_yaml(path).get("description", "") if path.is_file() else f"installed by {_installed()[name].module}"
        lines[name] = str(said)
    return lines


def compose(point: Point) -> dict[str, Any]:
    """Return the configuration of one point as plain values, every key present; `choices` names each group's.

    Files named by path are read in place of their group.

    Raises
    ------
    SpecsimError
        One line naming the key and value, what was expected and the nearest valid name.
    """
    point = _with_suggestions(point)
    try:
        resolved = _composed([word for key in point for word in _hydra_words(key, point)])
    except _Refused as error:
        raise SpecsimError(_said(str(error), point)) from None
    for group in GROUPS:
        resolved[group] = _from_elsewhere(group, resolved[group], point)
        resolved["choices"][group] = point.get(group, resolved["choices"][group])
    resolved["out"] = _text(point, "out")
    resolved["belief"] = _belief(_text(point, "belief"))
    return resolved


def _with_suggestions(point: Point) -> Point:
    """Return the point with what its files suggest and it leaves open: a group's name, or a key of a group.

    A name is left out where the point sets a key that its file does not have.
    """
    full: dict[str, str] = dict(point)
    for group in SUGGESTING:
        chosen = full.get(group, _defaults()[group])
        for key, value in _suggests(group, chosen).items():
            if key in full or (key in GROUPS and not _holds(key, value, full)):
                continue
            full[key] = value
    return full


def _suggests(group: str, chosen: str) -> dict[str, str]:
    """Return the suggestions in a group's file as words; a path in it is relative to that file."""
    path = _file(group, chosen)
    if path is None or not path.is_file():
        return {}
    said = read_yaml(path).get("suggests") or {}
    if not isinstance(said, Mapping):
        raise SpecsimError(f"{group}={chosen}: suggests: expected settings by key")
    words = {}
    for key, value in said.items():
        head = str(key).partition(".")[0]
        if head not in GROUPS:
            raise SpecsimError(f"{group}={chosen}: suggests: {key!r} is no group or key of one")
        word = str(value).lower() if isinstance(value, bool) else str(value)
        if key == head and is_path(word):
            word = str(path.parent / Path(word).expanduser())
        elif key == head and word not in names(head):
            raise SpecsimError(f"{group}={chosen}: suggests: {key}={word}: unknown{nearest(word, names(head))}")
        words[str(key)] = word
    return words


def _holds(group: str, chosen: str, point: Point) -> bool:
    """Return whether a group's file has every key that the point sets below the group."""
    path = _file(group, chosen)
    below = {key.split(".")[1] for key in point if key.startswith(f"{group}.")}
    return not below or path is None or below <= set(read_yaml(path))


def _file(group: str, chosen: str) -> Path | None:
    """Return the file of a group's choice, None for an installed scheduler."""
    if is_path(chosen):
        return None if group == "trace" else Path(chosen).expanduser()
    path = shipped("conf") / group / f"{chosen}.yaml"
    return path if path.is_file() else None


@cache
def _defaults() -> Mapping[str, str]:
    listed = read_yaml(shipped("conf") / "config.yaml")["defaults"]
    return {str(group): str(name) for each in listed if isinstance(each, dict) for group, name in each.items()}


def _text(point: Point, key: str) -> str | None:
    return None if point.get(key) in (None, "null") else point[key]


def _belief(chosen: str | None) -> dict[str, Any] | None:
    if chosen is None:
        return None
    if is_path(chosen):
        return read_yaml(Path(chosen).expanduser(), group="belief=")
    if chosen not in names("profile"):
        raise SpecsimError(f"belief={chosen}: unknown{nearest(chosen, names('profile'))}")
    return read_yaml(shipped("conf") / "profile" / f"{chosen}.yaml")


class _Refused(Exception):
    """Hydra or OmegaConf refuses a configuration."""


def _composed(words: Sequence[str]) -> dict[str, Any]:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        with initialize_config_dir(str(shipped("conf")), version_base="1.3"):
            config = hydra_compose("config", overrides=list(words), return_hydra_config=True)
        chosen = config.hydra.runtime.choices
        OmegaConf.set_struct(config, False)
        config.pop("hydra")
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise _Refused(first_line(error)) from None
    assert isinstance(plain, dict)
    return {**{str(key): value for key, value in plain.items()}, "choices": {each: chosen[each] for each in GROUPS}}


def _hydra_words(key: str, point: Point) -> Iterator[str]:
    """Translate one setting; what Hydra cannot know of is put in later, by `_from_elsewhere`."""
    group, _, below = key.partition(".")
    if group in TEXTS:
        return
    elsewhere = _elsewhere(group, point)
    if group not in GROUPS or (below and (not elsewhere or group == "trace")):
        yield f"{key}={point[key]}"
    elif not below and elsewhere:
        yield f"{group}={FILE_OPTION}"
        yield f"{group}.path=given"
    elif not below:
        if point[key] not in names(group):
            raise SpecsimError(f"{key}={point[key]}: unknown{nearest(point[key], names(group))}")
        yield f"{group}={point[key]}"


def _elsewhere(group: str, point: Point) -> bool:
    """Return whether a group's choice lies outside conf/: a path, or an installed scheduler."""
    chosen = point.get(group)
    if chosen is None or group not in GROUPS:
        return False
    return is_path(chosen) or (group == "scheduler" and chosen not in _shipped_schedulers() and chosen in _installed())


def _from_elsewhere(group: str, node: Any, point: Point) -> Any:
    if not _elsewhere(group, point):
        return node
    chosen = point[group]
    if group == "trace":
        return {**node, "path": chosen}
    if not is_path(chosen):
        from specsim.schedulers.loading import defaults_of

        given = defaults_of(_installed()[chosen])
    else:
        given = read_yaml(Path(chosen).expanduser(), group=f"{group}=")
        if "defaults" in given:
            raise SpecsimError(f"{chosen}: defaults: expected every key in this one file")
    below = {key.partition(".")[2]: value for key, value in point.items() if key.startswith(f"{group}.")}
    return _merged(given, below, f"{group}={chosen}", group)


def _merged(given: Mapping[str, Any], below: Mapping[str, str], source: str, group: str) -> dict[str, Any]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        config = OmegaConf.create(dict(given))
        for dotted, value in below.items():
            _check_below(given, f"{group}.{dotted}={value}", dotted, source)
            OmegaConf.update(config, dotted, OverridesParser.create().parse_override(f"x={value}").value(), merge=True)
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise SpecsimError(f"{source}: {first_line(error)}") from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _check_below(node: Any, setting: str, dotted: str, source: str) -> None:
    for name in dotted.split("."):
        if not isinstance(node, Mapping) or name not in node:
            known = map(str, node) if isinstance(node, Mapping) else ()
            raise SpecsimError(f"{setting}: {source} has no such key{nearest(name, known)}")
        node = node[name]


@cache
def _installed() -> Mapping[str, Any]:
    from specsim.schedulers.loading import installed

    return installed()


@cache
def _shipped_schedulers() -> frozenset[str]:
    return frozenset(path.stem for path in (shipped("conf") / "scheduler").glob("*.yaml"))


def _said(message: str, point: Point) -> str:
    """Say what Hydra means, with the nearest key where a setting below a group missed one."""
    groups = [word for key in point if key in GROUPS for word in _hydra_words(key, point)]
    base = _composed(groups)
    for key, value in point.items():
        group, _, below = key.partition(".")
        if group in GROUPS and below and not _elsewhere(group, point):
            _check_below(base[group], f"{key}={value}", below, str(base["choices"][group]))
    return message
