"""An experiment YAML of experiments/: a paper's figures, the runs behind them, and the published values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from profiler.typed import typed, value_of
from specsim.config.points import check_typed
from specsim.errors import SpecsimError, nearest
from specsim.files.checked_mapping import CheckedMapping, expanded, is_number
from specsim.files.yaml_file import is_path, read_yaml
from studies.reproduction.claim import known, named
from studies.reproduction.figure import Figure, read_figure

FOLDER = Path(__file__).with_name("experiments")
RESERVED = ("out", "seed")
"""Keys that an experiment's words cannot set: it has seeds of its own, and its runs their place."""
REQUESTS = "requests"
"""The key that the short form sets; words may set it for the whole form."""
Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the x axis: its name, where it stands, and the words that make it."""

    name: str
    x: float
    words: Words


@dataclass(frozen=True, slots=True)
class Axis:
    """The x axis of a figure: its label with the unit, and its points, from left to right.

    Attributes
    ----------
    numeric : whether the names of the points are numbers; if not, x counts them from 0.
    """

    label: str
    points: tuple[Point, ...]
    numeric: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the points."""
        return tuple(each.name for each in self.points)


@dataclass(frozen=True, slots=True)
class Quick:
    """A short form of an experiment: fewer points of the axis, one seed, and only so many requests of a run."""

    points: tuple[str, ...]
    requests: int


@dataclass(frozen=True, slots=True)
class Range:
    """A choice that a paper leaves open: words of each variant beside those of the `systems`, at some `points`."""

    choice: str
    systems: tuple[str, ...]
    points: tuple[str, ...]
    variants: Mapping[str, Words]


@dataclass(frozen=True, slots=True)
class PaperExperiment:
    """Figures of a paper that one set of runs makes.

    Attributes
    ----------
    choices : sentences on what the paper leaves out and was chosen here.
    common : words of `specsim run` for every run. systems : by the paper's name, the words that make that system.
    """

    name: str
    file: Path
    axis: Axis
    quick: Quick
    systems: Mapping[str, Words]
    ranges: tuple[Range, ...]
    figures: tuple[Figure, ...]
    paper: str
    source: str
    seeds: tuple[int, ...]
    common: Words
    choices: Words = ()


def experiments(names: tuple[str, ...] = ()) -> tuple[PaperExperiment, ...]:
    """Return the experiments of these names, figures' names or paths; all of `FOLDER` if none is given.

    Raises
    ------
    SpecsimError
        One line when a name is unknown, or a file is not an experiment.
    """
    known = _shipped()
    by_figure = {figure.name: each for each in known.values() for figure in each.figures}
    found: dict[Path, PaperExperiment] = {}
    for name in names or tuple(known):
        each = read_experiment(expanded(name)) if is_path(name) else (known | by_figure).get(name)
        if each is None:
            raise SpecsimError(f"reproduce {name}: unknown{nearest(name, [*known, *by_figure])}")
        found[each.file] = each
    return tuple(found.values())


@cache
def _shipped() -> dict[str, PaperExperiment]:
    return {path.stem: read_experiment(path) for path in sorted(FOLDER.glob("*.yaml"))}


def read_experiment(path: Path) -> PaperExperiment:
    """Return the experiment that a YAML file describes; its name is the file's.

    Raises
    ------
    SpecsimError
        One line that names the file, the key and what was expected.
    """
    node = CheckedMapping(str(path), "", read_yaml(path, "experiment YAML"))
    axis, quick = _axis(node.child("axis")), node.child("quick")
    systems: dict[str, Words] = value_of(Mapping[str, Words], node, "systems")
    ranges = node.items("ranges", "what is varied") if "ranges" in node.values else ()
    figures = node.children("figures", "figures by name", "keys of a figure")
    made = ("axis", "quick", "systems", "ranges", "figures")
    rest = CheckedMapping(node.source, "", {key: value for key, value in node.values.items() if key not in made})
    found = typed(
        PaperExperiment,
        rest,
        name=path.stem,
        file=path,
        axis=axis,
        quick=Quick(_points(quick, axis), quick.whole("requests")),
        systems=systems,
        ranges=tuple(_range(each, axis, tuple(systems)) for each in ranges),
        figures=tuple(read_figure(name, each, axis.names, tuple(systems)) for name, each in figures.items()),
    )
    _check_words(found, node)
    return found


def _check_words(found: PaperExperiment, node: CheckedMapping) -> None:
    """Refuse words that set the experiment's own keys or that of its axis, and a variant's name given twice."""
    words = [*found.common, *(word for each in found.systems.values() for word in each)]
    axis = node.child("axis")
    if "points" in axis.values:
        words += [word for point in found.axis.points for word in point.words]
    keys = {*RESERVED, axis.values.get("key")}
    variants = [(name, each) for one in found.ranges for name, each in one.variants.items()]
    for word in [*words, *(word for _, each in variants for word in each)]:
        check_typed([key_of(word)], node.source)
        if key_of(word) in keys:
            node.refuse("", f"{word}: {key_of(word)} is the experiment's own or its axis's; expected another key")
    if len({name for name, _ in variants}) < len(variants):
        node.refuse("ranges", "two variants of one name; expected a name of its own for each")


def _axis(node: CheckedMapping) -> Axis:
    if "points" in node.values:
        points: dict[Any, Words] = value_of(Mapping[str, Words], node, "points")
        numeric = all(map(is_number, points))
        places = points if numeric else range(len(points))
        found = [Point(named(name), float(x), points[name]) for name, x in zip(points, places, strict=True)]
        return Axis(node.text("label"), tuple(found), numeric)
    key, values = node.text("key"), value_of(tuple[int | float, ...], node, "values")
    if len(set(values)) < len(values):
        node.fail("values", "a list of different numbers")
    return Axis(node.text("label"), tuple(Point(named(x), float(x), (f"{key}={x}",)) for x in values), numeric=True)


def _range(node: CheckedMapping, axis: Axis, systems: Sequence[str]) -> Range:
    node.only(("choice", "variants"), ("systems", "values"))
    chosen = node.texts("systems") if "systems" in node.values else tuple(systems)
    known(node, "systems", chosen, systems)
    points = _points(node, axis) if "values" in node.values else axis.names
    return Range(node.text("choice"), chosen, points, value_of(Mapping[str, Words], node, "variants"))


def _points(node: CheckedMapping, axis: Axis) -> tuple[str, ...]:
    names = tuple(map(named, node.values["values"]))
    known(node, "values", names, axis.names)
    return names


def key_of(word: str) -> str:
    """Return the key of a setting ``key=value``."""
    return word.partition("=")[0].strip().lstrip("+")
