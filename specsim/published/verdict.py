"""What a comparison comes to: gaps by system, the order of systems, and a verdict by one stated rule."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

from specsim.published.comparison import Compared

NEAR = 4.0
"""The most that a mean absolute gap may be, in the unit of the figure's gap."""
MEANS = ("theirs", "ours", "ours_half_width", "gap")
APART = 3.5
"""How far apart two published values must be for their order to count, in the same unit."""


class SystemGap(NamedTuple):
    """A system over all points of a figure: means in the figure's unit, gaps in the gap's.

    Attributes
    ----------
    half_width : mean of the points' 95% half widths, NaN for one seed. gap, mean_gap : signed and absolute mean.
    worst_x, worst_gap : the point with the largest gap.
    """

    system: str
    theirs: float
    ours: float
    half_width: float
    gap: float
    mean_gap: float
    worst_x: float
    worst_gap: float

    @property
    def verdict(self) -> str:
        """Whether the mean absolute gap is at most `NEAR`."""
        return "near" if self.mean_gap <= NEAR else "far"


class FigureGap(NamedTuple):
    """A whole figure: its mean absolute gap over all points, and how many pairs keep the published order.

    Attributes
    ----------
    pairs : two systems at one x whose published values are more than `APART` apart. kept : those in the same order.
    """

    mean_gap: float
    pairs: int
    kept: int

    @property
    def verdict(self) -> str:
        """One of four: both the level and the order of the systems hold, one of them, or neither."""
        near, ordered = self.mean_gap <= NEAR, self.pairs > 0 and self.kept == self.pairs
        if near:
            return "reproduced" if ordered or not self.pairs else "level only"
        return "order only" if ordered else "not reproduced"


def system_gaps(one: Compared) -> list[SystemGap]:
    """Return a figure's systems over the published points, the one with the largest mean absolute gap first."""
    found = []
    for system, rows in one.rows.dropna(subset="theirs").groupby("system", sort=False):
        worst = rows.sort_values("gap", key=abs).iloc[-1]
        theirs, ours, half_width, gap = (float(rows[name].mean()) for name in MEANS)
        worst_x, worst_gap, mean_gap = float(worst["x"]), float(worst["gap"]), float(rows["gap"].abs().mean())
        found.append(SystemGap(str(system), theirs, ours, half_width, gap, mean_gap, worst_x, worst_gap))
    return sorted(found, key=lambda each: -each.mean_gap)


def figure_gap(one: Compared) -> FigureGap:
    """Return what a figure comes to over all its systems and points."""
    pairs = kept = 0
    for _, rows in one.rows.groupby("x"):
        for (a, ours_a), (b, ours_b) in combinations(zip(rows["theirs"], rows["ours"], strict=True), 2):
            if _apart(one, a, b) > APART:
                pairs += 1
                kept += (a - b) * (ours_a - ours_b) > 0
    return FigureGap(float(one.rows["gap"].abs().mean()), pairs, kept)


def _apart(one: Compared, a: float, b: float) -> float:
    """Return how far two published values are apart: in points, or in % of the larger."""
    return abs(a - b) if one.figure.gap == "points" else 100 * abs(a - b) / max(abs(a), abs(b))
