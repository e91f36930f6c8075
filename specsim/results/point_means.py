"""A row a point of a sweep: its headline numbers as means over seeds, and the difference from the first scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from specsim.results.seeds import over_seeds, paired_difference, with_partner
from specsim.results.sweep_axes import beside, check_setting, line_named
from specsim.results.sweep_table import ALL, CLASS, ERROR, POINT, RUN, differing, without_failures
from specsim.results.verdicts import verdicts, worst

if TYPE_CHECKING:
    from pandas import DataFrame

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


def point_means(table: DataFrame, *, against: Any = None, of: str = "scheduler") -> DataFrame:
    """Return one row a point, in the order of the table; runs of one point differ in their seed alone.

    Columns: ``run``, the point's first; the settings that differ; ``seeds`` that ended, and ``failed``; each of
    `MEASURES`, its mean over these seeds, and beside it the half width of its 95% interval, as
    ``slo_attainment_half_width``; ``difference`` of the attainment from that of ``against``, over the seeds that both
    have, and ``difference_half_width``, missing without such a pair (none of the three where `of` does not differ);
    ``load``, the verdict of its runs with the strongest caveat.

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
    groups = whole.groupby(keys, sort=False, dropna=False) if keys else whole.groupby(lambda _: 0)
    found = groups.agg(**{RUN: (RUN, "first"), SEEDS: (RUN, "size")}).reset_index()[[RUN, *keys, SEEDS]]
    points = groups[POINT].first().to_numpy()
    found[FAILED] = groups[ERROR].count().to_numpy() if ERROR in whole else 0
    found[SEEDS] -= found[FAILED]
    if ended.empty:
        return found
    for measure in (each for each in MEASURES if each in ended):
        found = _beside(found, over_seeds(ended, measure, keys), keys, measure)
    if of in keys:
        base = ended[of].iloc[0] if against is None else line_named(ended, of, against)
        found = _beside(found, _differences(ended, base, of), keys, DIFFERENCE).assign(**{AGAINST: base})
    judged = {point: worst(each) for point, each in verdicts(ended).groupby(ended[POINT])}
    found[LOAD] = [judged.get(point) for point in points]
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
