"""Worker processes, and the progress of their runs."""

from __future__ import annotations

import os
import platform
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from specsim.errors import SpecsimError, printable, represented, say
from specsim.files.staging import is_alive
from specsim.kernels.compile_cache import distrust
from specsim.metrics.tables import percent
from specsim.workload.published import DATA_VARIABLE

if TYPE_CHECKING:
    from tqdm import tqdm


Watcher = Callable[[int], None]


@contextmanager
def bar(total: int, unit: str, progress: bool) -> Iterator[Watcher | None]:
    """Yield a watcher that is told how many have ended; a bar on a terminal and in Jupyter, None in a pipe."""
    if not progress or not is_watched():
        yield None
        return
    with bar_of(total, unit) as drawn:

        def watch(ended: int) -> None:
            drawn.update(ended - drawn.n)

        yield watch


def bar_of(total: int | None, unit: str, **how: Any) -> tqdm[Any]:
    """Return a bar of the kind that the terminal or Jupyter shows; `how` is tqdm's."""
    with warnings.catch_warnings():
        # Without ipywidgets the bar is text: nothing that a user must know.
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm

    return tqdm(total=total, unit=unit, leave=False, **how)


def is_watched() -> bool:
    """Return whether stderr is a terminal or Jupyter."""
    return sys.stderr.isatty() or _in_jupyter()


def _in_jupyter() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and hasattr(shell.get_ipython(), "kernel")


Piece = TypeVar("Piece")
LINE_S = 10.0
"""Seconds between two plain lines: a sweep that ends sooner prints none."""
BAR_S = 1.0
"""Seconds after which a sweep that is not ready to run draws a bar."""


class Worst(NamedTuple):
    """The SLO class that fared worst, in a run or in all runs so far."""

    attainment: float
    slo_class: str

    def __str__(self) -> str:
        """Return the class and its attainment."""
        return f"{printable(self.slo_class)} {percent(self.attainment)}"


def worst_of(metrics: Mapping[str, Any]) -> Worst:
    """Return the worst class of a run."""
    block = metrics["specsim"]
    return Worst(block["worst_class_attainment"], block["worst_class"])


class SweepProgress:
    """Counts the runs of a sweep as they end, and tells of them on stderr.

    Attributes
    ----------
    total, kept, made, failed : runs in all, those that stood already, those made now, and those of them that failed.
    worst : the worst class of all runs so far, None before the first.
    """

    def __init__(self, total: int, drawn: tqdm[Any] | None, speaks: bool):
        self.total, self.kept, self.made, self.failed = total, 0, 0, 0
        self.worst: Worst | None = None
        self._drawn, self._speaks = drawn, speaks
        self._began_s = self._told_s = time.monotonic()

    def add(self, worst: Worst | None, *, stood: bool = False) -> None:
        """Count a run; `worst` is its worst class, None where it failed; `stood` tells that it was there already."""
        self.kept += stood
        self.made += not stood
        self.failed += worst is None
        self.worst = min(filter(None, (self.worst, worst)), default=None)
        if self._drawn is not None:
            self._draw(self._drawn, stood)
        elif self._speaks and time.monotonic() - self._told_s >= LINE_S:
            self._told_s = time.monotonic()
            say(self.line(self._told_s - self._began_s), error=True)

    def line(self, spent_s: float) -> str:
        """Return the plain line after so many seconds."""
        from tqdm import tqdm

        done = self.kept + self.made
        per_s = self.made / spent_s
        left = tqdm.format_interval((self.total - done) / per_s) if per_s else "?"
        told = f"{done} of {self.total} runs done, {self.failed} failed, {per_s:.3g} runs/s, {left} left"
        return told if self.worst is None else f"{told}, worst class {self.worst}"

    def _draw(self, drawn: tqdm[Any], stood: bool) -> None:
        drawn.set_postfix_str(f"{self.failed} failed, worst {self.worst or '-'}", refresh=False)
        if stood:
            # What stood already says nothing of the rate.
            drawn.initial += 1
            drawn.n += 1
            drawn.last_print_n = drawn.n
        else:
            drawn.update()


@contextmanager
def progress_bar(total: int, progress: bool) -> Iterator[SweepProgress]:
    """Yield the bar of a sweep of `total` runs, silent without `progress`."""
    if not progress or not is_watched():
        yield SweepProgress(total, None, progress)
        return
    with bar_of(total, "run") as drawn:
        yield SweepProgress(total, drawn, progress)


def told(
    each: Iterable[Piece], total: int | None, done: str, progress: bool, unit: str = "point"
) -> Generator[Piece, None, None]:
    """Yield each of so many points, and tell on stderr how many are `done`, as "checked"; silent without `progress`."""
    if not progress:
        yield from each
    elif is_watched():
        with bar_of(total, unit, desc=done, delay=BAR_S) as drawn:
            for one in each:
                yield one
                drawn.update()
    else:
        told_s, of = time.monotonic(), "" if total is None else f" of {total}"
        for count, one in enumerate(each, 1):
            yield one
            if time.monotonic() - told_s >= LINE_S:
                told_s = time.monotonic()
                say(f"{count}{of} {unit}s {done}", error=True)


def composed(points: Sequence[Piece]) -> Iterator[Piece]:
    """Yield points, and tell how many are composed."""
    return told(points, len(points), "composed", progress=True)


Answer = TypeVar("Answer")
Lost = Callable[[Piece, str], Answer]
"""Answers for a piece of work whose process died, from how it ended, as ``" by SIGKILL(-9)"``, if that is known."""
EXIT_CODES = re.compile(r"exit codes of the workers are \{(.*)\}")
CRASHES = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT")
"""How processes end that compiled code has ruined."""
LEAST_PROCESSES = 2
"""With one job joblib starts no process."""
MOST_JOBS = 1024
LOOK_S = 0.5
"""How often a process looks whether the one that asked is still there."""


class ParentProcess(NamedTuple):
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
    work: Callable[[Piece], Answer], each: Sequence[Piece], jobs: int, lost: Lost[Piece, Answer]
) -> Generator[tuple[int, Answer], None, None]:
    """Yield the place and what came of each of the given, as they end, worked on in `jobs` processes.

    `work`, its arguments and results are pickled. With one job no process is started. When a process dies, all that
    was sent out is worked on again at the end, a piece to each process. When one dies then, too, or one piece is left,
    the pieces that were with them are worked on alone; `lost` answers for a piece that kills its process there.
    """
    if jobs == 1 or not each:
        yield from ((index, work(one)) for index, one in enumerate(each))
        return
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    left = dict(enumerate(each))
    yield from _surviving(work, left, jobs)
    if len(left) > 1:
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
    work: Callable[[Piece], Answer], left: dict[int, Piece], jobs: int, **sent: Any
) -> Iterator[tuple[int, Answer]]:
    """Yield what comes of the pieces `left`, and take it out; a piece sent when a process died stays."""
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
    """Let compiled kernels be made anew where a process has crashed, so that the next try has others."""
    if any(signal_name in str(error) for signal_name in CRASHES):
        distrust()


def _parallel(
    work: Callable[[Piece], Answer], pieces: Iterable[tuple[int, Piece]], jobs: int, **sent: Any
) -> Iterator[tuple[int, Answer]]:
    from joblib import Parallel, delayed

    # A process that has grown (compiled kernels, a long trace) is replaced by joblib, and its work goes on; an
    # interrupt leaves results that nobody takes.
    for said in ("A worker stopped while some jobs were given", r"\d+ tasks (have been|which were) "):
        warnings.filterwarnings("ignore", message=said, category=UserWarning)
    asked = ParentProcess(platform.node(), os.getpid(), str(Path.cwd()), os.environ.get(DATA_VARIABLE))
    # One that gets no work, since the one that asked was killed first, must know whom to end with, too.
    processes = Parallel(
        n_jobs=jobs,
        return_as="generator_unordered",
        max_nbytes=None,
        initializer=_end_with,
        initargs=(asked.host, asked.pid),
        **sent,
    )
    with ExitStack() as stack:
        with _deaf_to_interrupts():
            sent_out: Any = processes(delayed(_placed)(work, index, one, asked) for index, one in pieces)
            stack.enter_context(closing(sent_out))
        yield from sent_out


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Let processes that start here ignore Ctrl-C: each would print a traceback as it imports."""
    if sys.platform == "win32":
        yield
        return
    from multiprocessing import resource_tracker

    from joblib.externals.loky.backend import resource_tracker as joblib_tracker

    for tracker in (resource_tracker, joblib_tracker):
        tracker.ensure_running()  # Its start would let interrupts through again.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _placed(work: Callable[[Piece], Answer], index: int, one: Piece, asked: ParentProcess) -> tuple[int, Answer]:
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
    Ctrl-C reaches every process of a terminal; the one that asked handles it and ends the others.
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
