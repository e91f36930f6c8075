"""Work in several processes, which end with the one that asked for it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TypeVar

Given = TypeVar("Given")
Found = TypeVar("Found")
LOOK_S = 0.5
"""How often a process looks whether the one that asked is still there."""


def in_processes(work: Callable[[Given], Found], each: Sequence[Given], jobs: int) -> Iterator[tuple[int, Found]]:
    """Yield the place and what came of each of the given, as they end, worked on in `jobs` processes.

    `work` and what it takes and returns are pickled. With one job, or one piece of work, no process is started.
    """
    if jobs == 1 or len(each) < 2:
        yield from ((index, work(one)) for index, one in enumerate(each))
        return
    from joblib import Parallel, delayed

    asked = os.getpid()
    yield from Parallel(n_jobs=jobs, return_as="generator_unordered", max_nbytes=None)(
        delayed(_placed)(work, index, one, asked) for index, one in enumerate(each)
    )


def _placed(work: Callable[[Given], Found], index: int, one: Given, asked: int) -> tuple[int, Found]:
    _end_with(asked)
    return index, work(one)


@cache
def _end_with(asked: int) -> None:
    """End this process soon after the one that asked has ended: joblib's would go on with what is queued, and wait."""

    def look() -> None:
        while os.getppid() == asked:
            time.sleep(LOOK_S)
        os._exit(1)

    if os.getppid() == asked:
        threading.Thread(target=look, daemon=True).start()
