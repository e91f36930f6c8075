"""Livelock detection of one server, and a limit of the wall time in which a scheduler comes to its next pass."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from specsim.errors import SchedulerFault
from specsim.server.state import Progress, RequestQueues

PASSES = 10_000
LOOK_EVERY = 1_024
TICKS = 20
TOO_LONG = "no next pass within step_limit_s of wall time"


class Livelock(SchedulerFault):
    """A scheduler let requests wait for ever."""


class StepTooLong(BaseException):
    """Thrown into a scheduler that has not come to its next pass in time; no `Exception`, so that none catches it."""


class LivelockDetector:
    """Counts the passes of one replica, and those among them that brought nothing.

    A pass brings something when a token is emitted, or more is cached in all than at any time since the last token: a
    long prompt may take many passes, but what is evicted and computed again does not count twice.

    Attributes
    ----------
    passes : of both models so far. idle_passes : those since the last that brought something, as far as it has looked.
    """

    __slots__ = ("_emitted", "_look_at", "_most_cached", "_progress", "_queues", "idle_passes", "passes")

    def __init__(self, progress: Progress, queues: RequestQueues) -> None:
        self.passes = self.idle_passes = 0
        self._progress, self._queues = progress, queues
        self._look_at = LOOK_EVERY
        self._emitted, self._most_cached = (0, 0), 0

    def shrunk(self) -> None:
        """Hear that cache was freed of a request that is gone for good."""
        self._emitted, self._most_cached = (self._queues.ended, 0), 0

    def lost(self) -> bool:
        """Return whether `PASSES` or more have brought nothing by now, looked at now and then."""
        return self.passes >= self._look_at and self._look()

    def _look(self) -> bool:
        self._look_at = self.passes + LOOK_EVERY
        progress, live = self._progress, self._queues.ids
        emitted = self._queues.ended, int(progress.emitted_tokens[live].sum())
        cached = int(progress.target_cached[live].sum()) + int(progress.draft_cached[live].sum())
        if emitted > self._emitted:
            self._emitted, self._most_cached, self.idle_passes = emitted, cached, 0
        elif cached > self._most_cached:
            self._most_cached, self.idle_passes = cached, 0
        else:
            self.idle_passes += LOOK_EVERY
        return self.idle_passes >= PASSES


@contextmanager
def watchdog(alive: Callable[[], Hashable], limit_s: float | None) -> Iterator[None]:
    """Throw `StepTooLong` into this thread whenever `alive()` stays what it is for `limit_s` seconds of wall time.

    Code that waits in a call of the operating system or of a library hears it when that returns.
    """
    if limit_s is None:
        yield
        return
    ended, here = threading.Event(), threading.get_ident()

    def watch() -> None:
        seen, quiet = alive(), 0
        while not ended.wait(limit_s / TICKS):
            now = alive()
            quiet = quiet + 1 if now == seen else 0
            seen = now
            if quiet >= TICKS:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(here), ctypes.py_object(StepTooLong))
                quiet = 0

    dog = threading.Thread(target=watch, name="specsim watchdog", daemon=True)
    dog.start()
    try:
        yield
    finally:
        ended.set()
        dog.join()
