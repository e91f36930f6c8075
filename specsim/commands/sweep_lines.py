"""The table of a sweep on the terminal: a row a point, or a row a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specsim.results.point_means import point_means
from specsim.results.sweep_table import ALL, CLASS, RUN, SEED
from specsim.results.sweep_text import comparison_table, means_table
from specsim.runs.plan import PlannedRun
from specsim.store.sweeps import Sweep

MOST_SHOWN = 1000
"""Rows of a sweep that the terminal shows."""


def sweep_lines(planned: Sequence[PlannedRun], runs: Sweep, told_of: Sweep, *, each: bool) -> Iterator[str]:
    """Yield a row a point with means over its seeds; where no point has several, or `each` is asked for, a row a run.

    `told_of` are the same runs in any order, whose table may have been made already; it may hold more failures.
    """
    failed = {tuple(one.label.items()) for one in runs.failures}
    fell = [tuple(one.label.items()) in failed for one in planned]
    shown, made = list(zip(planned, fell, strict=True))[:MOST_SHOWN], iter(runs)
    told = [(one.label, None if lost else next(made).metrics) for one, lost in shown]
    points = [_without_seed(one.label) for one in planned]
    if each or len(runs) == 0 or len({tuple(one.items()) for one in points}) == len(points):
        yield from comparison_table(told).split("\n")
        if len(planned) > MOST_SHOWN:
            yield f"{len(planned) - MOST_SHOWN} more runs in table.csv"
        return
    names = iter(runs.names[: len(runs)]), iter(runs.names[len(runs) :])
    place = {next(names[lost]): number for number, lost in enumerate(fell)}
    table = told_of.table
    table = table[(table[CLASS] == ALL) & table[RUN].isin(place)]
    means = point_means(table.iloc[table[RUN].map(place).argsort(kind="stable")])
    labels = [points[place[name]] for name in means[RUN]]
    blocks = [metrics["specsim"] for _, metrics in told if metrics is not None]
    yield from means_table(means[:MOST_SHOWN], labels[:MOST_SHOWN], blocks, "--each prints every run").split("\n")
    if len(means) > MOST_SHOWN:
        yield f"{len(means) - MOST_SHOWN} more points in table.csv"


def _without_seed(label: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in label.items() if key != SEED}
