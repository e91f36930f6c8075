"""``python -m tests.bench.queue [SCHEDULER ...]``: how the cost of an iteration grows with the queue, in one run.

Requests come at twice the service rate, so that the queue grows and all else stays as it is. Run step by step.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from specsim.metrics.recorder import Recorder
from specsim.simulation import run
from tests.bench.growth import SERVICE_RPS
from tests.bench.loops import PROFILE, prepared

SCHEDULERS = ("continuous", "vtc")
REQUESTS = 44_000
"""Twice as many as wait when the last one has arrived."""
EVERY = 100
"""Iterations of which the time is taken together."""
PARTS = 8


class Part(NamedTuple):
    """A stretch of the arrivals: requests in the queue in the mean, and the median microseconds of an iteration."""

    queued: float
    us: float


def parts(scheduler: str, requests: int = REQUESTS) -> list[Part]:
    """Return `PARTS` stretches of a run up to its last arrival."""
    words = (f"scheduler={scheduler}", "trace=poisson", PROFILE, f"rps={2 * SERVICE_RPS}", f"requests={requests}")
    simulation = replace(prepared(words), multi_step=False)
    marks: list[tuple[float, float, int]] = []
    record = Recorder.verify

    def marked(recorder: Recorder, replica: int, verified: Any) -> None:
        if recorder.iterations % EVERY == 0:
            at_s = verified.start_s
            marks.append((at_s, time.process_time(), recorder._queued(replica, at_s)))
        record(recorder, replica, verified)

    with patch.object(Recorder, "verify", marked):
        run(simulation)
    last_s = simulation.requests.arrival_s[-1]
    clock_s, queued = np.array([mark[1:] for mark in marks if mark[0] <= last_s]).T
    us = np.diff(clock_s) / EVERY * 1e6
    each = zip(np.array_split(queued[1:], PARTS), np.array_split(us, PARTS), strict=True)
    return [Part(float(line.mean()), float(np.median(part))) for line, part in each]


def main(words: Sequence[str]) -> int:
    """Print the stretches of each scheduler."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.queue")
    parser.add_argument("schedulers", nargs="*", default=SCHEDULERS)
    for scheduler in parser.parse_args(words).schedulers:
        found = parts(scheduler)
        for part in found:
            print(f"{scheduler:16}{part.queued:8,.0f} queued {part.us:8.1f} us an iteration")
        print(f"{scheduler:16}{found[-1].us / found[0].us:8.2f} times as long at the end as at the start\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
