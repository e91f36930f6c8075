"""Means over seeds, paired differences, verdicts and winners."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isclose
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError, nearest
from specsim.metrics.capacity import LEAST_SEEDS, mean_interval
from specsim.metrics.load import TARGET_HALF_WIDTH
from specsim.metrics.sweep_table import (
    ALL,
    CLASS,
    ERROR,
    POINT,
    RUN,
    SEED,
    VARIES,
    beside,
    brought,
    check_setting,
    differing,
    keys_of,
    line_named,
    rows_with,
    values_of,
    with_none,
    without_failures,
)

if TYPE_CHECKING:
    from pandas import DataFrame, Series


ATTAINED, TPOT = "slo_attainment", "tpot_attainment"
MEASURES = (
    ATTAINED,
    "worst_class_attainment",
    "slo_goodput_tokens_per_s",
    "p99_ttft_s",
    "p99_e2el_s",
    "longest_pause_s",
    TPOT,
)
SEEDS, FAILED, LOAD, DIFFERENCE, AGAINST, HALF = "seeds", "failed", "load", "difference", "against", "half_width"
LOAD_SEEDS = "load_seeds"


def point_means(table: DataFrame, *, against: Any = None, of: str = "scheduler") -> DataFrame:
    """Return one row a point, in the order of the table; runs of one point differ in their seed alone.

    Columns: ``run``, the point's first; the settings that differ; ``seeds`` that ended, and ``failed``; each of
    `MEASURES`, its mean over these seeds, and beside it the half width of its 95% interval, as
    ``slo_attainment_half_width``; ``difference`` of the attainment from that of ``against``, over the seeds that both
    have, and ``difference_half_width``, missing without such a pair (none of the three where `of` does not differ);
    ``load``, the verdict of its runs with the strongest caveat, and ``load_seeds``, how many of them have it.

    Parameters
    ----------
    table : rows of `Sweep.table`; the class ``all`` counts. against : a value of `of`; None: the table's first.

    Raises
    ------
    SpecsimError
        As in `over_seeds` and `paired_difference`.
    """
    whole = table[table[CLASS] == ALL]
    check_setting(whole, "of", of)
    ended, keys = without_failures(whole), differing(whole)
    groups = _groups(whole, keys, sort=False)
    found: DataFrame = groups.agg(**{RUN: (RUN, "first"), SEEDS: (RUN, "size")}).reset_index()[[RUN, *keys, SEEDS]]
    points = groups[POINT].first().to_numpy()
    found[FAILED] = groups[ERROR].count().to_numpy() if ERROR in whole else 0
    found[SEEDS] -= found[FAILED]
    if ended.empty:
        return found
    measures = [each for each in MEASURES if each in ended]
    numbers = ended.assign(**{each: _numbers(ended, each) for each in measures})
    _check_some(ended)
    _check_rows(numbers, measures, keys)
    of_points = _groups(numbers, keys)[measures]
    half = _half_width(of_points.sem(), of_points.count()).add_suffix(f"_{HALF}")
    means = of_points.mean().join(half)[[name for each in measures for name in (each, f"{each}_{HALF}")]]
    found = found.merge(means.reset_index(), how="left", on=keys) if keys else found.join(means)
    if of in keys:
        base = ended[of].iloc[0] if against is None else line_named(ended, of, against)
        found = _beside(found, _differences(ended, base, of), keys, DIFFERENCE).assign(**{AGAINST: base})
    judged = {point: [*each] for point, each in verdicts(ended).groupby(ended[POINT])}
    found[LOAD] = [worst(judged[point]) if point in judged else None for point in points]
    found[LOAD_SEEDS] = [judged.get(point, []).count(load) for point, load in zip(points, found[LOAD], strict=True)]
    return found


def _differences(ended: DataFrame, against: Any, of: str) -> DataFrame:
    """Return the paired differences of the attainment, none where no run has a partner."""
    by = beside(ended, of)
    pairs = with_partner(ended, against, by, of=of)
    if pairs[of].nunique(dropna=False) < 2:
        return over_seeds(ended, ATTAINED, [of, *by]).iloc[:0]
    return paired_difference(pairs, ATTAINED, against, by, of=of)


def _beside(found: DataFrame, means: DataFrame, keys: Sequence[str], name: str) -> DataFrame:
    """Return the points with a mean of that name and its half width; missing where a point has none."""
    own = [each for each in keys if each in means]
    told = means[[*own, "mean", HALF]].set_axis([*own, name, f"{name}_{HALF}"], axis="columns")
    return found.merge(told, how="left", on=own) if own else found.join(told)


LEVEL = 0.95
COVERS = "interval_covers"
FEW_SEEDS = f"no interval: fewer than {LEAST_SEEDS} seeds"
NO_VALUE = "no value: a measure of all classes together"
MOST_SHOWN = 4


def over_seeds(table: DataFrame, measure: str, by: Sequence[str]) -> DataFrame:
    """Return a measure's mean over seeds for each group of `by`, with the half width of its 95% interval.

    Columns: `by`, ``mean``, ``half_width`` (Student's; NaN below `LEAST_SEEDS`, which may agree by chance), ``count``
    (of seeds), ``interval_covers`` (what the seed draws anew, or that there is no interval).

    Parameters
    ----------
    table : rows of `Sweep.table`. by : settings, and ``slo_class`` if the table has several classes.

    Raises
    ------
    SpecsimError
        When rows of a group differ in another setting than the seed, a seed is twice in a group, a column is missing
        or is no number, or there is no row.
    """
    table = without_failures(table)
    _check_some(table)
    keys = _columns(table, by)
    given = table.assign(**{measure: _numbers(table, measure)})
    _check_rows(table, [measure], keys)
    groups = _groups(given, keys)
    found = groups[measure].agg(["mean", "sem", "count"])
    found["half_width"] = _half_width(found["sem"], found["count"])
    found[COVERS] = groups[VARIES].first() if VARIES in table else "what the seed draws anew"
    found.loc[found["count"] < LEAST_SEEDS, COVERS] = FEW_SEEDS
    found.loc[found["count"] < 1, COVERS] = NO_VALUE
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
    against = line_named(table, of, against)
    keys = _columns(table, by)
    if of in keys:
        raise SpecsimError(f"by={keys}: {of} is what is compared; expected the settings beside it")
    given = table.assign(**{DIFFERENCE: _numbers(table, measure)})
    _check_rows(table, [measure], [of, *keys])
    base = rows_with(given, of, against)
    others = given.drop(base.index)
    if others.empty:
        raise SpecsimError(f"{of}={against} is the only value in the sweep; expected another one to compare it with")
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
    few = f" (from {LEAST_SEEDS} on)" if seeds < LEAST_SEEDS else ""
    fixed = "" if "arrivals" in covered else "; arrivals and lengths are the trace's own under each"
    if fixed and ("concurrency" not in table or table["concurrency"].isna().all()):
        fixed += " (trace.resample=SECONDS draws them anew)"
    return (f"{seeds} seeds: an interval over them{few} covers {covered}{fixed}",)


def listed(words: str) -> str:
    """Return "a, b, c" as "a, b and c"."""
    return " and ".join(words.rsplit(", ", 1))


def _columns(table: DataFrame, by: Sequence[str]) -> list[str]:
    if isinstance(by, str) or not isinstance(by, Sequence):
        raise SpecsimError(f"by={by!r}: expected a list of columns")
    settings = [each for each in keys_of(table) if each != SEED]
    for each in by:
        if not isinstance(each, str) or each not in settings:
            raise SpecsimError(f"by: {each!r:.60} is no setting beside the seed{nearest(str(each), settings)}")
    return list(dict.fromkeys(by))


def _numbers(table: DataFrame, measure: str) -> Series[float]:
    settings = keys_of(table) if POINT in table else []
    if not isinstance(measure, str) or measure not in table or measure in settings:
        measures = [str(each) for each in table.columns if each not in (*keys_of(table), RUN, POINT, VARIES)]
        words = set(str(measure).removesuffix("_ms").split("_"))
        same = [each for each in measures if words <= set(each.split("_"))][:1]
        hint = nearest(str(measure), same, 0.0) if same else nearest(str(measure), measures)
        raise SpecsimError(f"no measure {measure!r:.60} in the table{hint}")
    try:
        return table[measure].astype(float)
    except (TypeError, ValueError):
        raise SpecsimError(f"{measure}: holds no numbers; expected a measure such as slo_attainment") from None


def _groups(table: DataFrame, keys: Sequence[str], *, sort: bool = True) -> Any:
    """Return the groups of a table by some columns; by none, all of it."""
    return table.groupby(list(keys), sort=sort, dropna=False) if keys else table.groupby(lambda _: 0)


def _check_some(table: DataFrame) -> None:
    if table.empty or SEED not in table:
        raise SpecsimError("the table has no rows of runs; expected those of a Sweep's table")


def _half_width(sem: Any, count: Any) -> Any:
    """Return half of Student's interval at `LEVEL`; NaN for fewer than `LEAST_SEEDS`, which decide nothing."""
    from scipy.special import stdtrit

    return (stdtrit(count - 1, (1 + LEVEL) / 2) * sem).where(count >= LEAST_SEEDS)


def _check_rows(table: DataFrame, measures: Sequence[str], by: Sequence[str]) -> None:
    """Refuse groups whose rows differ in more than the seed, or that have a seed twice."""
    others = (key for key in keys_of(table) if key not in (SEED, *measures, *by))
    keys = [key for key in others if table[key].nunique(dropna=False) > 1]
    several = _groups(table, by)[[*keys, *([POINT] if POINT in table else [])]].nunique(dropna=False).max() > 1
    for key in keys:
        if several[key]:
            values = ", ".join(map(str, values_of(table, key)[:MOST_SHOWN]))
            raise SpecsimError(f"rows of one mean differ in {key} ({values}); expected {key} in by, or one value of it")
    if several.any():
        raise SpecsimError("rows of one mean differ in a setting that the table does not hold; expected one sweep")
    twice = table.duplicated([*by, SEED])
    if twice.any():
        where = ", ".join(f"{key}={table[twice].iloc[0][key]}" for key in (*by, SEED))
        raise SpecsimError(f"{where} is in the table twice; expected each seed of a point once")


def _check_pairs(table: DataFrame, pairs: DataFrame, against: Any, of: str, by: Sequence[str]) -> None:
    alone = pairs["_merge"] != "both"
    if alone.any():
        where = ", ".join(f"{key}={pairs[alone].iloc[0][key]}" for key in (of, *by, SEED))
        raise SpecsimError(f"{where} has no partner: no run of {of}={against} with the same seed and settings")
    for key in keys_of(table):
        if key in (of, SEED, *by) or brought(key, of):
            continue
        own, other = pairs[key], pairs[f"{key} of the other"]
        if ((own != other) & ~(own.isna() & other.isna())).any():
            raise SpecsimError(
                f"{of}={against} and the others differ in {key}, too; expected {key} in by, or one value"
            )


KEPT_UP, SHORT, SATURATED, OVERLOADED = "kept up", "too short", "near saturation", "overloaded"
RANKED = (KEPT_UP, SHORT, SATURATED, OVERLOADED)
"""From the verdict that needs no caveat to the one that needs the strongest."""
PREFIX = "load."
STEADY, ARRIVALS = f"{PREFIX}steady", "arrivals"


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


EQUAL = 1e-12
"""The relative difference up to which means are equal: that of sums in another order."""


def winners(
    table: DataFrame, measure: str, by: Sequence[str], *, of: str = "scheduler", better: str | None = None
) -> DataFrame:
    """Return the value of `of` with the best mean of a measure for each combination of `by`, a row each.

    Columns: `by`; ``winner``, its ``mean`` over seeds; ``second``, the next best; ``lead``, by how much the winner's
    mean is better; ``half_width`` of the lead's 95% interval, paired by seed, as of `over_seeds`; ``decided``, whether
    the lead exceeds it; ``tied``, how many have the best mean; ``winner_load`` and ``second_load``: ``kept up``, ``too
    short`` or ``overloaded``, of several seeds the last of these. Without an interval nothing is decided. Of equal
    means the first by name is the winner. A lead is decided for runs of this length: longer runs may differ if one is
    too short or overloaded.

    Parameters
    ----------
    table : rows of `Sweep.table`; the class ``all`` counts. by : settings beside `of` and the seed.
    better : ``more`` or ``less``; None: less of a measure in seconds (``_s``, not ``_per_s``), more of any other.

    Raises
    ------
    SpecsimError
        As in `paired_difference`; also when a combination has fewer than two values of `of`.
    """
    from pandas import DataFrame, concat

    table = without_failures(table)
    _check_some(table)
    check_setting(table, "of", of)
    for key in by:
        check_setting(table, "by", key)
    whole = table[table[CLASS] == ALL]
    rows: list[dict[str, Any]] = []
    if better not in (None, "more", "less"):
        raise SpecsimError(f"better={better!r:.60}: expected more, less or None")
    less = better == "less" if better else measure.endswith("_s") and not measure.endswith("_per_s")
    cells = whole.groupby(list(by), sort=True, dropna=False) if by else [((), whole)]
    for at, cell in cells:
        here = dict(zip(by, at, strict=True))
        if len(values_of(cell, of)) < 2:
            others = [f"of={key!r}" for key in differing(cell) if key != of]
            instead = f", or {' or '.join(others)}" if others else ""
            raise SpecsimError(f"winners: {here}: one {of}; expected two or more to compare{instead}")
        means = over_seeds(cell, measure, [of]).sort_values("mean", ascending=less, kind="stable")
        first, (winner, second) = means.iloc[0], with_none(means, [of])[of].iloc[:2]
        pair = concat([rows_with(cell, of, each) for each in (winner, second)])
        paired = paired_difference(pair, measure, second, of=of).iloc[0]
        reach, lead = float(paired["half_width"]), float(paired["mean"]) * (-1 if less else 1)
        told = {"winner": winner, "mean": float(first["mean"]), "second": second}
        tied = sum(isclose(each, first["mean"], rel_tol=EQUAL) for each in means["mean"])
        load = {name: worst(verdicts(rows_with(cell, of, told[name]))) for name in ("winner", "second")}
        told |= {"lead": lead, "half_width": reach, "decided": lead > reach, "tied": tied}
        rows.append({**here, **told, **{f"{name}_load": each for name, each in load.items()}})
    return DataFrame(rows)
