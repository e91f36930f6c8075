"""A sweep over target and draft by turns: each point is measured once and stored at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from profiler.latency.grids import Grid
from profiler.latency.measure import modes_of
from profiler.latency.order import interleaved
from profiler.latency.points import Point
from profiler.latency.progress import Progress
from profiler.latency.residents import Residents
from profiler.latency.samples import SampleFile
from profiler.latency.subjects import Setting, Subject
from profiler.latency.timers import Timer
from specsim.errors import SpecsimError, first_line

ROLES = ("target", "draft")


@dataclass(frozen=True, slots=True)
class Left:
    """A point, and the modes in which it has not been measured."""

    point: Point
    modes: tuple[str, ...]


def left_to_do(role: str, grid: Grid, timer: Timer, done: SampleFile) -> list[Left]:
    """Return the points of a role that are not in the samples."""
    names = done.names
    launched = grid.launched(role)
    lacking = (
        (point, tuple(mode for mode in modes_of(timer, point, launched) if (role, point.key, mode) not in names))
        for point in grid.passes(role)
    )
    return [Left(point, modes) for point, modes in lacking if modes]


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep of both models by turns; after `deadline` (of `clock`) it begins no further point.

    With `most` only so many points are measured: the first of the order, which have every kind, small and large.
    """

    subjects: dict[str, Subject]
    setting: Setting
    timer: Timer
    file: SampleFile
    deadline: float = float("inf")
    clock: Callable[[], float] = time.monotonic
    most: int | None = None

    def run(self) -> int:
        """Measure the missing points, at least one; return how many are left."""
        wanted = {role: left_to_do(role, self.setting.grid, self.timer, self.file) for role in ROLES}
        wanted = {role: left for role, left in wanted.items() if left}
        if not wanted or (self.most is not None and len({name[:2] for name in self.file.names}) >= self.most):
            return 0
        residents = Residents(self.subjects, self.setting, self.timer, self.file)
        try:
            points = residents.settle({role: [left.point for left in lefts] for role, lefts in wanted.items()})
            return self._measured(residents, self._order(wanted, points))
        finally:
            self.file.write()
            residents.release()

    def _order(self, wanted: dict[str, list[Left]], points: dict[str, list[Point]]) -> list[tuple[str, Left]]:
        """Return the points that fit the memory, in the order of the whole grid however many of them are left."""
        order = interleaved({role: self.setting.grid.passes(role) for role in ROLES})
        lefts = {(role, left.point): left for role, every in wanted.items() for left in every}
        kept = {(role, point) for role, every in points.items() for point in every}
        return [(role, lefts[role, point]) for role, point in order[: self.most] if (role, point) in kept]

    def _measured(self, residents: Residents, order: list[tuple[str, Left]]) -> int:
        progress = Progress(len(order), f"{self.file.facts['target']} + {self.file.facts['draft']}", self.clock)
        try:
            for done, (role, left) in enumerate(order, start=1):
                seconds = self._sampled(residents, role, left)
                progress.done(f"{role} {left.point.key}", seconds)
                if self.clock() > self.deadline:
                    return len(order) - done
        finally:
            progress.close()
        return 0

    def _sampled(self, residents: Residents, role: str, left: Left) -> float:
        """Measure a point; return the seconds of its pass."""
        bench = residents.bench(role)
        found = []
        try:
            for sample in bench.samples(left.point, left.modes):
                self.file.add(sample)
                found.append(sample.median_s)
        except RuntimeError as error:
            told = f"{role} {left.point.key}: {first_line(error)}; what was measured is kept in {self.file.path}"
            raise SpecsimError(told) from error
        return found[0]
