"""From words on a command line to plain, resolved configurations: Hydra composes, every point is checked first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from specsim.errors import SpecsimError, first_line, nearest
from specsim.groups import (
    FILE_OPTION,
    check_below,
    choices,
    chosen_in,
    file_of,
    installed_schedulers,
    names,
    shipped_schedulers,
)
from specsim.interpolation import place_of
from specsim.paths import is_path, shipped
from specsim.points import GROUPS, TEXTS, Point
from specsim.reading import read_yaml
from specsim.suggestions import with_suggestions

__all__ = ["choices", "compose", "names"]


def compose(point: Point) -> dict[str, Any]:
    """Return the configuration of one point as plain values, every key present.

    `choices` names each group's file and `followed` the suggestions that were taken up. Files named by path are read
    in place of their group.

    Raises
    ------
    SpecsimError
        One line naming the key and value, what was expected and the nearest valid name.
    """
    point, followed = with_suggestions(point)
    _check_places(point)
    try:
        resolved = _composed([word for key in point for word in _hydra_words(key, point)])
    except _Refused as error:
        raise SpecsimError(_said(str(error), point)) from None
    for group in GROUPS:
        resolved[group] = _from_elsewhere(group, resolved[group], point)
        resolved["choices"][group] = point.get(group, resolved["choices"][group])
    resolved["out"] = _text(point, "out")
    resolved["belief"] = _belief(_text(point, "belief"))
    resolved["followed"] = followed
    return resolved


def _check_places(point: Point) -> None:
    """Refuse a key that only repeats another: setting it would set one of two places."""
    for key, value in point.items():
        group, _, below = key.partition(".")
        path = file_of(group, chosen_in(group, point)) if group in GROUPS and below else None
        if path is None:
            continue
        place = place_of(read_yaml(path), below)
        if place != below:
            raise SpecsimError(f"{key}={value}: follows {group}.{place}; expected {group}.{place}={value}")


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
    return is_path(chosen) or (
        group == "scheduler" and chosen not in shipped_schedulers() and chosen in installed_schedulers()
    )


def _from_elsewhere(group: str, node: Any, point: Point) -> Any:
    if not _elsewhere(group, point):
        return node
    chosen = point[group]
    if group == "trace":
        return {**node, "path": chosen}
    if not is_path(chosen):
        from specsim.schedulers.loading import defaults_of

        given = defaults_of(installed_schedulers()[chosen])
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
            check_below(given, f"{group}.{dotted}={value}", dotted, source)
            OmegaConf.update(config, dotted, OverridesParser.create().parse_override(f"x={value}").value(), merge=True)
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise SpecsimError(f"{source}: {first_line(error)}") from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _said(message: str, point: Point) -> str:
    """Say what Hydra means, with the nearest key where a setting below a group missed one."""
    groups = [word for key in point if key in GROUPS for word in _hydra_words(key, point)]
    base = _composed(groups)
    for key, value in point.items():
        group, _, below = key.partition(".")
        if group in GROUPS and below and not _elsewhere(group, point):
            check_below(base[group], f"{key}={value}", below, str(base["choices"][group]))
    return message
