"""Speed and memory, with the machine they were measured on: ``make bench``. Never part of a test.

Whole processes are timed first, while this one is small: a child inherits its parent's peak memory. Loop figures are
the best of three loops in one process.
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specsim.runs.prepare import Experiment

REPEATS = 3
STEADY = """\
_target_: specsim.schedulers.composed.Composed
batching:
  _target_: specsim.schedulers.sarathi.Chunked
  max_num_seqs: 64
  prefill_tokens: 16384
  prefill: mixed
  watermark: 0.01
speculation:
  _target_: specsim.schedulers.adaserve.SloTrees
  verify_tokens: 512
  shape: {_target_: specsim.schedulers.parts.tree_shape.Fixed, depth: 8, width: 3}
  order: {_target_: specsim.schedulers.parts.selection.neediest_first, _partial_: true}
  cap: {_target_: specsim.schedulers.parts.selection.at_most_the_tree, _partial_: true}
  slo_share: 1.2
  slo_below: null
  fill: true
  time_margin: 1.0
"""
CONV = ("trace=azure_conv", "profile=llama8b_1b_h100", "requests=2000")


@dataclass(frozen=True)
class Loop:
    """One loop to time, and the iterations per second it should reach."""

    name: str
    words: tuple[str, ...]
    target_per_s: float


def main() -> None:
    """Print every figure."""
    print(f"{platform.platform()}, {_cpu()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"{'whole process':52}{'seconds':>11}{'peak MB':>9}{'target':>20}")
    _time_process("continuous, azure_conv first 2,000, 8B H100", ("scheduler=continuous", *CONV), "300 MB")
    _time_process("adaserve, azure_code, all 8,819 (the main job)", ("scheduler=adaserve", "trace=azure_code"), "60 s")
    _time_process("specsim --help", ("--help",), "0.3 s", command=())
    print(f"\n{'loop (one core)':52}{'iterations':>11}{'it/s':>9}{'target':>9}{'us/it':>8}")
    with tempfile.TemporaryDirectory() as folder:
        steady = Path(folder) / "steady.yaml"
        steady.write_text(STEADY)
        for loop in _loops(str(steady)):
            _time_loop(loop)
    print(
        f"\n{'every scheduler, first 2,000 of azure_conv, 8B':52}{'iterations':>11}{'it/s':>9}{'target':>9}{'us/it':>8}"
    )
    for name in _schedulers():
        _time_loop(Loop(name, (f"scheduler={name}", *CONV), 1_500), repeats=1)
    _time_selection()


def _loops(steady: str) -> tuple[Loop, ...]:
    fixed = "{distribution:fixed,mean:%d,cv:null,low:null,high:null}"
    batch = ("trace=poisson", "requests=64", "rps=100000", "profile=llama8b_1b_h100")
    lengths = (f"trace.output_tokens={fixed % 2000}", f"trace.prompt_tokens={fixed % 100}")
    return (
        Loop("continuous, azure_conv first 2,000, 8B H100", ("scheduler=continuous", *CONV), 10_000),
        Loop("vllm_spec k=4, azure_conv first 2,000, 8B H100", ("scheduler=vllm_spec", *CONV), 5_000),
        Loop("adaserve 64 x 8 x 3, budget 512, steady, 8B H100", (f"scheduler={steady}", *batch, *lengths), 1_500),
    )


def _schedulers() -> list[str]:
    from specsim.settings.groups import names

    return names("scheduler")


def _time_selection() -> None:
    """Print how AdaServe's selection grows with requests: candidates of depth 8 and width 3, half of them selected."""
    import numpy as np

    from specsim.replica.trees import Forest
    from specsim.schedulers.parts.selection import neediest_first, select
    from tests.layers import grow

    print(f"\n{'AdaServe selection, 8 x 3 candidates a request':52}{'nodes':>11}{'us':>9}{'ns / n log2 n':>17}")
    luck = np.random.default_rng(0)
    for requests in (16, 32, 64, 128, 256, 512):
        forest = Forest.roots(requests)
        leaves = np.arange(requests)
        for _ in range(8):
            parents = np.repeat(leaves, 3) if len(leaves) == requests else leaves
            sure = luck.random(len(parents))
            path = sure * forest.path_probability[parents]
            leaves = np.arange(len(forest), len(forest) + len(parents))
            forest = grow(forest, parents, np.zeros_like(parents), sure, path, np.zeros_like(parents))
        need = luck.uniform(0, 6, requests)
        start = time.perf_counter()
        for _ in range(100):
            select(forest, need, neediest_first(need), 12, requests * 13)
        micros, nodes = (time.perf_counter() - start) * 1e4, forest.draft_nodes
        print(f"{requests:<52}{nodes:>11,}{micros:>9.0f}{micros * 1e3 / (nodes * np.log2(nodes)):>17.2f}")


def _time_loop(loop: Loop, repeats: int = REPEATS) -> None:
    from specsim.runs.plan import checked
    from specsim.settings.configured import from_words

    ((_, _, experiment),) = checked(from_words(loop.words, sweep=False))
    assert experiment is not None
    timed = [_one_loop(experiment) for _ in range(repeats)]
    iterations, seconds = timed[0][0], min(each[1] for each in timed)
    rate = f"{iterations / seconds:>9,.0f}{loop.target_per_s:>9,.0f}"
    print(f"{loop.name:52}{iterations:>11,}{rate}{seconds / iterations * 1e6:>8.0f}")


def _one_loop(experiment: Experiment) -> tuple[int, float]:
    from specsim.simulation import run

    start = time.perf_counter()
    record = run(experiment.simulation)
    return record.totals.iterations, time.perf_counter() - start


def _time_process(name: str, words: tuple[str, ...], target: str, command: tuple[str, ...] = ("run",)) -> None:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "specsim", *command, *words], cwd=folder, stdout=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"{name}: exit status {status}")
    print(f"{name:52}{seconds:>11.2f}{_peak_mb(usage):>9.0f}{target:>20}")


def _peak_mb(usage: resource.struct_rusage) -> float:
    return usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")


if __name__ == "__main__":
    main()
