"""What a sweep of short runs costs a point, in microseconds of processor time of all its processes.

A machine that is busy lengthens the wall time of a sweep, and hardly the processor time: the rows tell this. Only how
busy the cores were is told by the clock, and holds on a machine that does nothing else.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.bench.loops import PROFILE
from tests.bench.rows import Row, yardstick_us

POINTS = 2_000
JOBS = 2


def measured(points: int = POINTS) -> Iterator[Row]:
    """Yield the rows of a sweep of so many points with ten requests each, its summaries kept."""
    from specsim.config.configured import from_words
    from specsim.runs import sweep
    from specsim.runs.plan import PlannedRun, checked, plan
    from specsim.store.sweeps import load_sweep

    yardstick = yardstick_us()

    def row(name: str, cpu_s: float, target: str = "") -> Row:
        return Row("sweep", f"{name} ({points:,} points)", points, cpu_s / points * 1e6, yardstick, target=target)

    alike = ("trace=poisson", "requests=10", PROFILE)
    words = ("scheduler=continuous,fcfs", "rps=2,4", f"seed=range(0,{points // 4})", *alike)
    chosen, cpu_s = _timed(lambda: from_words(words, sweep=True))
    yield row("composed", cpu_s)
    ready, cpu_s = _timed(lambda: checked(chosen))
    yield row("checked", cpu_s)
    with tempfile.TemporaryDirectory() as folder:
        one, two = Path(folder, "one"), Path(folder, "two")
        planned, cpu_s = _timed(lambda: plan(ready, one, keep="summary"))
        yield row("named", cpu_s)
        spent_s: list[float] = []
        prepared = patch.object(PlannedRun, "prepared", _watched(PlannedRun.prepared, spent_s))
        with prepared, patch.object(sweep, "execute", _watched(sweep.execute, spent_s)):
            _, cpu_s = _timed(lambda: sweep.run_all(planned, one))
        yield row("its runs alone", sum(spent_s))
        yield row("what the sweep adds to them", cpu_s - sum(spent_s), "1,000 us")
        yield row("table.csv", _timed(lambda: sweep.write_table(one))[1])
        yield row("load_sweep", _timed(lambda: load_sweep(one))[1])
        yield row("resumed, nothing missing", _timed(lambda: sweep.run_all(planned, one))[1])
        start_s = time.perf_counter()
        _, cpu_s = _timed(lambda: _in_processes(lambda: sweep.run_all(planned, two, jobs=JOBS)))
        busy = cpu_s / JOBS / (time.perf_counter() - start_s)
        yield replace(row(f"{JOBS} processes, their start included", cpu_s, "90% busy"), busy=busy)


def _watched(execute: Callable[..., Any], spent_s: list[float]) -> Callable[..., Any]:
    def watched(*given: Any) -> Any:
        start_s = time.process_time()
        try:
            return execute(*given)
        finally:
            spent_s.append(time.process_time() - start_s)

    return watched


def _in_processes(work: Callable[[], Any]) -> None:
    """Work, and end joblib's processes: a process is in the books of its parent once it has ended."""
    from joblib.externals.loky import get_reusable_executor

    work()
    get_reusable_executor().shutdown(wait=True)


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return what came of it, and the processor seconds of this process and of those that ended."""
    start_s = _spent_s()
    return work(), _spent_s() - start_s


def _spent_s() -> float:
    return time.process_time() + sum(os.times()[2:4])


if __name__ == "__main__":
    import sys

    for each in measured(*map(int, sys.argv[1:])):
        print(each.line(), flush=True)
