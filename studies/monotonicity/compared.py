"""Levels of a resource against weaker ones, paired by seed: what became worse, and how surely."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.core.request import Floats
from specsim.metrics.seeds import LEVEL
from studies.monotonicity.study import BETTER, KNOBS
from studies.report import half_width, students_t

if TYPE_CHECKING:
    from pandas import DataFrame

LEAST = 0.01
"""The least harm that is told: a share of the weaker level's mean, or of all requests for attainment."""
GROUP = ("knob", "scheduler", "rps")


def compared(rows: DataFrame) -> DataFrame:
    """Return a row for each knob, scheduler, rate, pair of levels and measure.

    Columns: `GROUP`, ``measure``; ``weak`` and ``strong``, the levels; ``before``, ``after``, their means over seeds;
    ``harm``, the paired difference in the direction that hurts, and its 95% ``half_width`` (Student's), both as shares
    of ``before``; ``p`` of no difference; ``single``: the share of seeds whose own harm is at least `LEAST`; ``worse``:
    the interval lies above 0 and the harm is at least `LEAST`; ``sure``: also after Holm's correction for all rows.
    """
    from pandas import DataFrame

    levels = {knob.name: knob.levels for knob in KNOBS}
    found = DataFrame(
        [
            {**dict(zip(GROUP, group, strict=True)), "measure": measure, **one}
            for group, runs in rows.groupby(list(GROUP), sort=False)
            for measure in BETTER
            for one in _pairs(runs.pivot(index="seed", columns="level", values=measure), measure, levels[str(group[0])])
        ]
    )
    found["worse"] = (found["harm"] - found["half_width"] > 0) & (found["harm"] >= found.pop("least"))
    found["sure"] = found["worse"] & (_holm(found["p"].to_numpy()) < 1 - LEVEL)
    return found


def _pairs(by_seed: DataFrame, measure: str, levels: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the comparison of each two levels; `by_seed` has a row per seed and a column per level."""
    for weak, strong in combinations(levels, 2):
        told = _pair(by_seed[weak].to_numpy(), by_seed[strong].to_numpy(), measure)
        yield {"weak": weak, "strong": strong, **told}


def _pair(weak: Floats, strong: Floats, measure: str) -> dict[str, float]:
    """Compare two levels, (seeds,) each."""
    from scipy.stats import t

    before = float(weak.mean())
    harm = -BETTER[measure] * (strong - weak) / before
    mean, half = float(harm.mean()), float(half_width(harm))
    least = LEAST / before if measure == "slo_attainment" else LEAST
    return {
        "before": before,
        "after": float(strong.mean()),
        "harm": mean,
        "half_width": half,
        "p": 2 * float(t.sf(students_t(len(harm)) * abs(mean) / half, len(harm) - 1)) if half else float(mean == 0),
        "single": float(np.mean(harm >= least)),
        "least": least,
    }


def _holm(p: Floats) -> Floats:
    """Return the p-values of Holm's step-down correction, in the order given."""
    order = np.argsort(p, kind="stable")
    adjusted: Floats = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return adjusted
