"""The seconds of a piece of work on a device, as a server would wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

import torch

from specsim.pass_shape import PassShape

Result = TypeVar("Result")
TARGET, DRAFT, MOVE = "target", "draft", "move"


class Stopwatch(Protocol):
    """Times what a backend does."""

    def timed(self, role: str, shape: PassShape, run: Callable[[], Result]) -> tuple[Result, float]:
        """Return what `run` returns, and its seconds; `role` and `shape` say what it is."""
        ...

    def untimed(self, run: Callable[[], Result]) -> Result:
        """Return what `run` returns, which no server would have to do."""
        ...


class DeviceStopwatch:
    """Wall seconds from an idle device to an idle device."""

    def __init__(self, device: torch.device, clock: Callable[[], float] = time.perf_counter) -> None:
        self._cuda = device.type == "cuda"
        self._device = device
        self._clock = clock

    def timed(self, role: str, shape: PassShape, run: Callable[[], Result]) -> tuple[Result, float]:
        """Return the result and the seconds; see `Stopwatch`."""
        self._synchronize()
        start = self._clock()
        result = run()
        self._synchronize()
        return result, self._clock() - start

    def untimed(self, run: Callable[[], Result]) -> Result:
        """Return the result; see `Stopwatch`."""
        self._synchronize()
        result = run()
        self._synchronize()
        return result

    def _synchronize(self) -> None:
        if self._cuda:
            torch.cuda.synchronize(self._device)


class WallClock:
    """Moves a run's clock on with the wall's: a piece of work takes all seconds since the one before it ended.

    Work that is `untimed` is left out: graphs that are captured, caches that are filled since a trace says so. The
    scheduler's and the engine's own time counts, and a request that arrives later is waited for. A request that arrives
    while the host decides is seen with the decision after.

    Parameters
    ----------
    inner : runs the work. now_s : the run's clock, when a piece of work begins.
    """

    def __init__(
        self,
        inner: Stopwatch,
        now_s: Callable[[], float],
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._inner, self._now_s, self._clock, self._sleep = inner, now_s, clock, sleep
        self._began_s: float | None = None
        self._told_s = 0.0

    def timed(self, role: str, shape: PassShape, run: Callable[[], Result]) -> tuple[Result, float]:
        """Return the result and the seconds; see `Stopwatch`."""
        now_s = self._now_s()
        if self._began_s is None:
            self._began_s = self._clock() - now_s
        early_s = now_s - self._wall_s()
        if early_s > 0:
            self._sleep(early_s)
        before_s = max(self._told_s, now_s)
        result, _ = self._inner.timed(role, shape, run)
        self._told_s = max(self._wall_s(), before_s)
        return result, self._told_s - before_s

    def untimed(self, run: Callable[[], Result]) -> Result:
        """Return the result, as if no time had gone by; see `Stopwatch`."""
        start_s = self._clock()
        result = self._inner.untimed(run)
        if self._began_s is not None:
            self._began_s += self._clock() - start_s
        return result

    def _wall_s(self) -> float:
        assert self._began_s is not None, "the clock runs from the first piece of work on"
        return self._clock() - self._began_s
