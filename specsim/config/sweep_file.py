"""A sweep as a YAML file: every combination, values side by side, values drawn, seeds; its points are those of `-m`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from math import exp, log, prod
from pathlib import Path
from typing import Any

from specsim.config.points import Point, axes_of, check_typed, point_of, points
from specsim.config.schema import MOST_SEED
from specsim.config.values import PythonValue, interval_of
from specsim.errors import SpecsimError
from specsim.files.checked_mapping import CheckedMapping, is_whole, shown
from specsim.files.yaml_file import read_yaml

SECTIONS = ("run", "grid", "zip", "random", "seeds")
SEED = "seed"
MOST_POINTS = 1_000_000
DIGITS = 6
"""Significant digits of a number that is drawn."""
TRIES = 100
"""Draws per point, so that those that were drawn before can be left out."""

Value = str | PythonValue
Axes = dict[str, list[Value]]


def points_of(file: Path, words: Sequence[str] = ()) -> list[Point]:
    """Return the points of a sweep's file: the grid outside, then `zip`, then `random`, the seeds inside.

    Parameters
    ----------
    words : settings of every point, in the place of those that the file's section `run` gives.

    Raises
    ------
    SpecsimError
        One line naming the file and the key that is wrong.
    """
    node = CheckedMapping(str(file), "", read_yaml(file, "YAML file of a sweep"))
    node.only((), SECTIONS)
    given = points(words, sweep=False)[0]
    spans: dict[str, list[Point]] = {
        "run": [point_of(_mapping(node, "run"))],
        "grid": _combined(node, _axes(node, "grid")),
        "zip": _zipped(node, _axes(node, "zip")),
        "random": _drawn(node),
        "seeds": _seeds(node),
    }
    for section, each in spans.items():
        check_typed(each[0], f"{file}: {section}")
    spans["run"] = [{**spans["run"][0], **given}]
    _check_once(node, spans, given)
    _check_count(node, "", map(len, spans.values()))
    return [{key: value for part in parts for key, value in part.items()} for parts in product(*spans.values())]


def _mapping(node: CheckedMapping, name: str) -> Mapping[str, Any]:
    return node.child(name, "settings by key").values if node.given(name) else {}


def _axes(node: CheckedMapping, name: str) -> Axes:
    """Return the values of each key in a section: a list, or text as `-m` has it."""
    found: Axes = {}
    for key, value in _mapping(node, name).items():
        try:
            if isinstance(value, str):
                found[str(key)] = [each[str(key)] for each in points([f"{key}={value}"], sweep=True)]
            elif isinstance(value, list):
                found |= axes_of({key: value}, {})
            else:
                raise SpecsimError(f"{shown(value)} is not a list of values, or a text such as range(1,5)")
        except SpecsimError as error:
            node.refuse(f"{name}.{key}", str(error))
        if not value:
            node.refuse(f"{name}.{key}", "expected at least one value")
    return found


def _check_count(node: CheckedMapping, name: str, lengths: Iterable[int]) -> None:
    count = prod(lengths)
    if count > MOST_POINTS:
        node.refuse(name, f"spans {count:,} points; expected at most {MOST_POINTS:,}")


def _combined(node: CheckedMapping, axes: Axes) -> list[Point]:
    _check_count(node, "grid", map(len, axes.values()))
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def _zipped(node: CheckedMapping, axes: Axes) -> list[Point]:
    lengths = {key: len(values) for key, values in axes.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{key} has {length}" for key, length in lengths.items())
        node.refuse("zip", f"{told}; expected as many values of each key")
    return [dict(zip(axes, values, strict=True)) for values in zip(*axes.values(), strict=True)] if axes else [{}]


def _seeds(node: CheckedMapping) -> list[Point]:
    if not node.given("seeds"):
        return [{}]
    given = node.values["seeds"]
    if is_whole(given, 1, MOST_POINTS):
        return [{SEED: str(seed)} for seed in range(given)]
    if not isinstance(given, list):
        node.fail("seeds", f"how many, or a list of whole numbers between 0 and {MOST_SEED}")
    return [{SEED: str(seed)} for seed in node.wholes("seeds", 0, MOST_SEED)]


def _drawn(node: CheckedMapping) -> list[Point]:
    """Return the first points of a stream that the seed and the keys decide: more points begin with the same."""
    if not node.given("random"):
        return [{}]
    own = node.child("random", "points, draw and seed")
    own.only(("points", "draw"), (SEED,))
    wanted = own.whole("points", 1, MOST_POINTS)
    seed = own.whole(SEED, 0, MOST_SEED) if own.given(SEED) else 0
    draw = own.child("draw", "settings by key").values
    if not draw:
        own.refuse("draw", "expected at least one setting, such as rps: interval(1,8)")
    streams = {str(key): _stream(own, str(key), text, seed) for key, text in draw.items()}
    distinct: dict[str, Point] = {}
    for values in islice(zip(*streams.values(), strict=True), TRIES * wanted):
        point = dict(zip(streams, values, strict=True))
        distinct.setdefault(str({key: str(value) for key, value in point.items()}), point)
        if len(distinct) == wanted:
            return list(distinct.values())
    own.refuse("points", f"{wanted} is more than the {len(distinct)} different points that were drawn")


def _stream(node: CheckedMapping, key: str, given: Any, seed: int) -> Iterator[Value]:
    """Yield values of a key for ever: from an interval, or from the values that it may have."""
    import numpy as np

    rng = np.random.default_rng([seed, *key.encode()])
    try:
        bounds = interval_of(f"{key}={given}", given) if isinstance(given, str) else None
    except SpecsimError as error:
        node.refuse(f"draw.{key}", str(error))
    if bounds is None:
        draw = CheckedMapping(node.source, node.path("draw"), {"draw": {key: given}})
        values = _axes(CheckedMapping(node.source, node.key, draw.values), "draw")[key]
        return (values[int(rng.integers(len(values)))] for _ in iter(int, 1))
    low, high, even = bounds
    if isinstance(low, int) and isinstance(high, int):
        return (str(int(rng.integers(low, high + 1))) for _ in iter(int, 1))
    if even:
        return (f"{exp(rng.uniform(log(low), log(high))):.{DIGITS}g}" for _ in iter(int, 1))
    return (f"{rng.uniform(low, high):.{DIGITS}g}" for _ in iter(int, 1))


def _check_once(node: CheckedMapping, spans: Mapping[str, Sequence[Point]], given: Point) -> None:
    seen: dict[str, str] = {}
    for section, each in spans.items():
        for key in each[0]:
            if key in seen:
                first = "is given on the command line" if key in given else f"stands in {seen[key]}"
                node.refuse(section, f"{key} {first}, too; expected it once")
            seen[key] = section
