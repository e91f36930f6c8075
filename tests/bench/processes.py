"""Whole processes, as a user starts them: seconds by the clock, processor seconds, peak memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from tests.bench.loops import CONV, PROFILE
from tests.bench.rows import Row
from tests.bench.yardstick import yardstick_us

MILLION = ("scheduler=continuous", "trace=poisson", "requests=1000000", "rps=30", "trace.output_tokens.mean=210")
WHOLE_CONV = "continuous, all 19,366 of azure_conv"
PROCESSES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("specsim --help", ("--help",), "0.3 s"),
    ("start to end of one request", ("run", "scheduler=continuous", *CONV[:2], "requests=1"), "start below 0.8 s"),
    ("continuous, first 2,000 of azure_conv", ("run", "scheduler=continuous", *CONV), ""),
    (WHOLE_CONV, ("run", "scheduler=continuous", *CONV[:2]), "that of dynamo.replay"),
    ("the main job: adaserve, all 8,819 of azure_code", ("run", "scheduler=adaserve", "trace=azure_code"), "4 s"),
    ("continuous, a million requests", ("run", *MILLION, PROFILE), "minutes, 1 GB"),
)


def measured(*, million: bool) -> Iterator[Row]:
    """Yield the rows of all, without the million requests unless asked for."""
    for name, words, target in PROCESSES:
        if million or words[1:6] != MILLION:
            yield timed_process(name, (sys.executable, "-m", "specsim", *words), target)


def timed_process(name: str, words: tuple[str, ...], target: str = "") -> Row:
    """Return the row of a process of these words, run in an empty folder."""
    yardstick = yardstick_us()
    with tempfile.TemporaryDirectory() as folder:
        start_s = time.perf_counter()
        process = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start_s
    if status:
        raise SystemExit(f"{name}: exit status {status}")
    cpu_s = usage.ru_utime + usage.ru_stime
    return Row("process", name, 0, cpu_s * 1e6, yardstick, seconds, _peak_mb(usage), target)


def _peak_mb(usage: resource.struct_rusage) -> float:
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
