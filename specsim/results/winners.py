"""Who is best at each combination of a sweep's settings, and whether the seeds can tell."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose, isnan, nan
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError
from specsim.results.seeds import over_seeds, paired_difference
from specsim.results.sweep_axes import check_setting
from specsim.results.sweep_table import ALL, CLASS, rows_with, values_of, without_failures
from specsim.results.verdicts import verdicts, worst

if TYPE_CHECKING:
    from pandas import DataFrame

EQUAL = 1e-12
"""The relative difference up to which means are equal: that of sums in another order."""


def winners(
    table: DataFrame, measure: str, by: Sequence[str], *, of: str = "scheduler", better: str | None = None
) -> DataFrame:
    """Return the value of `of` with the best mean of a measure for each combination of `by`, a row each.

    Columns: `by`; ``winner``, its ``mean`` over seeds; ``second``, the next best; ``lead``, by how much the winner's
    mean is better; ``half_width`` of the lead's 95% interval, paired by seed, NaN for one seed; ``decided``, whether
    the lead exceeds it; ``tied``, how many have the best mean; ``winner_load`` and ``second_load``: ``kept up``, ``too
    short`` or ``overloaded``, of several seeds the last of these. With one seed nothing is decided. Of equal means the
    first by name is the winner. A lead is decided for runs of this length: longer runs may differ if one is too short
    or overloaded.

    Parameters
    ----------
    table : rows of `Sweep.table`; the class ``all`` counts. by : settings beside `of` and the seed.
    better : ``more`` or ``less``; None: less of a measure in seconds (``_s``, not ``_per_s``), more of any other.

    Raises
    ------
    SpecsimError
        As in `paired_difference`; also when a combination has fewer than two values of `of`.
    """
    from pandas import DataFrame

    table = without_failures(table)
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
            raise SpecsimError(f"winners: {here}: one {of}; expected two or more to compare")
        means = over_seeds(cell, measure, [of]).sort_values("mean", ascending=less, kind="stable")
        first, second = means.iloc[0], means.iloc[1]
        paired = paired_difference(cell[cell[of].isin([first[of], second[of]])], measure, second[of], of=of).iloc[0]
        reach = float(paired["half_width"]) if paired["count"] > 1 else nan
        lead = float(paired["mean"]) * (-1 if less else 1)
        decided = not isnan(reach) and lead > reach
        told = {"winner": first[of], "mean": float(first["mean"]), "second": second[of]}
        tied = sum(isclose(each, first["mean"], rel_tol=EQUAL) for each in means["mean"])
        load = {name: worst(verdicts(rows_with(cell, of, told[name]))) for name in ("winner", "second")}
        told |= {"lead": lead, "half_width": reach, "decided": decided, "tied": tied}
        rows.append({**here, **told, **{f"{name}_load": each for name, each in load.items()}})
    return DataFrame(rows)
