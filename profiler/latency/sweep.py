"""A sweep over target and draft by turns: each point is measured once and stored at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from profiler.latency.measure import mode_of
from profiler.latency.models import LoadedPair, Setting, Subject
from profiler.latency.points import ROLES, GridPoint, interleaved
from profiler.latency.samples import SampleFile
from profiler.latency.timers import Timer
from profiler.text import progress
from specsim.errors import SpecsimError, first_line

POINTS_A_LINE = 10
SECONDS_A_LINE = 15.0


@dataclass(frozen=True, slots=True)
class LatencySweep:
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
        every = {role: self.setting.grid.passes(role) for role in ROLES}
        names, mode = self.file.names, mode_of(self.timer)
        wanted = {role: [each for each in of if (role, each.key, mode) not in names] for role, of in every.items()}
        order = [(role, point) for role, point in interleaved(every)[: self.most] if point in wanted[role]]
        if not order:
            return 0
        pair = LoadedPair(self.subjects, self.setting, self.timer, self.file)
        try:
            kept = pair.settle({role: points for role, points in wanted.items() if points})
            return self._measured(pair, [(role, point) for role, point in order if point in kept[role]])
        finally:
            self.file.write()
            pair.release()

    def _measured(self, pair: LoadedPair, order: list[tuple[str, GridPoint]]) -> int:
        """Measure points until the deadline, with a line about every ten or fifteen seconds; return those left."""
        label, total = f"{self.file.facts['target']} + {self.file.facts['draft']}", len(order)
        told, started = 0, self.clock()
        told_at = started
        with progress(total, "point") as show:
            for done, (role, point) in enumerate(order, start=1):
                try:
                    for sample in pair.benches[role].samples(point):
                        self.file.add(sample)
                except RuntimeError as error:
                    said = f"{role} {point.key}: {first_line(error)}; measured points are kept in {self.file.path}"
                    raise SpecsimError(said) from error
                now, line = self.clock(), ""
                if done - told >= POINTS_A_LINE or now - told_at >= SECONDS_A_LINE or done in (1, total):
                    told, told_at, used = done, now, now - started
                    left = used / done * (total - done)
                    line = f"{label}: {done} of {total} points, {used:.0f} s, about {left:.0f} s left; "
                    line += f"{role} {point.key} {1e3 * sample.median_s:.3f} ms"
                show(line, 1)
                if now > self.deadline:
                    return total - done
        return 0
