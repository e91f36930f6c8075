"""What a sweep is drawn against: the setting along the axis, the one that tells lines apart, and the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from specsim.errors import SpecsimError, nearest
from specsim.results.sweep_table import CLASS, READ, SEED, differing, keys_of, values_of

if TYPE_CHECKING:
    from pandas import DataFrame

FIRST = ("rps", "slo_scale", "ttft_scale")
"""Settings that a sweep is drawn against before others."""
BROUGHT = {
    "scheduler": ("acceptance", "drafter"),
    "drafter": ("acceptance",),
    "profile": ("acceptance", "drafter", "engine", "scheduler"),
    "trace": ("slo",),
}
"""Groups that a choice may bring along (`suggests`): what differs in them belongs to what is compared."""


class SweepAxes(NamedTuple):
    """How a sweep is drawn.

    Attributes
    ----------
    x : the numeric setting along the axis, None where none differs. line : the setting with a line for each value.
    rest : settings whose values stand in figures of their own. along : settings that go along with `line`.
    """

    x: str | None
    line: str
    rest: tuple[str, ...]
    along: tuple[str, ...]


def axes_of(table: DataFrame, x: str | None = None, line: str | None = None) -> SweepAxes:
    """Return how the rows of a table are drawn: against `x`, with a line for each value of `line`.

    By default `x` is the first of `FIRST`, else the first number that differs; `line` is the scheduler, else the first
    setting that is no number, else another number.

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
    """Refuse what is no setting of a table beside the seed and ``slo_class``; `name` is the argument's.

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
    """Refuse several values where one is expected; `name` is the argument's."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        raise SpecsimError(f"{name}={value!r:.60}: expected one value of the setting")


def beside(table: DataFrame, of: str) -> list[str]:
    """Return the settings that differ beside `of`, without those that it brings along."""
    others = [key for key in differing(table) if key != of]
    kept = [key for key in others if not brought(key, of)]
    for key in others:
        if brought(key, of) and not _determined(table, key, [of, *kept]):
            kept.append(key)
    return kept


def brought(key: str, of: str) -> bool:
    """Return whether a setting may differ because `of` does: it stands below it, or in a group brought along."""
    head, own = key.partition(".")[0], of.partition(".")[0]
    return (head == own and key != own) or head in BROUGHT.get(own, ())


def _numeric(table: DataFrame, key: str) -> bool:
    there = values_of(table, key)
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in there)
    return numbers and READ not in key and len(there) > 0


def _determined(table: DataFrame, key: str, by: Sequence[str]) -> bool:
    return bool(table.groupby(list(by), dropna=False)[key].nunique(dropna=False).max() == 1)


def line_named(table: DataFrame, line: str, against: Any) -> Any:
    """Return the value of `line` that `against` is, or is the text of.

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
