"""The door of the settings: from words, or values from Python, to the configurations of the points that they span.

The first word, key or value that is wrong is a SpecsimError of one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from specsim.config.compose import compose, typed_plugins, with_its_plugins
from specsim.config.groups import Choices, choices_in
from specsim.config.identity import NOT_OF_THE_RUN, identity, settings_of
from specsim.config.points import Point, axes_of, points, product
from specsim.config.schema import Settings, settings_in
from specsim.config.sweep_file import points_of
from specsim.errors import SpecsimError
from specsim.files.checked_mapping import copied

Described = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By group and name, what stands in a configuration for an object that Python handed in."""
NONE_HANDED: Described = {}
Counted = Callable[[Sequence[Point]], Iterable[Point]]
"""Gives points back one by one, and may tell how many are composed."""


@dataclass(frozen=True)
class Configured:
    """A point as typed, and its configuration: plain values, every key present."""

    point: Point
    config: dict[str, Any]

    @cached_property
    def settings(self) -> Settings:
        """The typed values of its keys; SpecsimError, one line that names the key, where one is wrong."""
        return settings_in(self.config)

    @cached_property
    def chosen(self) -> Choices:
        """The choice in each group."""
        return choices_in(self.config)

    @cached_property
    def key(self) -> str:
        """The identity of its settings."""
        return identity(settings_of(self.config))

    @property
    def stored(self) -> dict[str, Any]:
        """A copy of what makes a run the run it is: not where it is kept, nor what else changes no number."""
        return {key: copied(value) for key, value in self.config.items() if key not in NOT_OF_THE_RUN}


def from_words(words: Sequence[str], *, sweep: bool, counted: Counted = iter) -> list[Configured]:
    """Return the points that words of a command line span, one unless `sweep`; they go through `counted`."""
    return [from_point(point) for point in counted(points(words, sweep=sweep))]


def from_axes(
    axes: Mapping[str, Iterable[Any]],
    settings: Mapping[str, Any],
    described: Described = NONE_HANDED,
    *,
    counted: Counted = iter,
) -> list[Configured]:
    """Return every combination of `axes` (values by key), each beside the `settings`; the last axis is the fastest.

    They go through `counted`. `described` are the objects that their names stand for.
    """
    return [from_point(point, described) for point in counted(product(axes_of(axes, settings)))]


def from_file(file: Path, words: Sequence[str], *, counted: Counted = iter) -> list[Configured]:
    """Return the points of a sweep's YAML file, each with the settings of `words`; they go through `counted`."""
    return [from_point(point) for point in counted(points_of(file, words))]


def from_point(point: Point, described: Described = NONE_HANDED) -> Configured:
    """Return one point; `described` are the objects that its names stand for. SpecsimError as of `from_axes`."""
    named = {group: str(point.get(group)) for group in described}
    held = {group: described[group][name] for group, name in named.items() if name in described[group]}
    return Configured(point, compose(point, held))


def against(chosen: Configured, named: str) -> list[Configured]:
    """Return a run with each of the `named` schedulers (NAME,NAME), as their files have them, in the place of its own.

    Raises
    ------
    SpecsimError
        One line for a name that is unknown or given twice, and for the run itself.
    """
    config, made = chosen.config, []
    profile = config["choices"]["profile"]
    try:
        for point in points([f"scheduler={named}"], sweep=True):
            name = point["scheduler"]
            keys = compose({"scheduler": name, "profile": profile})["scheduler"]
            if keys == config["scheduler"]:
                raise SpecsimError(f"{name} is the scheduler of the run itself; expected others")
            choices = {**config["choices"], "scheduler": name}
            other = {**config, "scheduler": keys, "choices": choices, "followed": {}}
            made.append(Configured({**chosen.point, **point}, with_its_plugins(other, typed_plugins(chosen.point))))
    except SpecsimError as error:
        raise SpecsimError(f"--against {named}: {error}") from error
    return made


def labels_of(chosen: Sequence[Point]) -> list[dict[str, str]]:
    """Return for each point the settings in which the points of a sweep differ."""
    keys = dict.fromkeys(key for point in chosen for key in point)
    told = [key for key in keys if len({str(point.get(key)) for point in chosen}) > 1]
    return [{key: str(point[key]) for key in told if key in point} for point in chosen]
