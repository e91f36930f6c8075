"""An experiment YAML of experiments/: a paper's figures, the runs behind them, and the published values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specsim.config.points import check_typed
from specsim.errors import SpecsimError, nearest
from specsim.files.checked_mapping import CheckedMapping, expanded, is_number
from specsim.files.yaml_file import is_path, read_yaml
from studies.reproduction.claim import named
from studies.reproduction.figure import Figure, read_figure

FOLDER = Path(__file__).with_name("experiments")
MOST_SEED = 2**31 - 1
RESERVED = ("out", "seed")
"""Keys that an experiment's words cannot set: it has seeds of its own, and its runs their place."""
REQUESTS = "requests"
"""The key that the short form sets; words may set it for the whole form."""
WORDS = "a list of settings key=value"


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the x axis: its name, where it stands, and the words that make it."""

    name: str
    x: float
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """What runs along a figure's x axis: its label with the unit, and its points, from left to right.

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
    """What a paper leaves out, varied: words of each variant beside those of the `systems`, at some `points`."""

    choice: str
    systems: tuple[str, ...]
    points: tuple[str, ...]
    variants: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Experiment:
    """Figures of a paper that one set of runs makes.

    Attributes
    ----------
    choices : sentences on what the paper leaves out and was chosen here.
    common : words of `specsim run` for every run. systems : by the paper's name, the words that make that system.
    """

    name: str
    file: Path
    paper: str
    source: str
    choices: tuple[str, ...]
    axis: Axis
    seeds: tuple[int, ...]
    quick: Quick
    common: tuple[str, ...]
    systems: Mapping[str, tuple[str, ...]]
    ranges: tuple[Range, ...]
    figures: tuple[Figure, ...]


def experiments(names: tuple[str, ...] = ()) -> tuple[Experiment, ...]:
    """Return the experiments of these names, figures' names or paths; all of `FOLDER` if none is given.

    Raises
    ------
    SpecsimError
        One line when a name is unknown, or a file is not an experiment.
    """
    known = {path.stem: read_experiment(path) for path in sorted(FOLDER.glob("*.yaml"))}
    by_figure = {figure.name: each for each in known.values() for figure in each.figures}
    found: dict[Path, Experiment] = {}
    for name in names or tuple(known):
        each = read_experiment(expanded(name)) if is_path(name) else (known | by_figure).get(name)
        if each is None:
            raise SpecsimError(f"reproduce {name}: unknown{nearest(name, [*known, *by_figure])}")
        found[each.file] = each
    return tuple(found.values())


def read_experiment(path: Path) -> Experiment:
    """Return the experiment that a YAML file describes; its name is the file's.

    Raises
    ------
    SpecsimError
        One line that names the file, the key and what was expected.
    """
    node = CheckedMapping(str(path), "", read_yaml(path, "experiment YAML"))
    node.only(("paper", "source", "axis", "seeds", "quick", "common", "systems", "figures"), ("choices", "ranges"))
    axis = _axis(node.child("axis"))
    along = str(node.child("axis").values.get("key"))
    systems = node.child("systems", "words of `specsim run` by system", 1)
    words = {str(name): _words(systems, name, along) for name in systems.values}
    seeds = node.wholes("seeds", 0, MOST_SEED)
    if len(set(seeds)) < len(seeds):
        node.fail("seeds", "a list in which each seed stands once")
    figures = node.children("figures", "figures by name", "keys of a figure")
    for name in figures:
        if not re.fullmatch(r"\w[\w.-]*", name):
            node.refuse("figures", f"{name}: names a file; expected letters, digits, _, - and .")
    names, numeric = axis.names, axis.numeric
    return Experiment(
        name=path.stem,
        file=path,
        paper=node.text("paper"),
        source=node.text("source"),
        choices=node.texts("choices", "a list of sentences") if node.given("choices") else (),
        axis=axis,
        seeds=seeds,
        quick=_quick(node.child("quick"), axis),
        common=_words(node, "common", along),
        systems=words,
        ranges=_ranges(node, axis, tuple(words)),
        figures=tuple(read_figure(name, each, names, tuple(words), numeric=numeric) for name, each in figures.items()),
    )


def _axis(node: CheckedMapping) -> Axis:
    if "points" in node.values:
        node.only(("label", "points"))
        points = node.child("points", "words of `specsim run` by point", 1)
        numeric = all(map(is_number, points.values))
        if numeric and list(points.values) != sorted(points.values):
            node.refuse("points", "numbers stand in another order than theirs; expected rising ones")
        places = points.values if numeric else range(len(points.values))
        named_points = zip(points.values, places, strict=True)
        return Axis(
            node.text("label"),
            tuple(Point(named(name), float(x), _words(points, name)) for name, x in named_points),
            numeric,
        )
    node.only(("key", "label", "values"))
    key = node.text("key")
    if key in (*RESERVED, REQUESTS):
        node.fail("key", f"a key of a run other than {', '.join(RESERVED)} and {REQUESTS}")
    values = _rising(node, "values")
    return Axis(node.text("label"), tuple(Point(named(x), float(x), (f"{key}={x}",)) for x in values), numeric=True)


def _quick(node: CheckedMapping, axis: Axis) -> Quick:
    node.only(("values", "requests"))
    return Quick(_points(node, axis), node.whole("requests"))


def _ranges(node: CheckedMapping, axis: Axis, systems: Sequence[str]) -> tuple[Range, ...]:
    if not node.given("ranges"):
        return ()
    found: list[Range] = []
    for each in node.items("ranges", "what is varied"):
        each.only(("choice", "variants"), ("systems", "values"))
        chosen = each.texts("systems", "a list of systems") if each.given("systems") else tuple(systems)
        for name in chosen:
            if name not in systems:
                each.refuse("systems", f"{name}: no such system{nearest(name, systems)}")
        points = _points(each, axis) if each.given("values") else axis.names
        variants = each.child("variants", "words by variant", 1)
        words = {str(name): _words(variants, name) for name in variants.values}
        for name in words:
            if not name.strip() or any(name in one.variants for one in found):
                variants.refuse(name, "stands for another variant; expected a name of its own")
        found.append(Range(each.text("choice"), chosen, points, words))
    return tuple(found)


def _points(node: CheckedMapping, axis: Axis) -> tuple[str, ...]:
    value = node.values.get("values")
    names = tuple(map(named, value)) if isinstance(value, list) else ()
    if not names or len(set(names)) < len(names) or not set(names) <= set(axis.names):
        node.fail("values", "a list of values of the axis")
    return names


def _rising(node: CheckedMapping, name: str) -> tuple[float, ...]:
    value = node.values.get(name)
    if isinstance(value, list) and value and all(map(is_number, value)) and value == sorted(set(value)):
        return tuple(value)
    node.fail(name, "a list of finite numbers, each above the one before")


def _words(node: CheckedMapping, name: str, axis: str = "") -> tuple[str, ...]:
    """Return words that set neither the experiment's own keys nor that of its `axis`."""
    words = node.texts(name, WORDS)
    for word in words:
        if key_of(word) == axis:
            node.refuse(name, f"{word}: {axis} is the axis's own; expected another key")
        check_typed([key_of(word)], node.source)
        if key_of(word) in RESERVED:
            node.refuse(name, f"{word}: {key_of(word)} is the experiment's own; expected another key")
    return words


def key_of(word: str) -> str:
    """Return the key of a setting ``key=value``."""
    return word.partition("=")[0].strip().lstrip("+")
