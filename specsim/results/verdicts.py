"""What a run's load comes to, in a word: it kept up, is near saturation, overloaded, or too short to judge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError

if TYPE_CHECKING:
    from pandas import DataFrame, Series

KEPT_UP, SHORT, SATURATED, OVERLOADED = "kept up", "too short", "near saturation", "overloaded"
RANKED = (KEPT_UP, SHORT, SATURATED, OVERLOADED)
"""From the verdict that needs no caveat to the one that needs the strongest."""
PREFIX = "load."


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
    return told.apply(verdict_of, axis="columns", result_type="reduce").astype(object)


def worst(found: Iterable[str]) -> str:
    """Return the verdict of several runs: the one with the strongest caveat."""
    return max(found, key=RANKED.index)


def failed_said(failed: int, runs: int) -> list[str]:
    """Return a sentence about failed runs, of `runs` in all; none if none failed."""
    if not failed:
        return []
    return [f"{failed} of {runs} runs failed and {'is' if failed == 1 else 'are'} left out"]
