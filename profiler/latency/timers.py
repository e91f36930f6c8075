"""Timers of a pass: host clocks on the CPU, events and graphs on CUDA."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from profiler.latency.samples import Timing
from profiler.passes.graphs import capture

Run = Callable[[], object]
Rotate = Callable[[int], object]
FEWEST = 5
WARM_UPS = 3
SPIN_CYCLES, MOST_SPIN_CYCLES = 1_000_000, 20_000_000
CYCLES_PER_S = 2e9


@dataclass(frozen=True, slots=True)
class Effort:
    """The most timed runs, and the seconds after which no further run is started once `FEWEST` are done."""

    repeats: int
    seconds: float


Timed = Callable[[Run, Rotate, Effort], Timing]


class HostTimer:
    """The CPU's timer: a clock is read before and after. It has no graphs.

    `rotate(i)` loads the i-th inputs before each run; its time is not counted.
    """

    captured = None

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock

    def launched(self, run: Run, rotate: Rotate, effort: Effort) -> Timing:
        """Time a pass."""
        for turn in range(WARM_UPS - 1):
            rotate(turn)
            run()
        seconds: list[float] = []
        while _goes_on(seconds, effort):
            rotate(len(seconds))
            seconds.append(self._seconds(run))
        return Timing.of(seconds)

    def host(self, run: Run, runs: int = FEWEST) -> float:
        """Return the median seconds."""
        run()
        return float(np.median([self._seconds(run) for _ in range(runs)]))

    def _seconds(self, run: Run) -> float:
        start = self._clock()
        run()
        return self._clock() - start


class CudaTimer:
    """CUDA events around the pass.

    A launched pass begins on an idle device, so that launching shows if it is slower. A replay waits behind a short
    spin, which hides the launch of the graph even if rotating the inputs waits for the device. The spin is at least
    twice as long as the launch; `spin` is a factor on it.

    `cuda` is ``torch.cuda``, injected so that the order of calls is tested without a GPU.
    """

    def __init__(self, cuda: Any = torch.cuda, clock: Callable[[], float] = time.perf_counter, spin: int = 1) -> None:
        self._cuda = cuda
        self._clock = clock
        self._spin = spin

    def launched(self, run: Run, rotate: Rotate, effort: Effort) -> Timing:
        """Time a pass launched kernel by kernel."""
        for turn in range(WARM_UPS):
            rotate(turn)
            run()
        seconds: list[float] = []
        while _goes_on(seconds, effort):
            rotate(len(seconds))
            self._cuda.synchronize()
            before, after = self._events()
            before.record()
            run()
            after.record()
            self._cuda.synchronize()
            seconds.append(before.elapsed_time(after) / 1000)
        return Timing.of(seconds)

    def captured(self, run: Run, rotate: Rotate, effort: Effort) -> Timing:
        """Time the replay of a pass."""

        def warm_up() -> None:
            for turn in range(WARM_UPS):
                rotate(turn)
                run()

        graph, _ = capture(run, warm_up, self._cuda)
        launches = []
        for turn in range(WARM_UPS):
            rotate(turn)
            start = self._clock()
            graph.replay()
            launches.append(self._clock() - start)
        longer = min(2 * CYCLES_PER_S * float(np.median(launches)), MOST_SPIN_CYCLES)
        try:
            return self._timed_in_line(graph.replay, rotate, effort, self._spin * max(SPIN_CYCLES, int(longer)))
        finally:  # A graph has memory of its own, which the next graph needs.
            graph.reset()
            self._cuda.empty_cache()

    def host(self, run: Run, runs: int = FEWEST) -> float:
        """Return the median wall seconds, with an idle device before and after."""
        run()
        seconds = []
        for _ in range(runs):
            self._cuda.synchronize()
            start = self._clock()
            run()
            self._cuda.synchronize()
            seconds.append(self._clock() - start)
        return float(np.median(seconds))

    def _timed_in_line(self, run: Run, rotate: Rotate, effort: Effort, spin_cycles: int) -> Timing:
        seconds: list[float] = []
        while _goes_on(seconds, effort):
            waiting: list[tuple[Any, Any]] = []
            for _ in range(min(FEWEST, effort.repeats - len(seconds))):
                rotate(len(seconds) + len(waiting))
                before, after = self._events()
                self._cuda._sleep(spin_cycles)
                before.record()
                run()
                after.record()
                waiting.append((before, after))
            self._cuda.synchronize()
            seconds += [before.elapsed_time(after) / 1000 for before, after in waiting]
        return Timing.of(seconds)

    def _events(self) -> tuple[Any, Any]:
        return self._cuda.Event(enable_timing=True), self._cuda.Event(enable_timing=True)


def _goes_on(seconds: list[float], effort: Effort) -> bool:
    if len(seconds) < min(FEWEST, effort.repeats):
        return True
    return len(seconds) < effort.repeats and sum(seconds) < effort.seconds


Timer: TypeAlias = HostTimer | CudaTimer


def timer_for(device: torch.device) -> Timer:
    """Return the timer of a device."""
    return CudaTimer() if device.type == "cuda" else HostTimer()
