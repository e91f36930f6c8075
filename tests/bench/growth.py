"""How the cost of an iteration grows: with the batch, the trees, the trace, the queue and the replicas."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bench.loops import PROFILE, Loop, batch, steady, timed
from tests.bench.rows import Row

APART = {"multi_step": False}
SERVICE_RPS = 51
"""Requests per second that this profile ends of trace=poisson: 20,000 that come at once end in 394 s."""
OVERLOAD = ((0.9, 20_000, ""), (2, 40_000, "1.5 times that at 0.9"))
"""Shares of it, requests, and what the cost should be. At twice the rate half of the requests are queued in the end."""
OVERLOADED = ("continuous", "vtc")
"""Policies with a batch as large: one that takes the head of the queue, and one that looks at all of it."""


def loops(folder: Path) -> Iterator[Loop]:
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
    for policy in OVERLOADED:
        for share, requests, said in OVERLOAD:
            rate = (f"rps={share * SERVICE_RPS}", f"requests={requests}")
            words = (f"scheduler={policy}", "trace=poisson", PROFILE, *rate)
            yield Loop(f"{requests:,} requests at {share:g} x the service rate, {policy}", words, said, APART)
    for replicas in (1, 4, 16):
        rate = (f"rps={10 * replicas}", f"replicas={replicas}", f"requests={500 * replicas}")
        yield Loop(f"{replicas} replicas, continuous", ("scheduler=continuous", "trace=poisson", PROFILE, *rate))


def measured() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        for loop in loops(Path(folder)):
            yield timed(loop, "growth", repeats=2)


def overload(rows: Sequence[Row]) -> str:
    """Return in words how much more an iteration costs in overload than below the service rate."""
    told = []
    for policy in OVERLOADED:
        below, above = (row for row in rows if row.name.endswith(f"the service rate, {policy}"))
        told.append(f"{policy} {above.us / below.us:.2f} times as long, {above.cost / below.cost:.2f} in yardsticks")
    return f"overload (1.5): {'; '.join(told)}"
