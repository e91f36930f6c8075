"""From words on a command line to plain, resolved configurations: Hydra composes, every point is checked first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from specsim.errors import SpecsimError, nearest
from specsim.paths import shipped

GROUPS = ("scheduler", "trace", "slo", "acceptance", "profile")
FILE_OPTION = "file"


def choices(group: str) -> dict[str, str]:
    """Return the names that a group may take and a line about each."""
    from specsim.schedulers.loading import installed

    found = {}
    for path in sorted((shipped("conf") / group).glob("*.yaml")):
        if path.stem != FILE_OPTION:
            found[path.stem] = str(_yaml(path).get("description", ""))
    if group == "scheduler":
        found |= {name: f"installed by {entry.module}" for name, entry in installed().items() if name not in found}
    return found


def points(words: Sequence[str], *, sweep: bool) -> list[dict[str, str]]:
    """Return one mapping of key to value, as typed, for each point that the words span; one point without commas.

    Raises
    ------
    SpecsimError
        For a word that is no ``key=value``, an unknown key or name, and commas when `sweep` is False.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    axes: list[list[tuple[str, str]]] = []
    for word in words:
        key, equals, value = word.lstrip("+").partition("=")
        if not equals or not key:
            raise SpecsimError(f"{word!r} is no setting; expected key=value")
        _check_key(key)
        try:
            override = OverridesParser.create().parse_override(f"{key}={value}")
        except HydraException as error:
            raise SpecsimError(f"{word!r} cannot be read: {str(error).splitlines()[0]}") from None
        values = list(override.sweep_string_iterator()) if override.is_sweep_override() else [value]
        if len(values) > 1 and not sweep:
            raise SpecsimError(f"{word!r} holds {len(values)} values; expected one, or -m for a sweep")
        axes.append([(key, each) for each in values])
    return [dict(point) for point in itertools.product(*axes)]


def compose(point: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration of one point as plain values, every key present; `choices` names each group's.

    Files named by path are read in place of their group.

    Raises
    ------
    SpecsimError
        One line naming the key and value, what was expected and the nearest valid name.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    words = [word for key, value in point.items() for word in _hydra_words(key, value, point)]
    try:
        with initialize_config_dir(str(shipped("conf")), version_base="1.3"):
            config = hydra_compose("config", overrides=words, return_hydra_config=True)
        chosen = config.hydra.runtime.choices
        OmegaConf.set_struct(config, False)
        config.pop("hydra")
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise SpecsimError(_one_line(error, point)) from None
    assert isinstance(plain, dict)
    resolved: dict[str, Any] = {str(key): value for key, value in plain.items()}
    for group in GROUPS:
        resolved[group] = _from_path(group, resolved[group], point)
    resolved["choices"] = {group: point.get(group, str(chosen[group])) for group in GROUPS}
    return resolved


def is_path(value: str) -> bool:
    """Return whether a group's value means a file: it has a slash or a suffix."""
    return "/" in value or bool(Path(value).suffix)


def _hydra_words(key: str, value: str, point: Mapping[str, str]) -> Iterator[str]:
    """Translate one setting; settings below a group given by path are merged later, by `_from_path`."""
    group, _, below = key.partition(".")
    if group not in GROUPS:
        yield f"{key}={value}"
        return
    chosen = point.get(group, "")
    from_path, entry = is_path(chosen), _entry_point(group, chosen)
    if below and not (from_path and group != "trace") and entry is None:
        yield f"{key}={value}"
    elif not below and (from_path or entry is not None):
        yield f"{group}={FILE_OPTION}"
        if from_path:
            quoted = value.replace("\\", "\\\\").replace("'", "\\'")
            yield f"{group}.path='{quoted}'"
        else:
            yield f"{group}.path=entry_point"
    elif not below:
        names = choices(group)
        if value not in names:
            raise SpecsimError(f"{group}={value}: unknown{nearest(value, names)}")
        yield f"{group}={value}"


def _entry_point(group: str, chosen: str) -> Any:
    if group != "scheduler" or not chosen or (shipped("conf") / group / f"{chosen}.yaml").is_file():
        return None
    from specsim.schedulers.loading import installed

    return installed().get(chosen)


def _from_path(group: str, node: dict[str, Any], point: Mapping[str, str]) -> dict[str, Any]:
    chosen = point.get(group, "")
    entry = _entry_point(group, chosen)
    if entry is not None:
        from specsim.schedulers.loading import defaults_of

        node = defaults_of(entry)
    elif group != "trace" and is_path(chosen):
        node = _yaml(Path(chosen))
        node.pop("defaults", None)
    else:
        return node
    below = {key.partition(".")[2]: value for key, value in point.items() if key.startswith(f"{group}.")}
    return _merged(node, below, group)


def _merged(node: dict[str, Any], below: Mapping[str, str], group: str) -> dict[str, Any]:
    import yaml

    for dotted, value in below.items():
        *parents, last = dotted.split(".")
        place: Any = node
        for name in parents:
            place = place.get(name) if isinstance(place, dict) else None
        if not isinstance(place, dict) or last not in place:
            names = place if isinstance(place, dict) else node
            raise SpecsimError(f"{group}.{dotted}: unknown key{nearest(last, map(str, names))}")
        place[last] = yaml.safe_load(value)
    return node


def _check_key(key: str) -> None:
    known = _known_keys()
    head, *rest = key.split(".")
    if head not in known:
        raise SpecsimError(f"{key}: unknown key{nearest(head, known)}")
    if head not in GROUPS and rest and rest not in [[each] for each in known[head]]:
        raise SpecsimError(f"{key}: unknown key{nearest('.'.join(rest), known[head])}")


@cache
def _known_keys() -> dict[str, tuple[str, ...]]:
    base = _yaml(shipped("conf") / "config.yaml")
    base.pop("defaults")
    known = {key: tuple(value) if isinstance(value, dict) else () for key, value in base.items()}
    return known | dict.fromkeys(GROUPS, ())


def _yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        loaded = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise SpecsimError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecsimError(f"{path}: cannot be read: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise SpecsimError(f"{path}{line}: no YAML: {getattr(error, 'problem', error)}") from None
    if not isinstance(loaded, dict):
        raise SpecsimError(f"{path}: expected keys and values")
    return loaded


def _one_line(error: Exception, point: Mapping[str, str]) -> str:
    """Say what Hydra means in a line, with the nearest key where it missed one."""
    for key, value in point.items():
        group, _, below = key.partition(".")
        if group in GROUPS and below:
            chosen = point.get(group) or _default_of(group)
            node: Any = _yaml(shipped("conf") / group / f"{FILE_OPTION if is_path(chosen) else chosen}.yaml")
            for name in below.split("."):
                if not isinstance(node, dict) or name not in node:
                    names = map(str, node) if isinstance(node, dict) else ()
                    return f"{key}={value}: {chosen} has no such key{nearest(name, names)}"
                node = node[name]
    return " ".join(str(error).split())[:200]


def _default_of(group: str) -> str:
    for entry in _yaml(shipped("conf") / "config.yaml")["defaults"]:
        if isinstance(entry, dict) and group in entry:
            return str(entry[group])
    raise KeyError(group)
