"""An experiment YAML of conf/published/: a paper's figures, the runs behind them, and the published values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from specsim.errors import SpecsimError, nearest
from specsim.files.checked_mapping import CheckedMapping, expanded, is_number
from specsim.files.paths import is_path, shipped
from specsim.files.yaml_file import read_yaml

MOST_SEED = 2**31 - 1
GAPS = {"points": "points", "percent": "%"}
"""How ours is held against theirs, and the unit of that: a difference, or a difference in % of theirs."""
RESERVED = ("out", "seed")
"""Keys that an experiment's words cannot set: it has seeds of its own, and its runs their place."""
REQUESTS = "requests"
"""The key that the short form sets; words may set it for the whole form."""


@dataclass(frozen=True, slots=True)
class Axis:
    """What runs along a figure's x axis: a key of a run, its label with the unit, and its values, rising."""

    key: str
    label: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """One published figure.

    Attributes
    ----------
    claim : what the figure is there to show, in one line. metric : a column of a sweep's table.
    scale : what turns that metric into the figure's `unit`. label : of the y axis. gap : a key of `GAPS`.
    speedup_over : the system whose metric is divided by each other's, seed by seed; None: the metric itself.
    values : by system, theirs at each value of the axis, None where none is stated.
    notes : sentences that the page says of its gaps.
    """

    name: str
    title: str
    claim: str
    metric: str
    scale: float
    unit: str
    label: str
    gap: Literal["points", "percent"]
    speedup_over: str | None
    values: Mapping[str, tuple[float | None, ...]]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Quick:
    """A short form of an experiment: fewer values of the axis, one seed, and only so many requests of a run."""

    values: tuple[float, ...]
    requests: int


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
    figures: tuple[Figure, ...]


def experiments(names: tuple[str, ...] = ()) -> tuple[Experiment, ...]:
    """Return the experiments of these names, figures' names or paths; the shipped ones if none is given.

    Raises
    ------
    SpecsimError
        One line when a name is unknown, or a file is not an experiment.
    """
    shipped_ones = {path.stem: read_experiment(path) for path in sorted((shipped("conf") / "published").glob("*.yaml"))}
    by_figure = {figure.name: each for each in shipped_ones.values() for figure in each.figures}
    found: dict[Path, Experiment] = {}
    for name in names or tuple(shipped_ones):
        each = read_experiment(expanded(name)) if is_path(name) else (shipped_ones | by_figure).get(name)
        if each is None:
            raise SpecsimError(f"reproduce {name}: unknown{nearest(name, [*shipped_ones, *by_figure])}")
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
    node.only(("paper", "source", "axis", "seeds", "quick", "common", "systems", "figures"), ("choices",))
    axis = _axis(node.child("axis"))
    systems = node.child("systems", "words of `specsim run` by system", 1)
    words = {str(name): _words(systems, name) for name in systems.values}
    seeds = node.wholes("seeds", 0, MOST_SEED)
    if len(set(seeds)) < len(seeds):
        node.fail("seeds", "a list in which each seed stands once")
    figures = node.children("figures", "figures by name", "keys of a figure")
    return Experiment(
        name=path.stem,
        file=path,
        paper=node.text("paper"),
        source=node.text("source"),
        choices=_sentences(node, "choices"),
        axis=axis,
        seeds=seeds,
        quick=_quick(node.child("quick"), axis),
        common=_words(node, "common"),
        systems=words,
        figures=tuple(_figure(name, each, axis, words) for name, each in figures.items()),
    )


def _axis(node: CheckedMapping) -> Axis:
    node.only(("key", "label", "values"))
    key = node.text("key")
    if key in (*RESERVED, REQUESTS):
        node.fail("key", f"a key of a run other than {', '.join(RESERVED)} and {REQUESTS}")
    return Axis(key, node.text("label"), _rising(node, "values"))


def _quick(node: CheckedMapping, axis: Axis) -> Quick:
    node.only(("values", "requests"))
    values = _rising(node, "values")
    if not set(values) <= set(axis.values):
        node.fail("values", "a list of values of the axis")
    return Quick(values, node.whole("requests"))


def _rising(node: CheckedMapping, name: str) -> tuple[float, ...]:
    value = node.values.get(name)
    if isinstance(value, list) and value and all(map(is_number, value)) and value == sorted(set(value)):
        return tuple(value)
    node.fail(name, "a list of finite numbers, each above the one before")


def _words(node: CheckedMapping, name: str) -> tuple[str, ...]:
    words = node.texts(name, "a list of settings key=value")
    for word in words:
        if key_of(word) in RESERVED:
            node.refuse(name, f"{word}: {key_of(word)} is the experiment's own; expected another key")
    return words


def key_of(word: str) -> str:
    """Return the key of a setting ``key=value``."""
    return word.partition("=")[0].strip().lstrip("+")


def _figure(name: str, node: CheckedMapping, axis: Axis, systems: Mapping[str, object]) -> Figure:
    node.only(("title", "claim", "metric", "scale", "unit", "label", "gap", "values"), ("notes", "speedup_over"))
    values = node.child("values", "published values by system", 1)
    theirs = {}
    for system in values.values:
        if system not in systems:
            values.refuse(system, f"no such system{nearest(str(system), systems)}")
        theirs[system] = _stated(values, system, axis)
    gap = cast(Literal["points", "percent"], node.choice("gap", GAPS))
    over = node.choice("speedup_over", systems) if node.given("speedup_over") else None
    if over is not None and over in theirs:
        values.refuse(over, "has a speedup over itself of 1; expected the other systems")
    if gap == "percent" and 0 in (value for each in theirs.values() for value in each):
        node.refuse("values", "a published value of 0 has no gap in percent; expected gap: points")
    told = {key: node.text(key) for key in ("title", "claim", "metric", "unit", "label")}
    notes = _sentences(node, "notes")
    scale = node.number("scale", above=0)
    return Figure(name=name, scale=scale, gap=gap, speedup_over=over, values=theirs, notes=notes, **told)


def _stated(node: CheckedMapping, system: str, axis: Axis) -> tuple[float | None, ...]:
    """Return what was published at each value of the axis, None where the paper states nothing."""
    value = node.values[system]
    those = [each for each in value if each is not None] if isinstance(value, list) else []
    if not those or len(value) != len(axis.values) or not all(is_number(each) and each >= 0 for each in those):
        node.fail(
            system, f"a list of {len(axis.values)} numbers of at least 0, one for each value of {axis.key}, or null"
        )
    return tuple(value)


def _sentences(node: CheckedMapping, name: str) -> tuple[str, ...]:
    return node.texts(name, "a list of sentences") if node.given(name) else ()
