"""The choices of a group: the files below conf/, and what other packages install."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError, nearest
from specsim.files.checked_mapping import expanded
from specsim.files.paths import is_path, shipped
from specsim.files.yaml_file import peek_yaml
from specsim.kinds.installed import installed

if TYPE_CHECKING:
    from specsim.config.points import Point

FILE_OPTION = "file"
MOST_NAME_BYTES = 200
YAML_SUFFIXES = (".yaml", ".yml")
LABELS = {
    "scheduler": {"description", "family", "suggests"},
    "trace": {"name", "description", "url", "licence", "suggests"},
    "slo": {"description", "source"},
    "acceptance": {"description", "pair"},
    "drafter": {"description", "suggests"},
    "engine": {"description", "source"},
    "router": {"description"},
    "profile": {"name", "description", "hardware", "checks", "provenance", "assumptions", "suggests"},
}
"""Keys of a file that say what it is, and that no run reads."""
FORMS = ("linear", "roofline", "table")
"""Forms of pass time that ``belief=`` may name: the run's own profile, believed to have that form."""


def names(group: str) -> list[str]:
    """Return the names that a group may take, in order."""
    found = shipped_names(group) - {FILE_OPTION}
    return sorted(found | set(installed(group)))


def names_for(key: str) -> list[str]:
    """Return the names that a group, `belief`, or a place of `replica_profiles` may take."""
    if key == "belief":
        return sorted({*names("profile"), *FORMS})
    return names("profile" if key == "replica_profiles" else key)


def choices(group: str) -> dict[str, str]:
    """Return the names that a group may take and a line about each."""
    lines = {}
    for name in names(group):
        path = shipped("conf") / group / f"{name}.yaml"
        there = path.is_file()
        said = peek_yaml(path).get("description", "") if there else f"installed by {installed(group)[name].module}"
        lines[name] = str(said)
    return lines


def chosen_in(group: str, point: Point) -> str:
    """Return what a point chooses in a group, the default where it says nothing."""
    return str(point.get(group, defaults()[group]))


def file_of(group: str, chosen: str) -> Path | None:
    """Return the YAML file of a group's choice, None where there is none: what is installed, requests by path."""
    if not is_path(chosen) and len(chosen.encode()) > MOST_NAME_BYTES:
        raise SpecsimError(
            f"{group}={chosen[:40]}...: a name of {len(chosen):,} characters; expected one that is listed"
        )
    if not is_path(chosen):
        return _shipped_file(group, chosen)
    path = expanded(chosen)
    return path if path.is_file() and not holds_requests(group, chosen) else None


def holds_requests(group: str, chosen: str) -> bool:
    """Return whether a choice is a trace's own file, by path, and not a YAML that describes one."""
    return group == "trace" and is_path(chosen) and Path(chosen).suffix.lower() not in YAML_SUFFIXES


def choices_with(name: str) -> Iterator[tuple[str, str]]:
    """Yield each group with a choice whose file has a key of that name: the default, where it has it."""
    for group, default in defaults().items():
        for each in (default, *sorted(shipped_names(group) - {FILE_OPTION})):
            if name not in LABELS[group] and name in peek_yaml(shipped("conf") / group / f"{each}.yaml"):
                yield group, each
                break


def check_below(node: Any, setting: str, dotted: str, source: str) -> None:
    """Refuse a dotted key that a mapping lacks, with the nearest that it has."""
    for name in dotted.split("."):
        if not isinstance(node, Mapping) or name not in node:
            known = map(str, node) if isinstance(node, Mapping) else ()
            raise SpecsimError(f"{setting}: {source} has no such key{nearest(name, known)}")
        node = node[name]


@cache
def _shipped_file(group: str, name: str) -> Path | None:
    path = shipped("conf") / group / f"{name}.yaml"
    return path if path.is_file() else None


@cache
def shipped_names(group: str) -> frozenset[str]:
    """Return the names of a group's files below conf/."""
    return frozenset(path.stem for path in (shipped("conf") / group).glob("*.yaml"))


@cache
def defaults() -> Mapping[str, str]:
    """Return the choice of each group that config.yaml names."""
    listed = peek_yaml(shipped("conf") / "config.yaml")["defaults"]
    return {str(group): str(name) for each in listed if isinstance(each, dict) for group, name in each.items()}
