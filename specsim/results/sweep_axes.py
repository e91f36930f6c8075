"""The axes of a sweep's figures: the setting of the x axis, the setting of the lines, and the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from specsim.errors import SpecsimError, nearest
from specsim.results.sweep_table import CLASS, READ, SEED, differing, keys_of, values_of

if TYPE_CHECKING:
    from pandas import DataFrame

FIRST = ("rps", "slo_scale", "ttft_scale")
"""Settings that come first as the x axis."""
BROUGHT = {
    "scheduler": ("acceptance", "drafter"),
    "drafter": ("acceptance",),
    "profile": ("acceptance", "drafter", "engine", "scheduler"),
    "trace": ("slo",),
}
"""Groups that a choice may bring along (`suggests`); their differences count as differences of the choice."""


class SweepAxes(NamedTuple):
    """The axes of a sweep's figures.

    Attributes
    ----------
    x : the numeric setting of the x axis; None if none differs. line : the setting with a line for each value.
    rest : settings with a figure for each combination of values. along : settings that `line` brings along.
    """

    x: str | None
    line: str
    rest: tuple[str, ...]
    along: tuple[str, ...]


def axes_of(table: DataFrame, x: str | None = None, line: str | None = None) -> SweepAxes:
    """Return the axes of a table's figures: `x`, and a line for each value of `line`.

    By default `x` is the first of `FIRST` that differs, else the first other number; `line` is the scheduler, else the
    first setting that is no number, else another number.

    Raises
    ------
    SpecsimError
        When `x` or `line` is no setting, `x` is no number in every run, or there is no run.
    """
    if table.empty:
        raise SpecsimError("the sweep holds no run; expected runs to draw")
    for name, key in (("x", x), ("line", line)):
        if key is not None:
            check_setting(table, name, key)
    if x is not None and x == line:
        raise SpecsimError(f"x={x} and line={line}: expected two settings")
    if x is not None and not _numeric(table, x):
        raise SpecsimError(f"x={x}: expected a setting that is a number in every run")
    differ = differing(table)
    numbers = [each for each in differ if _numeric(table, each) and each != line]
    x = x or next((each for each in (*FIRST, *numbers) if each in numbers), None)
    left = [each for each in differ if each != x]
    words = [each for each in left if each not in numbers]
    line = line or next((each for each in ("scheduler", *words, *left) if each in left), "scheduler")
    rest = [each for each in beside(table, line) if each != x]
    return SweepAxes(x, line, tuple(rest), tuple(each for each in left if each not in (line, *rest)))


def check_setting(table: DataFrame, name: str, key: object) -> None:
    """Refuse a `key` that is no setting of a table, or is the seed or ``slo_class``; `name` is the argument's.

    Raises
    ------
    SpecsimError
        One line with the settings in which the runs differ.
    """
    if not isinstance(key, str):
        raise SpecsimError(f"{name}={key!r:.60}: expected the name of a setting")
    if key == CLASS:
        raise SpecsimError(f"{name}={CLASS}: every run holds all classes; expected a setting of runs")
    if key == SEED:
        raise SpecsimError(f"{name}={SEED}: means and pairs are over seeds; expected another setting")
    if key not in keys_of(table):
        raise SpecsimError(f"{name}={key}: the runs do not differ in it{nearest(key, differing(table))}")


def check_one(name: str, value: object) -> None:
    """Refuse several values for the argument `name`, which expects one."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        raise SpecsimError(f"{name}={value!r:.60}: expected one value of the setting")


def beside(table: DataFrame, of: str) -> list[str]:
    """Return the settings that differ, except `of` and those that it brings along."""
    others = [key for key in differing(table) if key != of]
    kept = [key for key in others if not brought(key, of)]
    for key in others:
        if brought(key, of) and not _determined(table, key, [of, *kept]):
            kept.append(key)
    return kept


def brought(key: str, of: str) -> bool:
    """Return whether a setting may differ because `of` does: it is below `of`, or in a group that `of` brings along."""
    head, own = key.partition(".")[0], of.partition(".")[0]
    return (head == own and key != own) or head in BROUGHT.get(own, ())


def _numeric(table: DataFrame, key: str) -> bool:
    there = values_of(table, key)
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in there)
    return numbers and READ not in key and len(there) > 0


def _determined(table: DataFrame, key: str, by: Sequence[str]) -> bool:
    return bool(table.groupby(list(by), dropna=False)[key].nunique(dropna=False).max() == 1)


def line_named(table: DataFrame, line: str, against: Any) -> Any:
    """Return the value of `line` that `against` equals, as a value or as text.

    Raises
    ------
    SpecsimError
        When no run has it.
    """
    check_one("against", against)
    there = values_of(table, line)
    for value in there:
        if against == value or str(against) in (str(value), f"{value:g}" if isinstance(value, float) else value):
            return value
    raise SpecsimError(f"against={against}: no run with this {line}{nearest(str(against), map(str, there))}")
