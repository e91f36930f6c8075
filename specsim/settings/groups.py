"""The choices of a group: the files below conf/, and schedulers that other packages install."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError, nearest
from specsim.files.checked_mapping import expanded
from specsim.files.paths import is_path, shipped
from specsim.files.yaml_file import read_yaml
from specsim.schedulers.installed import installed

if TYPE_CHECKING:
    from specsim.settings.points import Point

FILE_OPTION = "file"
MOST_NAME_BYTES = 200


def names(group: str) -> list[str]:
    """Return the names that a group may take, in order."""
    found = {path.stem for path in (shipped("conf") / group).glob("*.yaml")} - {FILE_OPTION}
    return sorted(found | set(installed_schedulers()) if group == "scheduler" else found)


def choices(group: str) -> dict[str, str]:
    """Return the names that a group may take and a line about each."""
    lines = {}
    for name in names(group):
        path, packages = shipped("conf") / group / f"{name}.yaml", installed_schedulers()
        said = read_yaml(path).get("description", "") if path.is_file() else f"installed by {packages[name].module}"
        lines[name] = str(said)
    return lines


def chosen_in(group: str, point: Point) -> str:
    """Return what a point chooses in a group, the default where it says nothing."""
    return point.get(group, _defaults()[group])


def default_of(group: str) -> str:
    """Return the choice of a group that config.yaml names."""
    return _defaults()[group]


def file_of(group: str, chosen: str) -> Path | None:
    """Return the YAML file of a group's choice, None where there is none: an installed scheduler, a trace by path."""
    if not is_path(chosen) and len(chosen.encode()) > MOST_NAME_BYTES:
        raise SpecsimError(
            f"{group}={chosen[:40]}...: a name of {len(chosen):,} characters; expected one that is listed"
        )
    path = expanded(chosen) if is_path(chosen) else shipped("conf") / group / f"{chosen}.yaml"
    return path if path.is_file() and not (is_path(chosen) and group == "trace") else None


def check_below(node: Any, setting: str, dotted: str, source: str) -> None:
    """Refuse a dotted key that a mapping lacks, with the nearest that it has."""
    for name in dotted.split("."):
        if not isinstance(node, Mapping) or name not in node:
            known = map(str, node) if isinstance(node, Mapping) else ()
            raise SpecsimError(f"{setting}: {source} has no such key{nearest(name, known)}")
        node = node[name]


@cache
def installed_schedulers() -> Mapping[str, EntryPoint]:
    """Return the entry points of schedulers from other packages by name."""
    return installed()


@cache
def shipped_schedulers() -> frozenset[str]:
    """Return the names of the schedulers below conf/."""
    return frozenset(path.stem for path in (shipped("conf") / "scheduler").glob("*.yaml"))


@cache
def _defaults() -> Mapping[str, str]:
    listed = read_yaml(shipped("conf") / "config.yaml")["defaults"]
    return {str(group): str(name) for each in listed if isinstance(each, dict) for group, name in each.items()}
