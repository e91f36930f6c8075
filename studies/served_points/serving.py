"""The tables of docs/served-points.md about closed loops: points, engines, and the mean size of errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from profiler.text import table
from specsim.calibration.fit import Group
from specsim.calibration.reading import Held
from studies.served_points.sets import POINTS, SETS, ScoredSet, points_of
from tools.public import sources

SET_HEAD = ("points", "profile", "in all", "caches do not fit", "lengths", "shipped engine that fits", "fitted to them")
ERROR_HEAD = ("points", "engine", "TPOT", "E2E", "TTFT")


def sets_table(those: Sequence[ScoredSet]) -> str:
    """Return which points are there, and which are left out."""
    rows = [
        [
            each.of.name,
            f"`{each.of.profile}`",
            f"{len(each.shipped) + each.left_out}",
            f"{each.left_out}",
            "fixed" if each.of.shortest_share == 1 else f"{100 * each.of.shortest_share:.0f}-100%",
            f"`{each.of.engine}`",
            "yes" if each.of.seen else "no",
        ]
        for each in those
    ]
    return table(SET_HEAD, rows)


def unused(data: Path) -> str:
    """Return how many points of the file no shipped profile is of."""
    rows: Any = sources.read(data, POINTS)
    return f"{len(rows) - sum(len(points_of(data, each)) for each in SETS)} of {len(rows)}"


def errors_table(those: Sequence[ScoredSet]) -> str:
    """Return the errors of each set on each engine: median / p90 / mean."""
    rows = []
    for each in those:
        named = [(f"`{name}`", held) for name, held in (each.others | {each.of.engine: each.shipped}).items()]
        named.append((f"`{each.of.engine}`, composed profile", each.composed))
        named.append(("calibrated, `--all`", each.calibrated))
        groups = ((name, Group.of("", held)) for name, held in named)
        rows += [[each.of.name, name, group.tpot, group.e2e, group.ttft] for name, group in groups]
    return table(ERROR_HEAD, rows)


def means(those: Sequence[ScoredSet]) -> str:
    """Return the mean size of the errors on points not fitted, the figure that other simulators publish."""

    def told(name: str, held: Sequence[Held]) -> str:
        columns = ("tpot_error", "e2e_error", "ttft_error")
        sizes = [f"{100 * np.mean([abs(getattr(each, key)) for each in held]):.1f}" for key in columns]
        return f"{' / '.join(sizes)} ({name})"

    return ",\n".join(told(each.of.name, each.calibrated) for each in those)
