"""Groups of the configuration, their names, the choices of a run, and the values that a search tries.

A scheduler's file declares these under ``tune``. A list holds the values to try, in order. A mapping holds a list for
each of its own keys: a table by batch size is ``{1-8: [1, 3, 5], 9-512: [0, 1]}``.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from string import digits
from typing import Any

from specsim.config.schema import GROUPS
from specsim.errors import SpecsimError
from specsim.files.checked_mapping import expanded, is_number, shown
from specsim.files.yaml_file import is_path, peek_yaml, read_yaml, shipped
from specsim.registry import TARGET, installed

TEMPLATE = "file.yaml"
"""Below conf/trace: the keys of a file of requests by path."""
YAML_SUFFIXES = (".yaml", ".yml")
DATA_SUFFIXES, OF_DATA = (".csv", ".json", ".jsonl", ".parquet"), ("trace", "acceptance")
LABELS = {
    "scheduler": {"description", "family", "suggests"},
    "trace": {"name", "description", "url", "licence", "suggests"},
    "slo": {"description", "source", "assumed"},
    "acceptance": {"description", "pair"},
    "drafter": {"description", "suggests"},
    "engine": {"description", "source"},
    "router": {"description"},
    "profile": {"name", "description", "checks", "provenance", "assumptions", "suggests"},
}
"""Keys of a file that say what it is, and that no run reads."""
FORMS = ("linear", "roofline", "table")
"""Forms of pass time that ``cost_model=`` may name: the run's own profile, in that form."""


def names(group: str) -> list[str]:
    """Return the names that a group may take, in order."""
    return sorted({*shipped_names(group), *installed(group)})


def names_for(key: str) -> list[str]:
    """Return the names that a group, `cost_model`, or a place of `replica_profiles` may take."""
    if key == "cost_model":
        return sorted({*names("profile"), *FORMS})
    return names("profile" if key == "replica_profiles" else key)


def choices(group: str) -> dict[str, str]:
    """Return the names that a group may take and a line about each."""
    files = {name: file_of(group, name) for name in names(group)}
    return {
        name: str(peek_yaml(file).get("description", "")) if file else f"installed by {installed(group)[name].module}"
        for name, file in files.items()
    }


def file_of(group: str, chosen: str) -> Path | None:
    """Return the YAML file of a group's choice, None where there is none: installed, requests by path, typed rates."""
    if chosen in shipped_names(group):
        return shipped("conf") / group / f"{chosen}.yaml"
    if not is_path(chosen) or holds_data(group, chosen) or rates_typed(group, chosen) is not None:
        return None
    path = expanded(chosen)
    return path if path.is_file() else None


def holds_data(group: str, chosen: str) -> bool:
    """Return whether a choice is a file of requests or of accepted lengths, by path, and no YAML that describes one."""
    return group in OF_DATA and is_path(chosen) and Path(chosen).suffix.lower() not in YAML_SUFFIXES


def rates_typed(group: str, chosen: str) -> float | list[float] | None:
    """Return the rates that stand in the place of an acceptance's name: a number, or a list by draft position.

    Raises
    ------
    SpecsimError
        One line for a list of anything else.
    """
    if group != "acceptance" or not chosen.startswith((*"[.", *digits)):
        return None
    try:
        value: float | list[float] | None = ast.literal_eval(chosen)
    except (ValueError, SyntaxError):
        value = None
    listed = value if isinstance(value, list) else [value]
    if listed and all(is_number(each) for each in listed):
        return value
    if chosen.startswith("[") and chosen.endswith("]"):
        raise SpecsimError(f"{group}={chosen}: expected a list of rates by draft position, 0 to 1, as [0.76,0.56,0.43]")
    return None


@cache
def shipped_names(group: str) -> frozenset[str]:
    """Return the names of a group's files below conf/."""
    return frozenset(path.stem for path in (shipped("conf") / group).glob("*.yaml") if path.name != TEMPLATE)


@cache
def chosen_by_default() -> Mapping[str, str]:
    """Return the choice of each group that config.yaml names."""
    return peek_yaml(shipped("conf") / "config.yaml")


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice of a run in a group.

    Attributes
    ----------
    name : as typed, a name or a path. values : the keys of its file, as set, for the room that makes its typed part;
        any other asks the properties below. suggested_by : the choice that brought it along, "" where none did.
    """

    group: str
    name: str
    values: Mapping[str, Any]
    suggested_by: str = ""

    def __str__(self) -> str:
        return f"{self.group}={self.name}"

    @property
    def brought(self) -> str:
        """The group and its choice, and the choice that suggested it."""
        return f"{self} (with {self.suggested_by})" if self.suggested_by else str(self)

    @property
    def kind(self) -> str | None:
        """The kind that its file names, `TARGET` where it names a class; None for an object of Python."""
        return TARGET if TARGET in self.values else self.values.get("kind")

    @property
    def n(self) -> int:
        """The requests of a drawn trace where no setting says how many; 0 where its file does not say it, either."""
        return int(self.values.get("n") or 0)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes of an SLO mix; None where its file has none: the trace's, or an object's."""
        return None if self.values.get("classes") is None else tuple(self.values["classes"])

    def takes(self, key: str) -> bool:
        """Return whether its file has a key, so that it may be set."""
        return key in self.values

    def stated(self, names: Container[str]) -> Iterator[tuple[str, Any]]:
        """Yield each key of these names, at any place, that is not null: its dotted name, and its value."""
        for name, value in self.values.items():
            if isinstance(value, Mapping):
                yield from Choice(f"{self.group}.{name}", self.name, value).stated(names)
            elif name in names and value is not None:
                yield f"{self.group}.{name}", value

    @property
    def title(self) -> str:
        """Its name without its place; of a file that is called as its group, as imported ones are, its folder's."""
        path = Path(self.name)
        folder, (called, _, place) = path.parent.name.strip("."), path.stem.partition("_")
        as_group = folder and called == self.group and (place or "0").isdigit()
        return folder + path.stem.removeprefix(self.group) if as_group else path.stem

    @property
    def folder(self) -> Path:
        """The folder that paths in its file are relative to; an installed choice has none but the user's."""
        if is_path(self.name):
            return Path(self.name).expanduser().parent
        return shipped("conf") / self.group if self.name in shipped_names(self.group) else Path()


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices of a run.

    Attributes
    ----------
    profiles : by name those of ``replica_profiles`` that are not the first.
    cost_model : the profile that schedulers plan with, or what it changes in each replica's own; None: nothing.
    followed : by choice the settings that it suggested and that were taken up.
    """

    scheduler: Choice
    trace: Choice
    slo: Choice
    acceptance: Choice
    profile: Choice
    drafter: Choice
    engine: Choice
    router: Choice
    profiles: Mapping[str, Mapping[str, Any]]
    cost_model: Choice | None
    followed: Mapping[str, list[str]]

    @property
    def suggestion_note(self) -> str | None:
        """A line about the settings that the chosen files brought along."""
        said = [f"{', '.join(settings)} (with {suggests})" for suggests, settings in self.followed.items()]
        return f"{', '.join(said)}, as suggested there" if said else None


def choices_in(config: Mapping[str, Any]) -> Choices:
    """Return the choices of a composed configuration."""
    chosen, followed = config["choices"], config.get("followed", {})
    suggested = {setting: suggests for suggests, settings in followed.items() for setting in settings}
    groups = {
        each: Choice(each, chosen[each], config[each], suggested.get(f"{each}={chosen[each]}", "")) for each in GROUPS
    }
    believed = config.get("cost_model")
    cost_model = None if believed is None else Choice("cost_model", believed.get("name", ""), believed)
    return Choices(**groups, profiles=config.get("profiles", {}), cost_model=cost_model, followed=followed)


SPACE = "tune"
"""The key of a scheduler's file; no run reads it."""
KeyPath = tuple[str, ...]
Combination = tuple[int, ...]
"""The place of a value in each list."""


@dataclass(frozen=True, slots=True)
class Space:
    """Lists of values by the path of a key: its dotted name below the scheduler, then keys of a mapping that it takes.

    `scheduler` is its name or path.
    """

    scheduler: str
    values: Mapping[KeyPath, Sequence[Any]]

    def __len__(self) -> int:
        """Return the number of combinations."""
        return prod(map(len, self.values.values()))

    def choices(self) -> Iterator[Combination]:
        """Yield every combination, the last list fastest."""
        yield from product(*(range(len(each)) for each in self.values.values()))

    def settings(self, choice: Combination) -> dict[str, Any]:
        """Return the value of each key of a choice, by its dotted name below the scheduler."""
        found: dict[str, Any] = {}
        for ((key, *below), values), place in zip(self.values.items(), choice, strict=True):
            holder, name = found, key
            for each in below:
                holder, name = holder.setdefault(name, {}), each
            holder[name] = values[place]
        return found

    def ends(self, choice: Combination) -> list[str]:
        """Return in words which numbers of a choice above 1 are the least or the most that were to be tried."""
        found = []
        for ((key, *below), values), place in zip(self.values.items(), choice, strict=True):
            value, numbers = values[place], all(type(each) in (int, float) for each in values)
            if numbers and value > 1 and value in (min(values), max(values)) and len(values) > 1:
                name = ".".join([key.rpartition(".")[2], *below])
                found.append(f"{name}={value} the {'most' if value == max(values) else 'least'}")
        return found


def space_of(scheduler: str, given: Mapping[str, Sequence[Any]]) -> Space:
    """Return what a search tries of a scheduler: what its file declares, and the `given` values in its place.

    Raises
    ------
    SpecsimError
        One line for a file that declares nothing, or no lists of different values, where nothing is given.
    """
    file = file_of("scheduler", scheduler)
    declared = {} if file is None else read_yaml(file).get(SPACE) or {}
    source = f"scheduler={scheduler}: {SPACE}"
    if not isinstance(declared, Mapping):
        raise SpecsimError(f"{source}: {shown(declared)}: expected lists of values by key")
    if not declared and not given:
        expected = "tune: {num_speculative_tokens: [1, 3, 5]} there, or several values such as scheduler.KEY=1,3,5"
        raise SpecsimError(f"scheduler={scheduler}: its file declares no values to try; expected {expected}")
    return Space(scheduler, dict(_lists((), {**declared, **given}, source)))


def _lists(path: KeyPath, node: Mapping[Any, Any], source: str) -> Iterator[tuple[KeyPath, Sequence[Any]]]:
    for name, value in node.items():
        below = (*path, str(name))
        if isinstance(value, Mapping) and value:
            yield from _lists(below, value, source)
        elif isinstance(value, list) and value and all(each not in value[:place] for place, each in enumerate(value)):
            yield below, value
        else:
            said = f"{source}: {'.'.join(below)}: {shown(value)}"
            raise SpecsimError(f"{said}: expected a list of different values, or a mapping of such lists")
