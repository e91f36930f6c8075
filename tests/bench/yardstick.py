"""What times are measured in: a fixed number of short numpy calls from Python."""

from __future__ import annotations

import time

import numpy as np

CALLS = 3_000
REPEATS = 3


def yardstick_us() -> float:
    """Return the microseconds of processor time of one round of short numpy calls, the best of several."""
    return min(_once() for _ in range(REPEATS))


def _once() -> float:
    numbers, index = np.arange(64, dtype=np.int64), np.arange(0, 64, 3)
    start_s = time.process_time()
    for _ in range(CALLS):
        some = numbers[index]
        numbers[index] = some + 1
        np.count_nonzero(some > 5)
        int(np.add.reduce(some))
    return (time.process_time() - start_s) / CALLS * 1e6
