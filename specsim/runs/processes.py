"""Work in several processes, which end with the one that asked for it."""

from __future__ import annotations

import os
import platform
import re
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from specsim.errors import SpecsimError, represented
from specsim.files.staging import is_alive
from specsim.kernels.compile_cache import distrust
from specsim.workload.published import DATA_VARIABLE

Given = TypeVar("Given")
Found = TypeVar("Found")
Lost = Callable[[Given, str], Found]
"""What comes of a piece of work whose process dies, and how that ended, as ``" by SIGKILL(-9)"``, if it is known."""
EXIT_CODES = re.compile(r"exit codes of the workers are \{(.*)\}")
CRASHES = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT")
"""How processes end that compiled code has ruined."""
LEAST_PROCESSES = 2
"""With one job joblib starts no process."""
MOST_JOBS = 1024
LOOK_S = 0.5
"""How often a process looks whether the one that asked is still there."""


class Asked(NamedTuple):
    """The process that asks: its host, its id, the folder that it is in, and where it finds published traces."""

    host: str
    pid: int
    folder: str
    data: str | None


def check_jobs(jobs: object) -> int:
    """Return a number of processes.

    Raises
    ------
    SpecsimError
        When it is no whole number from 1 to `MOST_JOBS`.
    """
    if type(jobs) is not int or not 1 <= jobs <= MOST_JOBS:
        raise SpecsimError(f"jobs={represented(jobs)}: expected a whole number between 1 and {MOST_JOBS}")
    return jobs


def in_processes(
    work: Callable[[Given], Found], each: Sequence[Given], jobs: int, lost: Lost[Given, Found]
) -> Generator[tuple[int, Found], None, None]:
    """Yield the place and what came of each of the given, as they end, worked on in `jobs` processes.

    `work` and what it takes and returns are pickled. With one job no process is started. When a process dies, what was
    sent to any is worked on again at the end, a piece to each process. What is with them when one dies then, too, is
    worked on alone; what comes of a piece that kills its process there, says `lost`.
    """
    if jobs == 1 or not each:
        yield from ((index, work(one)) for index, one in enumerate(each))
        return
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    left = dict(enumerate(each))
    yield from _surviving(work, left, jobs)
    yield from _surviving(work, left, jobs, pre_dispatch=jobs, batch_size=1)
    if left:
        # What the idle ones keep in memory is not for what has killed two processes.
        get_reusable_executor().shutdown(wait=True, kill_workers=True)
    for index, one in left.items():
        try:
            yield from _parallel(work, [(index, one)], LEAST_PROCESSES)
        except TerminatedWorkerError as error:
            _doubt_kernels(error)
            codes = EXIT_CODES.search(str(error))
            yield index, lost(one, f" by {codes[1]}" if codes else "")


def _surviving(
    work: Callable[[Given], Found], left: dict[int, Given], jobs: int, **sent: Any
) -> Iterator[tuple[int, Found]]:
    """Yield what comes of the pieces `left`, and take it out; what was sent when a process died stays."""
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    pieces, died = iter(list(left.items())), bool(left)
    while died:
        died = False
        try:
            for index, found in _parallel(work, pieces, jobs, **sent):
                del left[index]
                yield index, found
        except TerminatedWorkerError as error:
            died = True
            _doubt_kernels(error)


def _doubt_kernels(error: Exception) -> None:
    """Let compiled kernels be made anew where a process has crashed, so that what is tried again has others."""
    if any(signal_name in str(error) for signal_name in CRASHES):
        distrust()


def _parallel(
    work: Callable[[Given], Found], pieces: Iterable[tuple[int, Given]], jobs: int, **sent: Any
) -> Iterator[tuple[int, Found]]:
    from joblib import Parallel, delayed

    asked = Asked(platform.node(), os.getpid(), str(Path.cwd()), os.environ.get(DATA_VARIABLE))
    # One that gets no work, since the one that asked was killed first, must know whom to end with, too.
    processes = Parallel(
        n_jobs=jobs,
        return_as="generator_unordered",
        max_nbytes=None,
        initializer=_end_with,
        initargs=(asked.host, asked.pid),
        **sent,
    )
    yield from processes(delayed(_placed)(work, index, one, asked) for index, one in pieces)


def _placed(work: Callable[[Given], Found], index: int, one: Given, asked: Asked) -> tuple[int, Found]:
    """Work where the process that asked is by now: joblib's processes live on from one call to the next."""
    _end_with(asked.host, asked.pid)
    os.chdir(asked.folder)
    os.environ.pop(DATA_VARIABLE, None)
    if asked.data is not None:
        os.environ[DATA_VARIABLE] = asked.data
    return index, work(one)


@cache
def _end_with(host: str, asked: int) -> None:
    """End this process soon after the one that asked has ended: joblib's would go on with what is queued, and wait.

    The one that asked may have ended before this process had read its first piece of work.
    Ctrl-C reaches every process of a terminal; the one that asked hears it and ends the others.
    """

    def look() -> None:
        while os.getppid() == asked:
            time.sleep(LOOK_S)
        os._exit(1)

    if os.getppid() == asked:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=look, daemon=True).start()
    elif host == platform.node() and not is_alive(asked):
        os._exit(1)
