"""A sweep that is killed without warning, again and again: no run is lost, none is half there, none is made twice."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from specsim import load_sweep
from specsim.cli import main

SWEEP = ["run", "-m", "rps=1,2,3,4,5,6,7,8", "scheduler=fcfs,vllm_spec", "requests=40", "trace=poisson", "passes=true"]
KILLS = 12


def contents(root: Path) -> dict[str, bytes]:
    """Return the bytes of every run of a sweep, the clock's own file left out."""
    kept = (path for path in root.glob("*/*") if not path.parent.name.startswith(".") and path.is_file())
    return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in kept if path.name != "provenance.json"}


def written(root: Path) -> int:
    return sum(len(folders) + len(files) for _, folders, files in os.walk(root))


def killed(root: Path, whole_s: float) -> Iterator[int]:
    """Yield the exit code of one process after the other, each killed a little after it has begun to write.

    All together they get half the time of the `whole_s` that the sweep takes, so that it ends late or not at all.
    """
    rng = random.Random(0)
    # Each is a fork of a process that has imported what takes a second.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["specsim.cli", "specsim.api"])
    for _ in range(KILLS):
        before = written(root)
        process = context.Process(target=main, args=([*SWEEP, f"out={root}"],))
        process.start()
        while process.is_alive() and written(root) == before:
            time.sleep(0.001)
        time.sleep(rng.uniform(0.0, whole_s / KILLS))
        process.kill()
        process.join()
        assert process.exitcode is not None
        yield process.exitcode


@pytest.mark.slow
def test_a_sweep_that_is_killed_at_any_moment_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    start_s = time.monotonic()
    assert main([*SWEEP, f"out={whole}"]) == 0
    whole_s = time.monotonic() - start_s
    expected, kills = contents(whole), 0
    for code in killed(broken, whole_s):
        if code != -signal.SIGKILL:
            break
        kills += 1
        found = contents(broken)
        assert all(expected[name] == text for name, text in found.items() if Path(name).name == "requests.parquet")
        runs = {name.partition("/")[0] for name in found if name.endswith("metrics.json")}
        assert not runs or len(load_sweep(broken)) == len(runs)
    assert kills > KILLS / 2
    assert main([*SWEEP, f"out={broken}"]) == 0
    assert contents(broken) == expected
    assert not [path for path in broken.rglob(".specsim-*")]
