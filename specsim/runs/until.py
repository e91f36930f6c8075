"""A sweep that gets seeds until the attainment of every point is known as well as was asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np

from specsim.config.configured import NONE_HANDED, Configured, Described, from_point
from specsim.errors import SpecsimError, represented
from specsim.figures.any_run import AnyRun
from specsim.metrics.capacity import LEAST_SEEDS, mean_interval
from specsim.runs.executors import LOCAL
from specsim.runs.objects import NO_OBJECTS, Objects
from specsim.runs.plan import PlannedRun, checked, plan
from specsim.runs.sweep import in_order, run_all, standing, together
from specsim.store.summaries import Failure
from specsim.store.sweeps import Sweep

SEED, SCHEDULER = "seed", "scheduler"
MOST_SEEDS = 100
"""Seeds after which a point gets no more."""
GROWTH = 2
"""The most by which the seeds of a point multiply at once: a few of them tell little of how many it takes."""
WORDS = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*points?\s*")

PointKey = tuple[str, ...]
Say = Callable[[str], None]


def check_until(until: object) -> float:
    """Return the half width of an attainment, as a share, that words such as "2 points" ask for; None: any.

    Raises
    ------
    SpecsimError
        When they are no number of points above 0 and up to 50.
    """
    if until is None:
        return inf
    found = WORDS.fullmatch(until) if isinstance(until, str) else None
    if found is None or not 0 < float(found[1]) <= 50:
        said = 'half the width of an interval, above 0 up to 50, such as "2 points"'
        raise SpecsimError(f"until={represented(until)}: expected {said}")
    return float(found[1]) / 100


def run_points(
    ready: Sequence[PlannedRun],
    root: Path | None,
    until: str | None = None,
    objects: Objects = NO_OBJECTS,
    *,
    keep: str,
    jobs: int = 1,
    executor: str = LOCAL,
    progress: bool = False,
    say: Say = lambda _: None,
) -> tuple[list[PlannedRun], Sweep]:
    """Return the runs of a sweep as they were planned, and what came of them; the arguments are those of `run_all`.

    `objects` are those that the points name.

    With `until`, as "2 points", each point gets seeds until half the 95% interval of its attainment over them is no
    wider, or it has `MOST_SEEDS`. Points that differ in their scheduler alone get the same seeds, and stay paired. The
    next seeds follow from what has ended, so a sweep that was stopped goes on where it was. `say` hears how many runs
    are added; a note of the sweep says what was reached.
    """
    run = partial(_run, root=root, progress=progress, jobs=jobs, executor=executor)
    if until is None:
        planned = plan(ready, root, keep=keep, progress=progress)
        return planned, run(planned, planned)
    seeds, notes = _Seeds(ready, check_until(until)), list[str]()
    ended: dict[str, AnyRun | Path | Failure] = {}
    while True:
        if more := seeds.more(objects.described):
            say(f"until {until}: {len(more)} runs with further seeds")
            seeds.add(checked(more, objects, jobs=jobs, executor=executor, idle=False, progress=progress))
        elif ended:
            break
        points = seeds.points()
        planned = plan(points, root, keep=keep, progress=progress)
        new = [(point, each) for point, each in zip(points, planned, strict=True) if each.key not in ended]
        made = run([each for _, each in new], planned)
        notes += made.whole_notes
        for (point, each), one in zip(new, in_order([each for _, each in new], made), strict=True):
            seeds.hear(point, None if isinstance(one, Failure) else one.slo_attainment)
            ended[each.key] = one if isinstance(one, Failure) else one.folder or one
    of = [ended[each.key] for each in planned]
    failures = [each for each in of if isinstance(each, Failure)]
    notes = [*together(notes), f"until {until}: {seeds.reached()}"]
    return planned, Sweep([each for each in of if not isinstance(each, Failure)], notes, failures=failures)


def _run(new: Sequence[PlannedRun], planned: Sequence[PlannedRun], root: Path | None, **how: Any) -> Sweep:
    """Execute the new ones among the planned runs; an interrupt says how many of all are kept."""
    keys = {each.key for each in new}
    try:
        return run_all(new, root, beside=[each.key for each in planned if each.key not in keys], **how)
    except KeyboardInterrupt:
        if root is None:
            raise
        kept = f"{len(standing(planned, root))} of {len(planned)} runs are kept"
        raise KeyboardInterrupt(f"{kept}; the same command with out={root} goes on") from None


class _Seeds:
    """The seeds of each point of a sweep, and what was attained with them."""

    def __init__(self, ready: Sequence[PlannedRun], half_width: float):
        self._asked = half_width
        self._points: dict[PointKey, dict[int, PlannedRun]] = {}
        self._paired: dict[PointKey, list[PointKey]] = {}
        self._attained: dict[PointKey, dict[int, float | None]] = {}
        self.add(ready)

    def add(self, ready: Sequence[PlannedRun]) -> None:
        """Add checked points."""
        for each in ready:
            key = _without(each, SEED)
            if key not in self._points:
                self._paired.setdefault(_without(each, SEED, SCHEDULER), []).append(key)
            self._points.setdefault(key, {})[each.config[SEED]] = each

    def points(self) -> list[PlannedRun]:
        """Return all points, their seeds inside."""
        return [seeds[seed] for seeds in self._points.values() for seed in sorted(seeds)]

    def hear(self, point: PlannedRun, attained: float | None) -> None:
        """Note what a run attained, None where it failed; nothing that was prepared of it is kept."""
        key, seed = _without(point, SEED), point.config[SEED]
        self._attained.setdefault(key, {})[seed] = attained
        self._points[key][seed] = point.but(experiment=None)

    def more(self, described: Described = NONE_HANDED) -> list[Configured]:
        """Return the points with the seeds that are to run next; none if each is known well enough or has the most."""
        found = []
        for paired in self._paired.values():
            seeds = sorted({seed for key in paired for seed in self._points[key]})
            wanted = max(map(self._wanted, paired))
            seeds += range(seeds[-1] + 1, seeds[-1] + 1 + wanted - len(seeds))
            for key in (each for each in paired if not self._failed(each)):
                like = next(iter(self._points[key].values()))
                lacking = [seed for seed in seeds if seed not in self._points[key]]
                found += [from_point({**like.point, "seed": str(seed)}, described) for seed in lacking]
        return found

    def reached(self) -> str:
        """Return a line about the seeds of the points, and how well these are known."""
        counts = sorted({len(seeds) for seeds in self._points.values()})
        known = [half for half in map(self._half_width, self._points) if isfinite(half)]
        said = [f"{' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} seeds a point"]
        if known:
            said.append(f"the widest interval is \u00b1 {100 * max(known):.2g} points")
        failed = sum(map(self._failed, self._points))
        wide = sum(self._half_width(key) > self._asked and not self._failed(key) for key in self._points)
        if wide:
            most = f"with {MOST_SEEDS} seeds, the most; longer runs narrow it (requests=)"
            said.append(f"{wide} of {len(self._points)} points stay wider {most}")
        if failed:
            said.append(f"{failed} of {len(self._points)} points have a run that failed, and get no more seeds")
        return "; ".join(said)

    def _wanted(self, key: PointKey) -> int:
        """Return how many seeds a point should have."""
        count = len(self._points[key])
        if self._failed(key):
            return count
        if count < LEAST_SEEDS:
            return LEAST_SEEDS
        half = self._half_width(key)
        if key not in self._attained or half <= self._asked or count >= MOST_SEEDS:
            return count
        needed = ceil(count * (half / self._asked) ** 2)
        return min(MOST_SEEDS, GROWTH * count, max(count + 1, needed))

    def _half_width(self, key: PointKey) -> float:
        ended = [each for each in self._attained.get(key, {}).values() if each is not None]
        return mean_interval(np.array(ended))[1] if ended else float("inf")

    def _failed(self, key: PointKey) -> bool:
        return None in self._attained.get(key, {}).values()


def _without(each: PlannedRun, *keys: str) -> PointKey:
    """Return what tells a point from others: its settings but some."""
    return tuple(f"{key}={value}" for key, value in each.point.items() if key not in keys)
