"""The verdict of a comparison: gaps by line, the order of lines, and a verdict by one stated rule."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from studies.report import half_width
from studies.reproduction.comparison import ComparedFigure, by_line, means

if TYPE_CHECKING:
    from pandas import DataFrame

NEAR = 4.0
"""The most that a mean absolute gap may be, in the unit of the figure's gap."""
MEANS = ("theirs", "ours", "ours_half_width", "gap")
APART = 3.5
"""How far apart two published values must be for their order to count, in the same unit."""


class LineGap(NamedTuple):
    """A line over all published points of a figure: means in the figure's unit, gaps in the gap's.

    Attributes
    ----------
    half_width : mean of the points' 95% half widths, NaN for one seed. gap, mean_gap : signed and absolute mean.
    worst_point, worst_gap : the point with the largest gap.
    """

    line: str
    theirs: float
    ours: float
    half_width: float
    gap: float
    mean_gap: float
    worst_point: str
    worst_gap: float

    @property
    def verdict(self) -> str:
        """Whether the mean absolute gap is at most `NEAR`."""
        return "near" if self.mean_gap <= NEAR else "far"


class FigureGap(NamedTuple):
    """A whole figure: its mean absolute gap over all points, and how many pairs keep the published order.

    Attributes
    ----------
    pairs : two lines at one point whose published values are more than `APART` apart.
    kept : those in the same order. turned : those in the other order, by the 95% interval of the paired seeds.
    """

    mean_gap: float
    pairs: int
    kept: int
    turned: int

    @property
    def verdict(self) -> str:
        """The verdict: both the level and the order of the lines hold, one of them, or neither."""
        near, ordered = self.mean_gap <= NEAR, self.pairs > 0 and self.kept == self.pairs
        if near:
            return "reproduced" if ordered or not self.pairs else "level only"
        return "order only" if ordered else "not reproduced"


def line_gaps(one: ComparedFigure) -> list[LineGap]:
    """Return a figure's lines over the published points, the one with the largest mean absolute gap first."""
    found = []
    for line, rows in means(one.figure, one.chosen).dropna(subset="theirs").groupby("line", sort=False):
        worst = rows.sort_values("gap", key=abs).iloc[-1]
        theirs, ours, half_width, gap = (float(rows[name].mean()) for name in MEANS)
        worst_gap, mean_gap = float(worst["gap"]), float(rows["gap"].abs().mean())
        found.append(LineGap(str(line), theirs, ours, half_width, gap, mean_gap, str(worst["point"]), worst_gap))
    return sorted(found, key=lambda each: -each.mean_gap)


def figure_gap(one: ComparedFigure, rows: DataFrame) -> FigureGap:
    """Return what rows of a figure come to over all its lines and points."""
    told = means(one.figure, rows).dropna(subset="theirs")
    pairs = kept = turned = 0
    _, _, _, published, by_seed = by_line(rows)
    for theirs, ours in zip(published.T, by_seed.transpose(2, 0, 1), strict=True):
        for a, b in combinations(range(len(theirs)), 2):
            if _apart(one, theirs[a], theirs[b]) > APART:
                ahead = (ours[a] - ours[b]) * (1 if theirs[a] > theirs[b] else -1)
                pairs += 1
                kept += float(ahead.mean()) > 0
                turned += float(ahead.mean() + half_width(ahead)) < 0
    return FigureGap(float(told["gap"].abs().mean()), pairs, kept, turned)


def _apart(one: ComparedFigure, a: float, b: float) -> float:
    """Return how far two published values are apart, in points or in % of the larger; NaN where one is missing."""
    return abs(a - b) if one.figure.gap == "points" else 100 * abs(a - b) / max(abs(a), abs(b))
