"""How the cost of an iteration grows: with the batch, the trees, the trace, the queue and the replicas."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.loops import PROFILE, Loop, batch, steady, timed
from tests.bench.rows import Row

APART = {"fast_forward": False}


def loops(folder: Path) -> Iterator[Loop]:
    """Yield runs that differ in one size each."""
    for rows in (2, 8, 64, 256):
        yield Loop(f"batch {rows}, continuous", ("scheduler=continuous", *batch(rows, 1000)), fields=APART)
    for rows in (2, 8, 64, 256):
        yield Loop(f"batch {rows}, vllm_spec k=4", ("scheduler=vllm_spec", *batch(rows, 1000)))
    for depth, width in ((2, 1), (4, 1), (4, 2), (4, 4), (8, 4)):
        words = (steady(folder, depth, width, 512), *batch(64, 500))
        yield Loop(f"tree {depth} x {width} of 64 requests, adaserve", words)
    for requests in (500, 2_000, 8_000, 32_000):
        words = ("scheduler=continuous", "trace=poisson", PROFILE, "rps=10", f"requests={requests}")
        yield Loop(f"{requests:,} requests at 10/s, continuous", words, fields=APART)
    for requests in (1_000, 20_000):
        words = ("scheduler=continuous", "trace=poisson", PROFILE, "rps=100000", f"requests={requests}")
        yield Loop(f"{requests:,} requests queued at once, continuous", words, fields=APART)
    for replicas in (1, 4, 16):
        rate = (f"rps={10 * replicas}", f"replicas={replicas}", f"requests={500 * replicas}")
        yield Loop(f"{replicas} replicas, continuous", ("scheduler=continuous", "trace=poisson", PROFILE, *rate))


def measured() -> Iterator[Row]:
    """Yield their rows."""
    with tempfile.TemporaryDirectory() as folder:
        for loop in loops(Path(folder)):
            yield timed(loop, "growth", repeats=2)
