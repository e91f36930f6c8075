"""Rows of the benchmark: printed as they are measured, kept as Parquet, and compared with those kept before.

Times are measured in a yardstick: a fixed number of short numpy calls from Python.
"""

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from specsim.errors import SpecsimError
from specsim.files.staging import in_one_step

STORED = Path("results/bench.parquet")
SLOWER = 1.25
"""A cost that is so many times what it was has grown."""
CALLS, REPEATS = 3_000, 3
PACKAGES = ("specsim", "numpy", "numba", "simpy", "pandas", "pyarrow")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    Attributes
    ----------
    group, name : what was measured. iterations : of the run, 0 where it has none.
    us : microseconds of processor time of an iteration; of a whole process those of all of it.
    yardstick_us : of the yardstick beside it. cost : `us` in yardsticks. seconds : of a whole process, by the clock.
    peak_mb : of a whole process. target : as it is asked for, in words.
    busy : processor time over what the cores in use had, by the clock.
    """

    group: str
    name: str
    iterations: int
    us: float
    yardstick_us: float
    seconds: float | None = None
    peak_mb: float | None = None
    target: str = ""
    busy: float | None = None

    @property
    def cost(self) -> float:
        """The figure in yardsticks."""
        return self.us / self.yardstick_us

    def line(self) -> str:
        if self.seconds is not None:
            told = f"{self.seconds:>10.2f} s {self.us / 1e6:>8.2f} CPU s {self.peak_mb:>6.0f} MB"
        else:
            told = f"{self.iterations:>10,} it {1e6 / self.us:>10,.0f} it/s {self.us:>7.1f} us"
        busy = "" if self.busy is None else f"  cores {self.busy:.0%} busy"
        return f"{self.name:54}{told}  {self.cost:>9.1f} y  {self.target}{busy}"


def yardstick_us() -> float:
    """Return the microseconds of processor time of one round of short numpy calls, the best of several."""
    return min(_once() for _ in range(REPEATS))


def _once() -> float:
    numbers, index = np.arange(64, dtype=np.int64), np.arange(0, 64, 3)
    start_s = time.process_time()
    for _ in range(CALLS):
        some = numbers[index]
        numbers[index] = some + 1
        np.count_nonzero(some > 5)
        int(np.add.reduce(some))
    return (time.process_time() - start_s) / CALLS * 1e6


def machine() -> str:
    """Return the machine and the versions that the figures are of."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")
    versions = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    hardware = f"{platform.platform()}, {cpu}, {os.cpu_count()} cores, {memory_gb:.0f} GB"
    return f"{hardware}, Python {platform.python_version()}; {versions}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not there"


def store(rows: Sequence[Row], file: Path = STORED) -> None:
    """Write the rows, with the machine, in one step."""
    from pandas import DataFrame

    table = DataFrame([asdict(row) | {"cost": row.cost, "machine": machine()} for row in rows])
    with in_one_step(file) as partial:
        table.to_parquet(partial, index=False)


def grown(rows: Sequence[Row], file: Path = STORED) -> list[str]:
    """Return a line for each cost that has grown by more than `SLOWER` since the stored rows, or was not measured now.

    Of the stored rows those count whose group was measured.

    Raises
    ------
    SpecsimError
        When no row is stored, or none of the same name.
    """
    from pandas import read_parquet

    if not file.is_file():
        raise SpecsimError(f"{file}: missing; expected the rows that `make bench` writes")
    table = read_parquet(file)
    before = dict(zip(zip(table["group"], table["name"], strict=True), table["cost"], strict=True))
    both = [row for row in rows if (row.group, row.name) in before]
    if not both:
        raise SpecsimError(f"{file}: none of its rows was measured; expected rows of `make bench`")
    groups, measured = {row.group for row in rows}, {(row.group, row.name) for row in rows}
    missing = [name for group, name in before if group in groups and (group, name) not in measured]
    return [f"{name}: stored, and not measured now" for name in missing] + [
        f"{row.name}: {row.cost:.1f} yardsticks, {row.cost / before[row.group, row.name]:.2f} times the stored figure"
        for row in both
        if row.cost > SLOWER * before[row.group, row.name]
    ]
