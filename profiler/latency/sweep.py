"""A sweep over target and draft by turns: each point is measured once and stored at once."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from profiler.latency.measure import modes_of
from profiler.latency.models import LoadedPair, Setting, Subject
from profiler.latency.points import ROLES, Grid, Point, interleaved
from profiler.latency.samples import SampleFile
from profiler.latency.timers import Timer
from specsim.errors import SpecsimError, first_line, say

POINTS_A_LINE = 10
SECONDS_A_LINE = 15.0


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
        pair = LoadedPair(self.subjects, self.setting, self.timer, self.file)
        try:
            points = pair.settle({role: [left.point for left in lefts] for role, lefts in wanted.items()})
            return self._measured(pair, self._order(wanted, points))
        finally:
            self.file.write()
            pair.release()

    def _order(self, wanted: dict[str, list[Left]], points: dict[str, list[Point]]) -> list[tuple[str, Left]]:
        """Return the points that fit the memory, in the order of the whole grid however many of them are left."""
        order = interleaved({role: self.setting.grid.passes(role) for role in ROLES})
        lefts = {(role, left.point): left for role, every in wanted.items() for left in every}
        kept = {(role, point) for role, every in points.items() for point in every}
        return [(role, lefts[role, point]) for role, point in order[: self.most] if (role, point) in kept]

    def _measured(self, pair: LoadedPair, order: list[tuple[str, Left]]) -> int:
        progress = Progress(len(order), f"{self.file.facts['target']} + {self.file.facts['draft']}", self.clock)
        try:
            for done, (role, left) in enumerate(order, start=1):
                seconds = self._sampled(pair, role, left)
                progress.done(f"{role} {left.point.key}", seconds)
                if self.clock() > self.deadline:
                    return len(order) - done
        finally:
            progress.close()
        return 0

    def _sampled(self, pair: LoadedPair, role: str, left: Left) -> float:
        """Measure a point; return the seconds of its pass."""
        bench = pair.bench(role)
        found = []
        try:
            for sample in bench.samples(left.point, left.modes):
                self.file.add(sample)
                found.append(sample.median_s)
        except RuntimeError as error:
            told = f"{role} {left.point.key}: {first_line(error)}; what was measured is kept in {self.file.path}"
            raise SpecsimError(told) from error
        return found[0]


class Progress:
    """The progress of a sweep: a bar on a terminal, elsewhere a line about every ten points or fifteen seconds."""

    def __init__(self, total: int, label: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._label = label
        self._clock = clock
        self._started = self._told_at = clock()
        self._done = self._told = 0
        self._bar: Any = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=total, desc=label, unit="point")

    def done(self, point: str, seconds: float) -> None:
        """Count a point; `seconds` is what its pass takes, NaN if it was skipped."""
        self._done += 1
        if self._bar is not None:
            self._bar.update()
        elif self._is_due():
            self._told, self._told_at = self._done, self._clock()
            used = self._told_at - self._started
            left = used / self._done * (self._total - self._done)
            done = f"{self._done} of {self._total} points, {used:.0f} s, about {left:.0f} s left"
            say(f"{self._label}: {done}; {point} {1e3 * seconds:.3f} ms", flush=True)

    def close(self) -> None:
        """End the bar."""
        if self._bar is not None:
            self._bar.close()

    def _is_due(self) -> bool:
        enough = self._done - self._told >= POINTS_A_LINE or self._clock() - self._told_at >= SECONDS_A_LINE
        return enough or self._done in (1, self._total)
