"""One published figure, as an experiment YAML writes it: lines, published values, claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from specsim.errors import nearest
from specsim.files.checked_mapping import CheckedMapping, is_number
from specsim.metrics.sweep_table import ALL
from studies.reproduction.claim import Claim, read_claims

GAPS = {"points": "points", "percent": "%"}
"""How ours is held against theirs, and the unit of that: a difference, or a difference in % of theirs."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a figure: a system, the column of a sweep's table that it shows, and of which SLO class."""

    system: str
    metric: str
    of: str


@dataclass(frozen=True, slots=True)
class Figure:
    """One published figure.

    Attributes
    ----------
    claim : what the figure is there to show, in one line. lines : by name. claims : what the paper says in numbers.
    scale : what turns a metric into the figure's `unit`. label : of the y axis. gap : a key of `GAPS`.
    speedup_over : the system whose metric is divided by each other's, seed by seed; None: the metric itself.
    values : by line, theirs at each point of the axis, None where none is stated.
    why : what explains the gap of a line, by line. notes : sentences that the page says of the figure.
    """

    name: str
    title: str
    claim: str
    lines: Mapping[str, Line]
    scale: float
    unit: str
    label: str
    gap: Literal["points", "percent"]
    speedup_over: str | None
    values: Mapping[str, tuple[float | None, ...]]
    claims: tuple[Claim, ...]
    why: Mapping[str, str]
    notes: tuple[str, ...]

    @property
    def systems(self) -> set[str]:
        """The systems whose runs it needs."""
        over = set() if self.speedup_over is None else {self.speedup_over}
        return over | {line.system for line in self.lines.values()}


def read_figure(
    name: str, node: CheckedMapping, points: Sequence[str], systems: Sequence[str], *, numeric: bool
) -> Figure:
    """Return the figure that a YAML describes; `points` are the names of the axis, `numeric` whether they are numbers.

    Raises
    ------
    SpecsimError
        One line that names the file, the key and what was expected.
    """
    needed = ("title", "claim", "scale", "unit", "label", "gap")
    node.only(needed, ("metric", "of", "lines", "values", "claims", "why", "notes", "speedup_over"))
    over = node.choice("speedup_over", systems) if node.given("speedup_over") else None
    lines = _lines(node, systems, over)
    claims = read_claims(node, list(lines), points, numeric=numeric, speedup=over is not None)
    values = _values(node, lines, points, over)
    if not values and not claims:
        node.refuse("values", "missing key; expected values, claims or both")
    gap = cast(Literal["points", "percent"], node.choice("gap", GAPS))
    if gap == "percent" and 0 in (value for each in values.values() for value in each):
        node.refuse("values", "a published value of 0 has no gap in percent; expected gap: points")
    return Figure(
        name=name,
        lines=lines,
        scale=node.number("scale", above=0),
        gap=gap,
        speedup_over=over,
        values=values,
        claims=claims,
        why=_why(node, values),
        notes=node.texts("notes", "a list of sentences") if node.given("notes") else (),
        **{key: node.text(key) for key in ("title", "claim", "unit", "label")},
    )


def _lines(node: CheckedMapping, systems: Sequence[str], over: str | None) -> dict[str, Line]:
    """Return the lines by name: those given, or a line for each system with published values, or for each system."""
    if node.given("lines"):
        if node.given("metric"):
            node.refuse("metric", "stands beside lines; expected a metric of each line")
        given = node.children("lines", "lines by name", "a system and a metric")
        return {name: _line(each, systems) for name, each in given.items()}
    metric, of = node.text("metric"), node.text("of") if node.given("of") else ALL
    stated = node.child("values", "published values by system", 1) if node.given("values") else None
    for name in stated.values if stated is not None else ():
        if stated is not None and name not in systems:
            stated.refuse(name, f"no such line{nearest(str(name), systems)}")
    drawn = systems if stated is None or node.given("claims") else [each for each in systems if each in stated.values]
    return {name: Line(name, metric, of) for name in drawn if name != over}


def _line(node: CheckedMapping, systems: Sequence[str]) -> Line:
    node.only(("system", "metric"), ("of",))
    return Line(node.choice("system", systems), node.text("metric"), node.text("of") if node.given("of") else ALL)


def _values(
    node: CheckedMapping, lines: Mapping[str, Line], points: Sequence[str], over: str | None
) -> dict[str, tuple[float | None, ...]]:
    if not node.given("values"):
        return {}
    values = node.child("values", "published values by system", 1)
    theirs = {}
    for name in values.values:
        if over is not None and name == over:
            values.refuse(over, "has a speedup over itself of 1; expected the other systems")
        if name not in lines:
            values.refuse(name, f"no such line{nearest(str(name), lines)}")
        theirs[str(name)] = _stated(values, name, len(points))
    return theirs


def _why(node: CheckedMapping, values: Mapping[str, object]) -> dict[str, str]:
    if not node.given("why"):
        return {}
    told = node.child("why", "a sentence by line")
    for name in told.values:
        if name not in values:
            told.refuse(name, f"no line with published values{nearest(str(name), values)}")
    return {str(name): told.text(name) for name in told.values}


def _stated(node: CheckedMapping, line: str, count: int) -> tuple[float | None, ...]:
    """Return what was published at each point of the axis, None where the paper states nothing."""
    value = node.values[line]
    those = [each for each in value if each is not None] if isinstance(value, list) else []
    if not those or len(value) != count or not all(is_number(each) and each >= 0 for each in those):
        node.fail(line, f"a list of {count} numbers of at least 0, one for each point of the axis, or null")
    return tuple(value)
