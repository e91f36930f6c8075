"""``python -m tests.bench.shares [NAME]``: the rooms that an iteration of a loop spends its time in, and the calls."""

import argparse
import cProfile
import pstats
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from specsim.errors import SpecsimError
from specsim.simulation import run
from tests.bench import loops

PACKAGE = Path(__file__).parents[2] / "specsim"
OUTSIDE = "simpy, and what numpy and Python do among themselves"
Function = tuple[str, int, str]
WHOLE_CONV = loops.Loop("all of azure_conv, continuous", ("scheduler=continuous", *loops.CONV[:2]))
MAIN_JOB = loops.Loop(
    "the main job: adaserve, all of azure_code", ("scheduler=adaserve", "trace=azure_code", "replicas=1"), "4 s in all"
)


def told(loop: loops.Loop) -> Iterator[str]:
    """Yield lines of where the time of a loop goes.

    They tell its iterations, the scheduler's turns, and how many iterations ran several at once in how many events of
    the clock; the microseconds of an iteration that is not profiled; by room its share of them, and its calls.

    Time in numpy and in Python counts for the room whose code calls it. Profiling slows calls, so that rooms of many
    short calls have a larger share here than in a plain run.
    """
    simulation = replace(loops.prepared(loop.words), **loop.fields)
    run(simulation)
    start_s = time.process_time()
    run(simulation)
    plain_s = time.process_time() - start_s
    profile = cProfile.Profile()
    profile.enable()
    iterations = run(simulation).totals.iterations
    profile.disable()
    seconds: defaultdict[str, float] = defaultdict(float)
    calls: defaultdict[str, float] = defaultdict(float)
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for function, (_, count, own_s, _, callers) in stats.items():
        room = _room(function)
        if room != OUTSIDE or not callers:
            seconds[room] += own_s
            calls[room] += count
            continue
        for caller, (_, times, part_s, _) in callers.items():
            seconds[_room(caller)] += part_s
            calls[_room(caller)] += times
    whole_s = sum(seconds.values())
    times = {(Path(file).name, name): count for (file, _, name), (_, count, *_) in stats.items()}
    turns, at_once = times["planning.py", "__init__"], iterations - times["simulated.py", "verify"]
    events = times.get(("ledger.py", "commit_passes"), 0) + times.get(("ledger.py", "commit_rounds"), 0)
    us = plain_s / iterations * 1e6
    yield f"{loop.name}: {iterations:,} iterations, {turns:,} turns, {at_once:,} of them at once in {events:,} events"
    yield f"{'an iteration':54}{us:8.1f} us          (target: {loop.target or '-'})"
    for room in sorted(seconds, key=lambda each: -seconds[each]):
        share = seconds[room] / whole_s
        yield f"{room:54}{share * us:8.1f} us {100 * share:6.1f}% {calls[room] / iterations:8.0f} calls"


def _room(function: Function) -> str:
    file = Path(function[0])
    if not file.is_relative_to(PACKAGE):
        return OUTSIDE
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def main() -> int:
    """Print a table for each named loop, for all without a name."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.shares")
    parser.add_argument("name", nargs="?", help="how the loop's name begins (all)")
    wanted = parser.parse_args().name or ""
    with tempfile.TemporaryDirectory() as folder:
        every = (*loops.main_loops(Path(folder)), WHOLE_CONV, MAIN_JOB)
        chosen = [loop for loop in every if loop.name.startswith(wanted)]
        if not chosen:
            raise SpecsimError(f"{wanted}: no loop's name begins so")
        for loop in chosen:
            print("", *told(loop), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
