"""From words on a command line to plain, resolved configurations: Hydra composes, every point is checked first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from specsim.errors import SpecsimError, beside, nearest
from specsim.paths import shipped

GROUPS = ("scheduler", "trace", "slo", "acceptance", "profile")
TEXTS = ("belief", "out")
"""Keys whose values are names or paths and never pass through Hydra's grammar, as those of the groups."""
FILE_OPTION = "file"

Point = Mapping[str, str]
"""Key to value, as typed."""


def names(group: str) -> list[str]:
    """Return the names that a group may take, in order."""
    found = {path.stem for path in (shipped("conf") / group).glob("*.yaml")} - {FILE_OPTION}
    return sorted(found | set(_installed()) if group == "scheduler" else found)


def choices(group: str) -> dict[str, str]:
    """Return the names that a group may take and a line about each."""
    lines = {}
    for name in names(group):
        path = shipped("conf") / group / f"{name}.yaml"
        lines[name] = (
            str(_yaml(path).get("description", "")) if path.is_file() else f"installed by {_installed()[name].module}"
        )
    return lines


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
        key, equals, value = word.removeprefix("+").partition("=")
        if not equals or not key:
            raise SpecsimError(f"{word!r} is no setting; expected key=value")
        if key in axes:
            raise SpecsimError(f"{key}: given twice; expected one value, or -m {key}=a,b for a sweep")
        check_key(key)
        axes[key] = _values(key, value, word, sweep)
    return product(axes)


def product(axes: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Return every combination of the values of each key, the last key fastest.

    Raises
    ------
    SpecsimError
        When a key has no value, or one value twice.
    """
    for key, values in axes.items():
        if len(set(values)) < len(values):
            twice = next(value for value in values if list(values).count(value) > 1)
            raise SpecsimError(f"{key}={twice}: stands twice in the sweep")
        if not values:
            raise SpecsimError(f"{key}: expected at least one value")
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _values(key: str, value: str, word: str, sweep: bool) -> list[str]:
    if key == "out" and ((sweep and "," in value) or value[:1] in ("[", "{") or value in ("true", "false", "")):
        raise SpecsimError(f"{word!r}: expected one folder")
    if key in GROUPS or key in TEXTS:
        several = value.split(",") if key != "out" and (sweep or not is_path(value)) else [value]
        if len(several) == 1:
            return several
    else:
        several = _parsed(word, key, value)
    if len(several) > 1 and not sweep:
        raise SpecsimError(f"{word!r} holds {len(several)} values; expected one, or -m for a sweep")
    return several


def _parsed(word: str, key: str, value: str) -> list[str]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(f"{key}={value}")
        return list(override.sweep_string_iterator()) if override.is_sweep_override() else [value]
    except (HydraException, ValueError, TypeError, NotImplementedError) as error:
        raise SpecsimError(f"{word!r} cannot be read: {_first_line(error)}") from None


def compose(point: Point) -> dict[str, Any]:
    """Return the configuration of one point as plain values, every key present; `choices` names each group's.

    Files named by path are read in place of their group.

    Raises
    ------
    SpecsimError
        One line naming the key and value, what was expected and the nearest valid name.
    """
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


def _text(point: Point, key: str) -> str | None:
    return None if point.get(key) in (None, "null") else point[key]


def _belief(chosen: str | None) -> dict[str, Any] | None:
    if chosen is None:
        return None
    if is_path(chosen):
        return _yaml(Path(chosen).expanduser())
    if chosen not in names("profile"):
        raise SpecsimError(f"belief={chosen}: unknown{nearest(chosen, names('profile'))}")
    return _yaml(shipped("conf") / "profile" / f"{chosen}.yaml")


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
        raise _Refused(_first_line(error)) from None
    assert isinstance(plain, dict)
    return {**{str(key): value for key, value in plain.items()}, "choices": {each: chosen[each] for each in GROUPS}}


def is_path(value: str) -> bool:
    """Return whether a group's value means a file: it has a slash or a suffix."""
    return "/" in value or bool(Path(value).suffix)


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
    return is_path(chosen) or (group == "scheduler" and chosen in _installed() and chosen not in _shipped_schedulers())


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
        given = _yaml(Path(chosen).expanduser())
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
        raise SpecsimError(f"{source}: {_first_line(error)}") from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _check_below(node: Any, setting: str, dotted: str, source: str) -> None:
    for name in dotted.split("."):
        if not isinstance(node, Mapping) or name not in node:
            known = map(str, node) if isinstance(node, Mapping) else ()
            raise SpecsimError(f"{setting}: {source} has no such key{nearest(name, known)}")
        node = node[name]


def check_key(key: str) -> None:
    """Refuse a key that no run has.

    Raises
    ------
    SpecsimError
        One line with the nearest valid key.
    """
    known = _known_keys()
    head, *rest = key.split(".")
    if head not in known:
        raise SpecsimError(f"{key}: unknown key{nearest(head, known)}")
    if head not in GROUPS and (rest or known[head]) and rest not in [[each] for each in known[head]]:
        raise SpecsimError(f"{key}: unknown key{nearest('.'.join(rest), known[head])}")


@cache
def _known_keys() -> dict[str, tuple[str, ...]]:
    base = _yaml(shipped("conf") / "config.yaml")
    base.pop("defaults")
    known = {key: tuple(value) if isinstance(value, dict) else () for key, value in base.items()}
    return known | dict.fromkeys(GROUPS, ())


@cache
def _installed() -> Mapping[str, Any]:
    from specsim.schedulers.loading import installed

    return installed()


@cache
def _shipped_schedulers() -> frozenset[str]:
    return frozenset(path.stem for path in (shipped("conf") / "scheduler").glob("*.yaml"))


def _yaml(path: Path) -> dict[str, Any]:
    import yaml
    from omegaconf._utils import get_yaml_loader

    try:
        loaded = yaml.load(path.read_text(encoding="utf-8"), Loader=get_yaml_loader())
    except FileNotFoundError:
        raise SpecsimError(f"{path}: no such file{beside(path)}") from None
    except IsADirectoryError:
        raise SpecsimError(f"{path}: is a folder; expected a YAML file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecsimError(f"{path}: cannot be read: {_first_line(error)}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise SpecsimError(f"{path}{line}: no YAML: {getattr(error, 'problem', None) or _first_line(error)}") from None
    if not isinstance(loaded, dict):
        raise SpecsimError(f"{path}: expected keys and values")
    return loaded


def _said(message: str, point: Point) -> str:
    """Say what Hydra means, with the nearest key where a setting below a group missed one."""
    groups = [word for key in point if key in GROUPS for word in _hydra_words(key, point)]
    base = _composed(groups)
    for key, value in point.items():
        group, _, below = key.partition(".")
        if group in GROUPS and below and not _elsewhere(group, point):
            _check_below(base[group], f"{key}={value}", below, str(base["choices"][group]))
    return message


def _first_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
