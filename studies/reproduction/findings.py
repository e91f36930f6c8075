"""Our runs against a paper's claims: a number with its interval over seeds, or where an inequality holds."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite, nan
from typing import TYPE_CHECKING, Any, NamedTuple

from specsim.metrics.seeds import LEVEL
from specsim.metrics.sweep_table import SEED
from studies.report import half_width
from studies.reproduction.claim import Claim
from studies.reproduction.comparison import Compared
from studies.reproduction.running import PLACE

if TYPE_CHECKING:
    from pandas import DataFrame, Series

CLOSE = 10.0
"""The most that ours may be off a paper's number, in % of that, to be called reproduced."""
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


def findings(one: Compared, rows: DataFrame) -> list[Finding]:
    """Return a finding for each claim of a figure whose lines and points have `rows`."""
    whole: Any = rows.pivot_table("ours", [SEED], ["line", "x"], sort=True)
    found, largest = [], float(rows["x"].max())
    for each in one.figure.claims:
        here = rows[rows[PLACE].isin(each.at)]
        if {each.of, *each.over} <= set(here["line"]):
            wide = whole.loc[:, whole.columns.isin(here["x"].unique(), level="x")].dropna(how="all")
            found.append(_finding(each, wide, one.figure.scale, largest))
    return found


def _finding(claim: Claim, wide: Any, scale: float, largest: float) -> Finding:
    """Return what a claim comes to, `wide` of ours by seed (rows) and by line and x (columns)."""
    if claim.kind == "above":
        return _inequality(claim, wide)
    if claim.kind == "trend":
        return _trend(claim, wide)
    statistics: dict[str, Callable[[DataFrame], float]] = {
        "ratio": lambda each: _picked(claim, _ratio(claim, each, scale)),
        "share": lambda each: _share(claim, each),
        "crossing": lambda each: _crossing(_ratio(claim, each, scale)),
        "value": lambda each: _picked(claim, _means(each[claim.of])),
    }
    statistic = statistics[claim.kind]
    return _number(claim, statistic(wide), _half_width(statistic, wide), largest=largest)


def _ratio(claim: Claim, wide: DataFrame, whole: float) -> Series[float]:
    """Return by x by how much `of` is better than the best of `over`: above 1 where it is, of the seeds' means."""
    own, other = _means(wide[claim.of]), _means(_best(claim, wide))
    if claim.shortfall:
        own, other = whole - own, whole - other
    less = (claim.better == "less") != claim.shortfall
    ratio: Series[float] = other / own if less else own / other
    return ratio


def _means(by_seed: Any) -> Series[float]:
    """Return the mean over seeds by x."""
    found: Series[float] = by_seed.mean()
    return found


def _best(claim: Claim, wide: Any) -> Any:
    """Return by seed (rows) and x (columns) what the best line of `over` has, by the seeds' mean there; else `than`."""
    if not claim.over:
        return wide[claim.of] * 0 + claim.than
    average = wide[list(claim.over)].mean().unstack("line")
    chosen = average.idxmax(axis=1) if claim.better == "more" else average.idxmin(axis=1)
    best = wide[[(line, x) for x, line in chosen.items()]].droplevel("line", axis=1)
    return best[wide[claim.of].columns]


def _picked(claim: Claim, values: Series[float]) -> float:
    return float({"mean": values.mean, "most": values.max, "least": values.min}[claim.pick]())


def _share(claim: Claim, wide: DataFrame) -> float:
    """Return the % of points at which `of` is better than the best of `over`, by the seeds' means."""
    return float(100 * (_means(_ahead(claim, wide)) > 0).mean())


def _crossing(ratio: Series[float]) -> float:
    """Return the x from which a ratio stays below 1, between its points on a straight line.

    It is inf if the ratio ends above 1, and -inf if it is below 1 throughout.
    """
    above = [place for place, value in enumerate(ratio) if value >= 1]
    if not above:
        return -inf
    if above[-1] == len(ratio) - 1:
        return inf
    last = above[-1]
    (x, next_x), (y, next_y) = ratio.index[last : last + 2], ratio.iloc[last : last + 2]
    return float(x + (next_x - x) * (y - 1) / (y - next_y))


def _half_width(statistic: Callable[[DataFrame], float], wide: DataFrame) -> float:
    """Return the half width of a 95% interval over seeds, by the jackknife: each seed is left out once."""
    import numpy as np
    from scipy.stats import t

    count = len(wide)
    if count < 2:
        return nan
    without = np.array([statistic(wide.drop(index=seed)) for seed in wide.index])
    if not np.isfinite(without).all():
        return nan
    spread = np.sqrt((count - 1) / count * ((without - without.mean()) ** 2).sum())
    return float(t.ppf((1 + LEVEL) / 2, count - 1) * spread)


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


def _ahead(claim: Claim, wide: DataFrame) -> DataFrame:
    """Return by seed (rows) and x (columns) by how much `of` is better than the best of `over`."""
    ahead: DataFrame = (wide[claim.of] - _best(claim, wide)) * (1 if claim.better == "more" else -1)
    return ahead


def _inequality(claim: Claim, wide: DataFrame) -> Finding:
    """Return at how many points `of` is better by the 95% interval of the paired seeds, and at how many it is worse."""
    ahead = _ahead(claim, wide)
    width = half_width(ahead)
    holds, fails = int((ahead.mean() - width > 0).sum()), int((ahead.mean() + width < 0).sum())
    points = len(ahead.columns)
    told = f"holds at {holds} of {points}" + (f", fails at {fails}" if fails else "")
    told += f", undecided at {points - holds - fails}" if points > holds + fails else ""
    verdict = REPRODUCED if holds == points else NOT if fails else UNDECIDED
    return Finding(claim, told, nan, verdict)


def _trend(claim: Claim, wide: DataFrame) -> Finding:
    """Return how `of`, or its lead over the best of `over`, is at the first and last point, and whether that is better.

    The verdict follows the 95% interval of the difference over paired seeds. Without `over` the numbers are those of
    the line.
    """
    of: Any = wide[claim.of]
    told = of - _best(claim, wide) if claim.over else of
    first, last = told.iloc[:, 0], told.iloc[:, -1]
    better = ((last - first) * (1 if claim.better == "more" else -1)).to_frame()
    mean, width = float(better.mean().iloc[0]), float(half_width(better).iloc[0])
    verdict = REPRODUCED if mean - width > 0 else NOT if mean + width < 0 else UNDECIDED
    return Finding(claim, f"from {first.mean():.3g} to {last.mean():.3g}", nan, verdict)
