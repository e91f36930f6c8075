"""How far a sweep is: a bar on a terminal, elsewhere a line about every ten points or fifteen seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from specsim.errors import say

POINTS_A_LINE = 10
SECONDS_A_LINE = 15.0


class Progress:
    """Told of each point that is done, it tells the user now and then."""

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
