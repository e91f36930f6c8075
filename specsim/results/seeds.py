"""Means over seeds and differences paired by seed, with their intervals and what these cover."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError, nearest
from specsim.results.sweep_axes import brought, check_one, check_setting
from specsim.results.sweep_table import CLASS, POINT, RUN, SEED, VARIES, keys_of, rows_with, values_of, without_failures

if TYPE_CHECKING:
    from pandas import DataFrame, Series

LEVEL = 0.95
COVERS = "interval_covers"
ONE_SEED = "no interval: one seed"
DIFFERENCE = "difference"
MOST_SHOWN = 4


def over_seeds(table: DataFrame, measure: str, by: Sequence[str]) -> DataFrame:
    """Return a measure's mean over seeds for each group of `by`, with the half width of its 95% interval.

    Columns: `by`, ``mean``, ``half_width`` (Student's; NaN for one seed), ``count`` (of seeds), ``interval_covers``
    (what the seed draws anew, or that there is no interval).

    Parameters
    ----------
    table : rows of `Sweep.table`. by : settings, and ``slo_class`` if the table has several classes.

    Raises
    ------
    SpecsimError
        When rows of a group differ in another setting than the seed, a seed is twice in a group, a column is missing
        or is no number, or there is no row.
    """
    from scipy.stats import t

    table = without_failures(table)
    _check_some(table)
    keys = _columns(table, by)
    given = table.assign(**{measure: _numbers(table, measure)})
    _check_rows(table, measure, keys)
    groups = given.groupby(keys, sort=True, dropna=False) if keys else given.groupby(lambda _: 0)
    found = groups[measure].agg(["mean", "sem", "count"])
    found["half_width"] = t.ppf((1 + LEVEL) / 2, found["count"] - 1) * found["sem"]
    found[COVERS] = groups[VARIES].first() if VARIES in table else "what the seed draws anew"
    found.loc[found["count"] < 2, COVERS] = ONE_SEED
    whole: DataFrame = found.reset_index()
    return whole[[*keys, "mean", "half_width", "count", COVERS]]


def paired_difference(
    table: DataFrame, measure: str, against: Any, by: Sequence[str] = (), *, of: str = "scheduler"
) -> DataFrame:
    """Return a measure's mean difference from `against`, over seeds, for each other value of `of` and each group.

    Runs are paired by seed (common random numbers): partners meet the same requests, and the same text if they have
    one acceptance. The interval is that of the differences. The columns are those of `over_seeds`.

    Parameters
    ----------
    table : rows of `Sweep.table`. against : the value of `of` to compare with. by : the settings beside `of`.

    Raises
    ------
    SpecsimError
        As in `over_seeds`; also when the table has no run of `against`, a run has no partner of its seed, or partners
        differ in a setting other than `of`, those in `by` and those that `of` brings along.
    """
    table = without_failures(table)
    _check_some(table)
    check_setting(table, "of", of)
    check_one("against", against)
    keys = _columns(table, by)
    if of in keys:
        raise SpecsimError(f"by={keys}: {of} is what is compared; expected the settings beside it")
    if against not in values_of(table, of):
        raise SpecsimError(
            f"no run of {of}={against} in the sweep{nearest(str(against), map(str, values_of(table, of)))}"
        )
    given = table.assign(**{DIFFERENCE: _numbers(table, measure)})
    _check_rows(table, measure, [of, *keys])
    base = rows_with(given, of, against)
    others = given.drop(base.index)
    if others.empty:
        raise SpecsimError(f"{of}={against} stands alone in the sweep; expected another value to compare it with")
    pairs = others.merge(base, how="left", on=[*keys, SEED], suffixes=("", " of the other"), indicator=True)
    _check_pairs(table, pairs, against, of, keys)
    pairs[DIFFERENCE] -= pairs[f"{DIFFERENCE} of the other"]
    return over_seeds(pairs[[*table.columns, DIFFERENCE]], DIFFERENCE, [of, *keys])


def with_partner(table: DataFrame, against: Any, by: Sequence[str], *, of: str) -> DataFrame:
    """Return the rows of `against`, and the rows with a partner among them, which has the same `by` and seed."""
    base = rows_with(table, of, against)
    keys = [*by, SEED]
    there = table[keys].merge(base[keys].drop_duplicates(), how="left", on=keys, indicator=True)["_merge"]
    return table[(there == "both").to_numpy()]


def covers_said(table: DataFrame) -> tuple[str, ...]:
    """Return a line about what an interval over the seeds of a table covers; none for one seed."""
    seeds = table[SEED].nunique()
    if seeds < 2:
        return ()
    covered = " or ".join(map(listed, sorted(set(table[VARIES]))))
    fixed = "" if "arrivals" in covered else "; arrivals and lengths are the trace's own under each"
    return (f"{seeds} seeds: an interval over them covers {covered}{fixed}",)


def listed(words: str) -> str:
    """Return "a, b, c" as "a, b and c"."""
    return " and ".join(words.rsplit(", ", 1))


def _columns(table: DataFrame, by: Sequence[str]) -> list[str]:
    if isinstance(by, str | bytes) or not isinstance(by, Sequence):
        raise SpecsimError(f"by={by!r}: expected a list of columns")
    if SEED in by:
        raise SpecsimError("by: seed is what the mean is taken over; expected the settings beside it")
    settings = [each for each in keys_of(table) if each != SEED]
    for each in by:
        if not isinstance(each, str) or each not in settings:
            raise SpecsimError(f"by: {each!r:.60} is no setting of the table{nearest(str(each), settings)}")
    return list(dict.fromkeys(by))


def _numbers(table: DataFrame, measure: str) -> Series[float]:
    if not isinstance(measure, str):
        raise SpecsimError(f"measure={measure!r:.60}: expected the name of a column")
    if measure not in table or (POINT in table and measure in keys_of(table)):
        raise SpecsimError(f"no measure {measure!r} in the table{nearest(measure, _measures(table))}")
    try:
        return table[measure].astype(float)
    except (TypeError, ValueError):
        raise SpecsimError(f"{measure}: holds no numbers; expected a measure such as slo_attainment") from None


def _measures(table: DataFrame) -> list[str]:
    return [str(each) for each in table.columns if each not in (*keys_of(table), RUN, POINT, VARIES)]


def _check_some(table: DataFrame) -> None:
    if table.empty:
        raise SpecsimError("the table has no rows; expected runs to take a mean of")
    if SEED not in table:
        raise SpecsimError("the table has no column 'seed'; expected the rows of a Sweep's table")


def _check_rows(table: DataFrame, measure: str, by: Sequence[str]) -> None:
    """Refuse groups whose rows differ in more than the seed, or that have a seed twice."""
    keys = [key for key in keys_of(table) if key not in (SEED, measure, *by)]
    for key in [*keys, *([POINT] if POINT in table else [])]:
        several = _varying(table, key, by)
        if several is None:
            continue
        if key == POINT:
            raise SpecsimError("rows of one mean differ in a setting that the table does not hold; expected one sweep")
        hint = "select a class" if key == CLASS else "select one value"
        raise SpecsimError(f"rows of one mean differ in {key} ({_shown(several)}); expected {key} in by, or {hint}")
    twice = table[table.duplicated([*by, SEED])]
    if len(twice):
        row = twice.iloc[0]
        where = ", ".join(f"{key}={row[key]}" for key in (*by, SEED))
        raise SpecsimError(f"{where} stands twice in the table; expected each seed of a point once")


def _varying(table: DataFrame, key: str, by: Sequence[str]) -> list[Any] | None:
    """Return the values of a column in a group where it has several; None if it has one in each group."""
    if not by:
        return values_of(table, key) if table[key].nunique(dropna=False) > 1 else None
    groups = table.groupby(list(by), sort=False, dropna=False)
    if groups[key].nunique(dropna=False).max() <= 1:
        return None
    return next(values_of(group, key) for _, group in groups if group[key].nunique(dropna=False) > 1)


def _check_pairs(table: DataFrame, pairs: DataFrame, against: Any, of: str, by: Sequence[str]) -> None:
    alone = pairs[pairs["_merge"] != "both"]
    if len(alone):
        row = alone.iloc[0]
        where = ", ".join(f"{key}={row[key]}" for key in (of, *by, SEED))
        raise SpecsimError(f"{where} has no partner: no run of {of}={against} with the same seed and settings")
    for key in keys_of(table):
        if key in (of, SEED, *by) or brought(key, of):
            continue
        own, other = pairs[key], pairs[f"{key} of the other"]
        if ((own != other) & ~(own.isna() & other.isna())).any():
            raise SpecsimError(
                f"{of}={against} and the others differ in {key}, too; expected {key} in by, or one value"
            )


def _shown(values: Iterable[Any]) -> str:
    words = [f"{each:g}" if isinstance(each, float) else str(each) for each in values]
    return ", ".join(words[:MOST_SHOWN]) + (", .." if len(words) > MOST_SHOWN else "")
