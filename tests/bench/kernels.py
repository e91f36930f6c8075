"""``python -m tests.bench.kernels``: what numba gains over numpy, in whole runs and in each kernel alone."""

from __future__ import annotations

import copy
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from specsim.kernels import chosen
from specsim.kernels.chosen import Kernels
from specsim.simulation import run
from tests.bench.loops import CODE, CONV, Loop, batch, prepared, steady

REPEATS = 5
CALLS = 200
WRITERS = ("hold", "reserve", "reserve_draft", "deepen", "commit")
"""Kernels that write to what they are given."""
LATE = 300
"""The call of a kernel whose arguments are kept, if a run has so many: the batch is full by then."""


class Gain(NamedTuple):
    """Microseconds of processor time in numpy and in numba, of an iteration or of a call."""

    name: str
    numpy_us: float
    numba_us: float

    @property
    def times(self) -> float:
        """How many times as quick numba is."""
        return self.numpy_us / self.numba_us


def runs(folder: Path) -> Iterator[Loop]:
    """Yield the runs that are compared."""
    yield Loop("adaserve, azure_code, 1,500 requests", ("scheduler=adaserve", *CODE[:2], "requests=1500", "replicas=1"))
    yield Loop("adaserve 64 x 8 x 3, budget 512, steady", (steady(folder, 8, 3, 512), *batch(64)))
    for name in ("vllm_spec", "smartspec", "specserve"):
        yield Loop(f"{name}, azure_conv, 500 requests", (f"scheduler={name}", *CONV[:2], "requests=500"))


def gain_of_run(loop: Loop) -> Gain:
    """Return the gain of a run; both kernels take turns, the best of each counts."""
    simulation, best = prepared(loop.words), dict.fromkeys(("numpy", "numba"), float("inf"))
    for _ in range(REPEATS):
        for kernel in best:
            start_s = time.process_time()
            iterations = run(replace(simulation, kernel=kernel)).totals.iterations
            best[kernel] = min(best[kernel], (time.process_time() - start_s) / iterations * 1e6)
    return Gain(loop.name, *best.values())


def gains_of_kernels(loop: Loop) -> Iterator[Gain]:
    """Yield the gain of each kernel that a run calls, alone, with what one late call of it was given."""
    kept = _late_calls(loop)
    compiled = Kernels()
    compiled.compile()
    for name, given in kept.items():
        times = [_call_us(getattr(each, name), given, name in WRITERS) for each in (Kernels(), compiled)]
        yield Gain(f"{name} in {loop.name}", *times)


def _late_calls(loop: Loop) -> dict[str, tuple[Any, ...]]:
    """Return copies of the arguments of one call of each kernel of a run."""
    kept: dict[str, tuple[Any, ...]] = {}
    counts = dict.fromkeys((each.name for each in fields(Kernels)), 0)

    def watched(name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            counts[name] += 1
            if counts[name] in (1, LATE):
                kept[name] = copy.deepcopy(given)
            return inner(*given)

        return call

    plain = Kernels()
    made = Kernels(**{name: watched(name, getattr(plain, name)) for name in counts})
    with mock.patch.object(chosen, "kernels", return_value=made):
        run(replace(prepared(loop.words), kernel="numpy"))
    return kept


def _call_us(call: Callable[..., Any], given: tuple[Any, ...], writes: bool) -> float:
    """Return the microseconds of a call, the best of several rounds of many; one that `writes` is given copies."""
    call(*copy.deepcopy(given))
    best_s = float("inf")
    for _ in range(REPEATS):
        asked = [copy.deepcopy(given) if writes else given for _ in range(CALLS)]
        start_s = time.process_time()
        for each in asked:
            call(*each)
        best_s = min(best_s, time.process_time() - start_s)
    return best_s / CALLS * 1e6


def main() -> int:
    """Print both tables."""
    with tempfile.TemporaryDirectory() as folder:
        chosen_runs = list(runs(Path(folder)))
        print(f"{'':58}{'numpy us':>10}{'numba us':>10}{'times':>7}")
        for gain in map(gain_of_run, chosen_runs):
            print(f"{gain.name + ', an iteration':58}{gain.numpy_us:10.1f}{gain.numba_us:10.1f}{gain.times:7.2f}")
        for loop in (chosen_runs[1], chosen_runs[2]):
            for gain in gains_of_kernels(loop):
                print(f"{gain.name:58}{gain.numpy_us:10.1f}{gain.numba_us:10.1f}{gain.times:7.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
