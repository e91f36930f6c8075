"""``python -m tests.bench``: measure and store everything; ``--check``: compare the loops with the stored rows."""

import argparse
import sys
from collections.abc import Iterable

from tests.bench import growth, loops, peers, processes, sweeps
from tests.bench.rows import STORED, Row, grown, machine, store


def main() -> int:
    """Measure what the words ask for; return 1 if a cost has grown."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--check", action="store_true", help="only the loops, against the stored rows")
    parser.add_argument("--million", action="store_true", help="also a run of a million requests, of minutes")
    arguments = parser.parse_args()
    print(machine())
    if arguments.check:
        said = grown(_told("loop (one core)", loops.measured()))
        print("\n".join(said) or f"no cost has grown since {STORED}")
        return 1 if said else 0
    # Whole processes come first, while this one is small: a child inherits its parent's peak memory.
    rows = _told("whole process", processes.measured(million=arguments.million))
    rows += _told("another simulator, whole process", peers.measured(rows))
    rows += _told("loop (one core)", loops.measured())
    grew = _told("how the cost grows", growth.measured())
    print(growth.overload(grew))
    rows += grew
    each = (loops.timed(loop, "scheduler", repeats=1) for loop in loops.every_scheduler())
    rows += _told("every scheduler, first 500 of azure_conv", each)
    rows += _told("a sweep of short runs, a point each", sweeps.measured())
    store(rows)
    print(STORED)
    return 0


def _told(title: str, rows: Iterable[Row]) -> list[Row]:
    print(f"\n{title}; y: in yardsticks")
    told = []
    for row in rows:
        print(row.line(), flush=True)
        told.append(row)
    return told


if __name__ == "__main__":
    sys.exit(main())
