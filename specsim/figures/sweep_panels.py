"""The content of a sweep's figure: means by class, names for axes and legends, what the intervals cover."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from specsim.results.seeds import COVERS, LEVEL, ONE_SEED, listed, over_seeds, paired_difference, with_partner
from specsim.results.sweep_axes import SweepAxes
from specsim.results.sweep_table import ALL, CLASS

if TYPE_CHECKING:
    from pandas import DataFrame

ATTAINMENT, WORST, GOODPUT = "slo_attainment", "worst_class_attainment", "slo_goodput_tokens_per_s"
LABELS = {
    "rps": "Request rate (requests/s)",
    "slo_scale": "TPOT SLO scale (x)",
    "ttft_scale": "TTFT SLO scale (x)",
    "requests": "Requests in the run",
    "replicas": "Replicas",
    ATTAINMENT: "SLO attainment (%)",
    GOODPUT: "SLO goodput (tokens/s)",
}
UNITS = {"_per_s": "1/s", "_s": "s", "_tokens": "tokens", "_bytes": "bytes", "_requests": "requests"}


class Panel(NamedTuple):
    """One class: its name, and a row per line and x value with the ``mean`` and the reach of its interval.

    The interval reaches from mean - ``below`` to mean + ``above``, in the figure's unit (%, or the measure's own). Both
    are 0 without an interval.
    """

    title: str
    means: DataFrame


def panels_of(table: DataFrame, axes: SweepAxes, measure: str, against: Any = None) -> list[Panel]:
    """Return the panels of one measure: one per class, one of all, and for attainment one of the worst class.

    With `against` the panels hold differences from this value of `axes.line`, of runs that have a partner.

    Raises
    ------
    SpecsimError
        As in `over_seeds` and `paired_difference`, when a mean would be over more than seeds.
    """
    by = [axes.line, *([axes.x] if axes.x else [])]

    def means(rows: DataFrame, of_measure: str, keys: Sequence[str]) -> DataFrame:
        if against is None:
            return in_units(over_seeds(rows, of_measure, keys), measure)
        rest, least = [key for key in keys if key != axes.line], -100.0 if is_share(measure) else -math.inf
        paired = with_partner(rows, against, rest, of=axes.line)
        return in_units(paired_difference(paired, of_measure, against, rest, of=axes.line), measure, least=least)

    whole = means(table, measure, [CLASS, *by])
    classes = [*sorted(set(whole[CLASS]) - {ALL}), ALL]
    panels = [Panel("all classes" if name == ALL else name, whole[whole[CLASS] == name]) for name in classes]
    if measure == ATTAINMENT and WORST in table:
        panels.append(Panel("worst class", means(table[table[CLASS] == ALL], WORST, by)))
    return panels


def in_units(means: DataFrame, measure: str, *, least: float = 0.0) -> DataFrame:
    """Return means in the figure's unit, with intervals cut to the values that the measure can have."""
    scale, most = (100.0, 100.0) if is_share(measure) else (1.0, math.inf)
    middle, reach = scale * means["mean"], (scale * means["half_width"]).fillna(0.0)
    below, above = reach.clip(upper=middle - least), reach.clip(upper=most - middle)
    return means.assign(mean=middle, below=below, above=above)


def is_share(measure: str) -> bool:
    """Return whether a measure is a share of requests, which figures show in %."""
    return measure.endswith("attainment")


def caption_of(means: Sequence[DataFrame], axes: SweepAxes, against: Any = None) -> list[str]:
    """Return sentences of a caption: what each of the `means` is over, what their intervals cover, what goes along."""
    counts = sorted({count for each in means for count in each["count"] if count})
    covers = sorted({what for each in means for what in each[COVERS]} - {ONE_SEED})
    what = "Means" if against is None else f"Differences from {told(axes.line, against)}, paired by seed: means"
    if not covers:
        parts = [f"{what} of one seed: no interval."]
    else:
        seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        parts = [
            f"{what} over {seeds} seeds with {LEVEL:.0%} intervals, which cover {' or '.join(map(listed, covers))}."
        ]
        if not any("arrivals" in each for each in covers):
            parts.append("Arrivals and lengths are the trace's own under every seed.")
    if axes.along:
        parts.append(f"What differs along with {axes.line}: {', '.join(axes.along)}.")
    return parts


def named(key: str, *, difference: bool = False) -> str:
    """Return the name of a setting or measure on an axis, with its unit."""
    label = LABELS.get(key)
    if label is None:
        unit = next((unit for ending, unit in UNITS.items() if key.endswith(ending)), "%" if is_share(key) else "")
        label = f"{key} ({unit})" if unit else key
    return label.replace("(%)", "(points)") if difference else label


def word(value: Any) -> str:
    """Return a setting's value in a legend."""
    if value is None or value != value:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def told(key: str, value: Any) -> str:
    """Return a value in words; a number has the last part of its key before it."""
    return word(value) if isinstance(value, str) else f"{key.rpartition('.')[2]} = {word(value)}"
