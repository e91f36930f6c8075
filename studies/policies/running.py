"""The runs of the study: each cell tuned, then judged; rows of finished cells are kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import ceil, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from specsim import sweep
from specsim.errors import SpecsimError, say
from specsim.files.yaml_file import read_yaml
from specsim.metrics.load import TARGET_HALF_WIDTH
from specsim.metrics.seeds import ATTAINED
from specsim.metrics.sweep_table import ALL, CLASS
from studies.report import half_width, keep, kept

if TYPE_CHECKING:
    from pandas import DataFrame, Series

STUDY: Mapping[str, Any] = read_yaml(Path(__file__).with_name("study.yaml"))
KEPT = Path("results/policies/measures.parquet")
TRIALS, SEEDS, MOST_SEEDS = 8, 5, 80
"""Trials of a policy, seeds that judge every cell, and the most that judge one whose attainment they do not tell."""
CHANGED_AT = "at"
"""The load at which a policy's knowledge is changed."""
AS_TUNED = ""
"""The change of a cell that has none."""
MEASURES = (
    ATTAINED,
    "output_throughput",
    "worst_class_attainment",
    "slo_goodput_tokens_per_s",
    "mean_ttft_s",
    "mean_tpot_s",
    "mean_tokens_per_verification",
    "mean_draft_tokens_per_verification",
    "time_shares.idle",
    "load.overloaded",
    "load.too_short",
    "load.mean_backlog",
)


class Cell(NamedTuple):
    """One point of the study: a policy under a load and a mix, `change` being what its runs have changed, or none."""

    place: str
    mix: str
    load: str
    policy: str
    change: str

    @property
    def where(self) -> Mapping[str, Any]:
        """Return what the study says of its place."""
        about: Mapping[str, Any] = STUDY["places"][self.place]
        return about

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings that its tuning and its judging share."""
        trace = self.where.get("trace", self.place)
        shared = {"trace": trace, "scheduler": self.policy, "requests": self.where["requests"], "keep": "summary"}
        return {**STUDY["shared"], **shared, **STUDY["mixes"][self.mix]}

    @property
    def arrivals(self) -> Mapping[str, Any]:
        """Return the settings of its load."""
        loads = {str(name): settings for name, settings in self.where["loads"].items()}
        here: Mapping[str, Any] = loads[self.load]
        return here

    @property
    def tuned_at(self) -> str:
        """Return the load at which it is tuned."""
        return str(self.where.get("tuned", {}).get(self.load, self.load))

    @property
    def measure(self) -> str:
        """Return the measure by which it is tuned."""
        return str(self.where.get("measure", ATTAINED))


def cells() -> Iterator[Cell]:
    """Yield every cell, those of one place and mix together."""
    for place, about in STUDY["places"].items():
        names = about.get("mixes", STUDY["mixes"]), about.get("policies", STUDY["policies"]), about["loads"]
        yield from (Cell(place, mix, str(load), policy, AS_TUNED) for mix, policy, load in product(*names))
        if "tuned" in about:
            mix = next(iter(STUDY["mixes"]))
            for policy, changes in STUDY["changed"].items():
                yield from (Cell(place, mix, CHANGED_AT, policy, change) for change in changes)


def grid_of(policy: str) -> dict[str, list[Any]]:
    """Return the values of a policy's settings, whose product are its trials.

    Raises
    ------
    SpecsimError
        When they are not as many as each policy has.
    """
    grid: Mapping[str, list[Any]] = STUDY["policies"][policy]["trials"]
    if prod(map(len, grid.values())) != TRIALS:
        raise SpecsimError(f"studies/policies/study.yaml: {policy} has no {TRIALS} trials")
    return {f"scheduler.{key}": values for key, values in grid.items()}


def run(out: Path, jobs: int) -> DataFrame:
    """Run what the kept rows lack, keep each cell as it ends, and return all rows."""
    from pandas import DataFrame, concat

    rows = kept(KEPT) if KEPT.is_file() else DataFrame(columns=[*Cell._fields, "seed"])
    while todo := missing(rows):
        for place, (cell, seeds) in enumerate(todo, 1):
            say(f"{place} of {len(todo)}: {' '.join(filter(None, cell))}, {len(seeds)} seeds")
            mine = rows[(rows[[*Cell._fields]] == list(cell)).all(axis=1)]
            chosen = mine["tuned"].iloc[0] if len(mine) else json.dumps(_tuned(cell, out, jobs))
            rows = concat([rows, _judged(cell, chosen, seeds, out, jobs)], ignore_index=True)
            keep(rows, KEPT, {})
    return rows


def missing(rows: DataFrame) -> list[tuple[Cell, range]]:
    """Return the cells that lack seeds, and which.

    Every cell is judged by `SEEDS`. Then each by as many as its attainment needs to be known to `TARGET_HALF_WIDTH`,
    and by half as many as any of its point, since a few seeds may be alike. The policy that all are compared with is
    judged by as many as any, so that it meets the same requests.
    """
    counts = rows.groupby(list(Cell._fields)).size()
    have = {cell: int(counts.get(tuple(cell), 0)) for cell in cells()}
    if min(have.values()) < SEEDS:
        return [(cell, range(count, SEEDS)) for cell, count in have.items() if count < SEEDS]
    needed = rows.groupby(list(Cell._fields))[ATTAINED].agg(_needed)
    of_point = needed.groupby(["place", "mix", "load"]).max()
    lacking = []
    for cell, count in have.items():
        most = int(of_point[cell[:3]])
        enough = most if cell.policy == STUDY["against"] else max(needed[tuple(cell)], ceil(most / 2))
        if count < enough and cell.measure == ATTAINED:
            lacking.append((cell, range(count, enough)))
    return lacking


def _needed(attained: Series[float]) -> int:
    """Return how many seeds know an attainment well enough, by those that it has."""
    count, half = len(attained), float(half_width(attained))
    if half <= TARGET_HALF_WIDTH:
        return count
    return max(count, min(ceil(count * (half / TARGET_HALF_WIDTH) ** 2), MOST_SEEDS))


def _judged(cell: Cell, tuned: str, seeds: Sequence[int], out: Path, jobs: int) -> DataFrame:
    """Return a row a seed of a cell: its names, the tuned settings and what it measured."""
    best = {f"scheduler.{key}": value for key, value in json.loads(tuned).items()}
    change = STUDY["changes"][cell.change] if cell.change else {}
    later = {**STUDY["judged"], "seed": seeds, **best, **change}
    judged = _sweep(cell, {}, later, cell.arrivals, out / "judged", jobs)
    return judged[["rps", "seed", *MEASURES]].assign(**cell._asdict(), tuned=tuned)


def _tuned(cell: Cell, out: Path, jobs: int) -> dict[str, Any]:
    """Return the settings of the trial that does best on the earlier part of the trace, at the load of the tuning."""
    grid = grid_of(cell.policy)
    earlier = {**STUDY["tuned"], "requests": cell.where["trial_requests"]}
    earlier["seed"] = cell.where.get("trial_seeds", {}).get(cell.tuned_at, earlier["seed"])
    tuning = cell._replace(load=cell.tuned_at).arrivals
    trials = _sweep(cell, grid, earlier, tuning, out / "tuned", jobs)
    best = trials[cell.measure].to_numpy(dtype=np.float64).reshape(TRIALS, -1).mean(axis=1).argmax()
    names = (key.removeprefix("scheduler.") for key in grid)
    return dict(zip(names, list(product(*grid.values()))[int(best)], strict=True))


def _sweep(
    cell: Cell,
    grid: Mapping[str, list[Any]],
    part: Mapping[str, Any],
    arrivals: Mapping[str, Any],
    out: Path,
    jobs: int,
) -> DataFrame:
    """Return a row a run, seeds fastest, over a grid of settings, on a part of the trace under a load."""
    settings = {**cell.settings, **arrivals, **part}
    axes = {**grid, "seed": settings.pop("seed")}
    table = sweep(axes, out=out, jobs=jobs, progress=sys.stderr.isatty(), **settings).table
    return table[table[CLASS] == ALL]
