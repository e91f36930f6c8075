"""``python -m tests.bench.shares [NAME]``: the rooms that an iteration of a loop spends its time in, and the calls."""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

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


class Shares(NamedTuple):
    """Where the time of a loop goes.

    Attributes
    ----------
    iterations, turns : of the loop, and those of the scheduler in it. us : of an iteration that is not profiled.
    at_once, events : iterations that ran several at once, and in how many events of the clock.
    rooms : by room the share of the time, and the calls per iteration.
    """

    iterations: int
    us: float
    turns: int
    at_once: int
    events: int
    rooms: dict[str, tuple[float, float]]


def shares(loop: loops.Loop) -> Shares:
    """Return where the time of a loop goes.

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
    return Shares(
        iterations,
        plain_s / iterations * 1e6,
        times["planning.py", "__init__"],
        iterations - times["simulated.py", "verify"],
        times.get(("ledger.py", "commit_passes"), 0) + times.get(("ledger.py", "commit_rounds"), 0),
        {room: (seconds[room] / whole_s, calls[room] / iterations) for room in seconds},
    )


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
            found = shares(loop)
            at_once = f"{found.at_once:,} of them at once in {found.events:,} events"
            print(f"\n{loop.name}: {found.iterations:,} iterations, {found.turns:,} turns, {at_once}")
            print(f"{'an iteration':54}{found.us:8.1f} us          (target: {loop.target or '-'})")
            for room, (share, calls) in sorted(found.rooms.items(), key=lambda each: -each[1][0]):
                print(f"{room:54}{share * found.us:8.1f} us {100 * share:6.1f}% {calls:8.0f} calls")
    return 0


if __name__ == "__main__":
    sys.exit(main())
