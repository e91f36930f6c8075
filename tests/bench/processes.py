"""Whole processes, as a user starts them: seconds by the clock, processor seconds, peak memory.

All but the longest start once before they are timed: what Python compiles and specsim keeps is there by then.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from tests.bench.loops import CONV, PROFILE
from tests.bench.rows import Row, yardstick_us

MILLION = ("scheduler=continuous", "trace=poisson", "requests=1000000", "rps=11.574", "trace.output_tokens.mean=210")
"""A day of them."""
POINTS, JOBS = 10_000, 2
SWEEP = (
    "scheduler=continuous,fcfs",
    "rps=2,4",
    f"seed=range(0,{POINTS // 4})",
    "trace=poisson",
    "requests=10",
    PROFILE,
)
ONE_REQUEST = ("run", "scheduler=continuous", *CONV[:2], "requests=1")
AT_FIRST_PASS = """
import os, sys
from specsim.cli import main
from specsim.simulated_backend import SimulatedBackend
SimulatedBackend.verify = lambda *given: os._exit(0)
sys.exit(main(sys.argv[1:]) or "no pass")
"""
"""What ends a process where its first pass would begin."""
BESIDE = ("continuous", "vllm_spec", "smartspec", "specserve")
"""Schedulers whose loops have targets."""
SHORT_S, SHORT_REPEATS = 30.0, 2
WHOLE_CONV = "continuous, all 19,366 of azure_conv"
MAIN_JOB = ("run", "scheduler=adaserve", "trace=azure_code", "replicas=1")
PROCESSES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("specsim --help", ("--help",), "0.3 s"),
    ("start to end of one request", ONE_REQUEST, ""),
    *((f"{name}, first 2,000 of azure_conv", ("run", f"scheduler={name}", *CONV), "") for name in BESIDE),
    (WHOLE_CONV, ("run", "scheduler=continuous", *CONV[:2]), "that of dynamo.replay"),
    ("the main job: adaserve, all 8,819 of azure_code", MAIN_JOB, "4 s"),
    ("continuous, a million requests", ("run", *MILLION, PROFILE), "minutes, 1 GB"),
)


def measured(*, million: bool) -> Iterator[Row]:
    """Yield the rows of all; the longest, a million requests and ten thousand points, only if asked for."""
    yield timed_process("start to the first pass", (sys.executable, "-c", AT_FIRST_PASS, *ONE_REQUEST), "0.8 s")
    for name, words, target in PROCESSES:
        if million or words[1:6] != MILLION:
            yield timed_process(name, (sys.executable, "-m", "specsim", *words), target)
    if million:
        words = ("run", "-m", *SWEEP, "--keep", "summary", "--jobs", str(JOBS))
        row = timed_process(f"a sweep of {POINTS:,} points", (sys.executable, "-m", "specsim", *words), "90% busy")
        yield replace(row, busy=row.us / 1e6 / JOBS / row.seconds)


def timed_process(name: str, words: tuple[str, ...], target: str = "") -> Row:
    """Return the row of a process of these words, run in an empty folder: of a short one the better of two."""
    yardstick, timed = yardstick_us(), [_timed(name, words)]
    while len(timed) <= SHORT_REPEATS and timed[0].seconds < SHORT_S:
        timed.append(_timed(name, words))
    best = min(timed[1:] or timed, key=lambda each: each.seconds)
    return Row("process", name, 0, best.cpu_s * 1e6, yardstick, best.seconds, best.peak_mb, target)


class _Timed(NamedTuple):
    seconds: float
    cpu_s: float
    peak_mb: float


def _timed(name: str, words: tuple[str, ...]) -> _Timed:
    with tempfile.TemporaryDirectory() as folder:
        start_s = time.perf_counter()
        process = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, env=_environment())
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start_s
    if status:
        raise SystemExit(f"{name}: exit status {status}")
    unit = 1 if sys.platform == "darwin" else 1024
    return _Timed(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 1e6)


_compiled = cache(tempfile.TemporaryDirectory)
"""A folder for what Python compiles, where the environment forbids it to lie beside the source."""


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": _compiled().name}
