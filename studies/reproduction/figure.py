"""One published figure, as an experiment YAML writes it: lines, published values, claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from profiler.typed import typed, value_of
from specsim.files.checked_mapping import CheckedMapping
from specsim.metrics.sweep_table import ALL
from studies.reproduction.claim import Claim, known, read_claim

GAPS = {"points": "points", "percent": "%"}
"""How ours is held against theirs, and the unit of that: a difference, or a difference in % of theirs."""


@dataclass(frozen=True, slots=True)
class FigureLine:
    """A line of a figure: a system, the column of a sweep's table that it shows, and of which SLO class."""

    system: str
    metric: str
    of: str = ALL


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
    lines: Mapping[str, FigureLine]
    values: Mapping[str, tuple[int | float | None, ...]]
    claims: tuple[Claim, ...]
    title: str
    claim: str
    scale: float
    unit: str
    label: str
    gap: Literal["points", "percent"]
    speedup_over: str | None = None
    why: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def systems(self) -> set[str]:
        """The systems whose runs it needs."""
        over = set() if self.speedup_over is None else {self.speedup_over}
        return over | {line.system for line in self.lines.values()}


def read_figure(name: str, node: CheckedMapping, points: Sequence[str], systems: Sequence[str]) -> Figure:
    """Return the figure that a YAML describes; `points` are the names of the axis.

    Raises
    ------
    SpecsimError
        One line that names the file, the key and what was expected.
    """
    given = node.values
    over = given.get("speedup_over")
    values: dict[str, tuple[int | float | None, ...]] = (
        value_of(Mapping[str, tuple[int | float | None, ...]], node, "values") if "values" in given else {}
    )
    if not values and "claims" not in given:
        node.refuse("values", "missing key; expected values, claims or both")
    if "lines" in given:
        lines: dict[str, FigureLine] = value_of(Mapping[str, FigureLine], node, "lines")
    else:
        drawn = values if values and "claims" not in given else systems
        metric, of = node.text("metric"), node.text("of") if "of" in given else ALL
        lines = {each: FigureLine(each, metric, of) for each in systems if each in drawn and each != over}
    known(node, "system", [each.system for each in lines.values()], systems)
    known(node, "values", list(values), list(lines) if "lines" in given else systems)
    for line, each in values.items():
        if len(each) != len(points):
            node.refuse(f"values.{line}", f"{len(each)} values; expected {len(points)}, one for each point of the axis")
    claims = node.items("claims", "claims") if "claims" in given else ()
    told = tuple(read_claim(each, list(lines), points, speedup=over is not None) for each in claims)
    rest = {key: value for key, value in given.items() if key not in ("metric", "of", "lines", "values", "claims")}
    held = CheckedMapping(node.source, node.key, rest)
    figure = typed(Figure, held, name=name, lines=lines, values=values, claims=told)
    known(node, "why", list(figure.why), list(values))
    known(node, "speedup_over", [figure.speedup_over] if figure.speedup_over else [], systems)
    return figure
