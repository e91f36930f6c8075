"""Our runs against a paper's claims: a number with its interval over seeds, or where an inequality holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, isfinite, nan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from studies.report import half_width, students_t
from studies.reproduction.claim import Claim
from studies.reproduction.comparison import ComparedFigure, Floats, by_line

if TYPE_CHECKING:
    from pandas import DataFrame

CLOSE = 10.0
"""The most that ours may be off a paper's number, in % of that, to be called reproduced."""
Wide = Mapping[str, Floats]
"""Ours of each line, by seed (rows) and x (columns)."""
REPRODUCED, DIRECTION, NOT, UNDECIDED = "reproduced", "direction only", "not reproduced", "undecided"


class Finding(NamedTuple):
    """Our value of a claim.

    Attributes
    ----------
    said : ours in words. gap : in % of the paper's number, NaN for an inequality and where ours is no number.
    """

    claim: Claim
    said: str
    gap: float
    verdict: str


def findings(one: ComparedFigure, rows: DataFrame) -> list[Finding]:
    """Return a finding for each claim of a figure whose lines and points have `rows`."""
    lines, xs, points, _, ours = by_line(rows)
    whole, found = dict(zip(lines, ours, strict=True)), []
    for each in one.figure.claims:
        places = [place for place, point in enumerate(points) if point in each.at]
        if places and {each.of, *each.over} <= set(whole):
            wide = {line: whole[line][:, places] for line in (each.of, *each.over)}
            with np.errstate(divide="ignore", invalid="ignore"):
                found.append(_finding(each, wide, xs[places], one.figure.scale, float(xs[-1])))
    return found


def _finding(claim: Claim, wide: Wide, xs: Floats, scale: float, largest: float) -> Finding:
    """Return what a claim comes to, `wide` of ours at `xs`."""
    if claim.kind == "above":
        return _inequality(claim, wide)
    if claim.kind == "trend":
        return _trend(claim, wide)
    statistics: dict[str, Callable[[Wide], float]] = {
        "ratio": lambda each: _picked(claim, _ratio(claim, each, scale)),
        "share": lambda each: float(100 * (_ahead(claim, each).mean(axis=0) > 0).mean()),
        "crossing": lambda each: _crossing(xs, _ratio(claim, each, scale)),
        "value": lambda each: _picked(claim, each[claim.of].mean(axis=0)),
    }
    statistic = statistics[claim.kind]
    return _number(claim, statistic(wide), _half_width(statistic, wide), largest=largest)


def _ratio(claim: Claim, wide: Wide, whole: float) -> Floats:
    """Return by x by how much `of` is better than the best of `over`: above 1 where it is, of the seeds' means."""
    own, other = wide[claim.of].mean(axis=0), _best(claim, wide).mean(axis=0)
    if claim.shortfall:
        own, other = whole - own, whole - other
    less = (claim.better == "less") != claim.shortfall
    ratio: Floats = other / own if less else own / other
    return ratio


def _best(claim: Claim, wide: Wide) -> Floats:
    """Return by seed (rows) and x (columns) what the best line of `over` has, by the seeds' mean there; else `than`."""
    if not claim.over:
        return np.full_like(wide[claim.of], claim.than)
    over = np.array([wide[line] for line in claim.over])
    average = over.mean(axis=1)
    chosen = average.argmax(axis=0) if claim.better == "more" else average.argmin(axis=0)
    return over[chosen, :, np.arange(len(chosen))].T


def _picked(claim: Claim, values: Floats) -> float:
    """Return what is taken of the points that have a number, NaN if none has."""
    told = values[~np.isnan(values)]
    picks: dict[str, Callable[[Floats], float]] = {"mean": np.mean, "most": np.max, "least": np.min}
    return float(picks[claim.pick](told)) if len(told) else nan


def _crossing(xs: Floats, ratio: Floats) -> float:
    """Return the x from which a ratio stays below 1, between its points on a straight line.

    It is inf if the ratio ends above 1, and -inf if it is below 1 throughout.
    """
    above = [place for place, value in enumerate(ratio) if value >= 1]
    if not above:
        return -inf
    if above[-1] == len(ratio) - 1:
        return inf
    last = above[-1]
    (x, next_x), (y, next_y) = xs[last : last + 2], ratio[last : last + 2]
    return float(x + (next_x - x) * (y - 1) / (y - next_y))


def _half_width(statistic: Callable[[Wide], float], wide: Wide) -> float:
    """Return the half width of a 95% interval over seeds, by the jackknife: each seed is left out once."""
    count = len(next(iter(wide.values())))
    if count < 2:
        return nan
    without = np.array(
        [statistic({line: np.delete(each, seed, 0) for line, each in wide.items()}) for seed in range(count)]
    )
    if not np.isfinite(without).all():
        return nan
    spread = np.sqrt((count - 1) / count * ((without - without.mean()) ** 2).sum())
    return float(students_t(count) * spread)


def _number(claim: Claim, ours: float, half_width: float, *, largest: float) -> Finding:
    paper = claim.paper or nan
    if not isfinite(ours):
        if claim.kind == "crossing":
            return Finding(claim, f"none up to {largest:g}" if ours == inf else "below from the first on", nan, NOT)
        if claim.shortfall and ours == inf:
            return Finding(claim, "no violation", nan, DIRECTION)
        return Finding(claim, "no number", nan, NOT)
    gap = 100 * (ours - paper) / paper
    interval = f" ± {half_width:.2g}" if isfinite(half_width) else ""
    told = f"{ours:.3g}{interval}"
    if abs(gap) <= CLOSE:
        return Finding(claim, told, gap, REPRODUCED)
    same = claim.kind == "ratio" and (ours - 1) * (paper - 1) > 0
    return Finding(claim, told, gap, DIRECTION if same else NOT)


def _ahead(claim: Claim, wide: Wide) -> Floats:
    """Return by seed (rows) and x (columns) by how much `of` is better than the best of `over`."""
    return (wide[claim.of] - _best(claim, wide)) * (1 if claim.better == "more" else -1)


def _inequality(claim: Claim, wide: Wide) -> Finding:
    """Return at how many points `of` is better by the 95% interval of the paired seeds, and at how many it is worse."""
    ahead = _ahead(claim, wide)
    mean, width, points = ahead.mean(axis=0), half_width(ahead), ahead.shape[1]
    holds, fails = int((mean - width > 0).sum()), int((mean + width < 0).sum())
    told = f"holds at {holds} of {points}" + (f", fails at {fails}" if fails else "")
    told += f", undecided at {points - holds - fails}" if points > holds + fails else ""
    verdict = REPRODUCED if holds == points else NOT if fails else UNDECIDED
    return Finding(claim, told, nan, verdict)


def _trend(claim: Claim, wide: Wide) -> Finding:
    """Return how `of`, or its lead over the best of `over`, is at the first and last point, and whether that is better.

    The verdict follows the 95% interval of the difference over paired seeds. Without `over` the numbers are those of
    the line.
    """
    told = wide[claim.of] - (_best(claim, wide) if claim.over else 0)
    first, last = told[:, 0], told[:, -1]
    better = (last - first) * (1 if claim.better == "more" else -1)
    mean, width = float(better.mean()), float(half_width(better))
    verdict = REPRODUCED if mean - width > 0 else NOT if mean + width < 0 else UNDECIDED
    return Finding(claim, f"from {first.mean():.3g} to {last.mean():.3g}", nan, verdict)
