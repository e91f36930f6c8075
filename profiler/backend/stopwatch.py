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

    def _synchronize(self) -> None:
        if self._cuda:
            torch.cuda.synchronize(self._device)
