"""What a run's load comes to, in a word: it kept up, is near saturation, overloaded, or too short to judge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError
from specsim.results.capacity import LEAST_SEEDS, mean_interval
from specsim.results.load import TARGET_HALF_WIDTH
from specsim.results.sweep_table import POINT, VARIES

if TYPE_CHECKING:
    from pandas import DataFrame, Series

KEPT_UP, SHORT, SATURATED, OVERLOADED = "kept up", "too short", "near saturation", "overloaded"
RANKED = (KEPT_UP, SHORT, SATURATED, OVERLOADED)
"""From the verdict that needs no caveat to the one that needs the strongest."""
PREFIX = "load."
ATTAINED, STEADY, ARRIVALS = "slo_attainment", f"{PREFIX}steady", "arrivals"


def verdict_of(load: Mapping[str, Any]) -> str:
    """Return the verdict of a run's block ``load``."""
    if load["overloaded"]:
        return OVERLOADED
    if load.get("saturated"):
        return SATURATED
    return SHORT if load["too_short"] else KEPT_UP


def depends_on_length(load: Mapping[str, Any]) -> bool:
    """Return whether a longer run would attain something else, by its block ``load``."""
    return verdict_of(load) in (SATURATED, OVERLOADED)


def verdicts(table: DataFrame) -> Series[str]:
    """Return the verdict of each row of the class ``all`` of a `Sweep.table`.

    A run whose attainment alone is not known well enough has kept up where the seeds of its point know it: where at
    least `LEAST_SEEDS` draw its arrivals anew, they are independent replications, and the 95% interval over them
    (Student's) is no wider than the one that a single run is asked for (Law 2015, section 9.5).

    Raises
    ------
    SpecsimError
        When the table has no columns of the load.
    """
    for name in ("overloaded", "too_short"):
        if PREFIX + name not in table:
            raise SpecsimError(f"the table has no column '{PREFIX}{name}'; expected the rows of a Sweep's table")
    names = ["overloaded", "saturated", "too_short"]
    told = table.reindex(columns=[PREFIX + name for name in names]).eq(True).set_axis(names, axis="columns")
    found: Series[str] = told.apply(verdict_of, axis="columns", result_type="reduce").astype(object)
    return found.mask(found.eq(SHORT) & _known_by_seeds(table), KEPT_UP)


def _known_by_seeds(table: DataFrame) -> Series[bool]:
    """Return for each row whether its load is told, and the seeds of its point know the attainment well enough."""
    if not {POINT, VARIES, ATTAINED, STEADY} <= set(table.columns):
        return table[PREFIX + "too_short"].isnull()
    points = table.groupby(POINT)[ATTAINED]
    half = points.transform(lambda of_seeds: mean_interval(of_seeds.to_numpy(float))[1])
    independent = table[VARIES].str.contains(ARRIVALS) & (points.transform("size") >= LEAST_SEEDS)
    return independent & table[STEADY].notna() & (half <= TARGET_HALF_WIDTH)


def worst(found: Iterable[str]) -> str:
    """Return the verdict of several runs: the one with the strongest caveat."""
    return max(found, key=RANKED.index)


def failed_said(failed: int, runs: int) -> list[str]:
    """Return a sentence about failed runs, of `runs` in all; none if none failed."""
    if not failed:
        return []
    return [f"{failed} of {runs} runs failed and {'is' if failed == 1 else 'are'} left out"]
