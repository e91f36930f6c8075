"""Runs of a sweep in several processes: the same runs, failures and notes as in one, in the same order."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from specsim.results.sweeps import Sweep
from specsim.runs.plan import checked, plan
from specsim.runs.sweep import run_all
from specsim.settings.configured import from_words, labels_of

PLUGIN = """
from specsim.schedulers.fcfs import Fcfs

class Sometimes(Fcfs):
    def step(self, view):
        if view.tpot_slo_s[0] > 1:
            raise RuntimeError("at last")
        return Fcfs.step(self, view)
"""
SCHEDULER = """
description: "fails where objectives are loose"
_target_: sometimes.Sometimes
max_num_seqs: 8
"""


def ran(root: Path | None, words: list[str], jobs: int) -> Sweep:
    return run_all(plan(checked(from_words(words, sweep=True)), root), jobs=jobs)


WORDS = ["trace=poisson", "requests=20", "profile=llama8b_1b_h100", "scheduler=continuous,fcfs", "seed=0,1,2"]


@pytest.mark.parametrize("stored", [True, False])
def test_two_processes_make_the_runs_of_one_in_their_order(tmp_path: Path, stored: bool) -> None:
    one = ran(tmp_path / "one" if stored else None, WORDS, 1)
    two = ran(tmp_path / "two" if stored else None, WORDS, 2)
    assert [(each.config["choices"]["scheduler"], each.config["seed"]) for each in two] == [
        (each.config["choices"]["scheduler"], each.config["seed"]) for each in one
    ]
    assert all(left.metrics == right.metrics for left, right in zip(one, two, strict=True))
    assert all(left.requests.equals(right.requests) for left, right in zip(one, two, strict=True))
    if stored:
        for path in (tmp_path / "one").rglob("*.parquet"):
            assert path.read_bytes() == (tmp_path / "two" / path.relative_to(tmp_path / "one")).read_bytes()


def test_what_stands_is_kept_and_what_is_damaged_is_made_again_with_a_note(tmp_path: Path) -> None:
    ran(tmp_path, WORDS, 2)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.json")}
    lost = sorted(before)[0]
    (lost.parent / "requests.parquet").write_bytes(b"")
    again = ran(tmp_path, WORDS, 2)
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.json")}
    assert {path for path in before if after[path] != before[path]} == {lost}
    assert again.notes == ("1 run made again: requests.parquet is damaged",)


def test_a_run_that_fails_elsewhere_fails_here(tmp_path: Path) -> None:
    (tmp_path / "sometimes.py").write_text(PLUGIN)
    (tmp_path / "sometimes.yaml").write_text(SCHEDULER)
    words = [*WORDS[:3], f"scheduler={tmp_path}/sometimes.yaml", f"plugins=[{tmp_path}/sometimes.py]"]
    found = [ran(tmp_path / f"jobs{jobs}", [*words, "slo_scale=1,1000,2"], jobs) for jobs in (1, 2)]
    assert [len(each) for each in found] == [2, 2]
    for each in found:
        (failure,) = each.failures
        assert failure.config["slo_scale"] == 1000
        assert "RuntimeError: at last" in failure.error
        assert "in step" in failure.traceback
        assert failure.folder is not None
        assert (failure.folder / "failure.json").is_file()


KILLED = """
import os, sys, time
from pathlib import Path
from specsim.runs.processes import in_processes

def work(folder):
    Path(folder, str(os.getpid())).touch()
    time.sleep(60)

if __name__ == "__main__":
    list(in_processes(work, [sys.argv[1]] * 4, 2))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells which processes live")
def test_processes_end_with_the_one_that_asked(tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(KILLED)
    (tmp_path / "pids").mkdir()
    with subprocess.Popen(
        [sys.executable, tmp_path / "killed.py", tmp_path / "pids"], stderr=subprocess.DEVNULL
    ) as one:
        while len(list((tmp_path / "pids").iterdir())) < 2:
            assert one.poll() is None
            time.sleep(0.05)
        one.kill()
    until = time.monotonic() + 20
    while alive := [each.name for each in (tmp_path / "pids").iterdir() if Path("/proc", each.name).exists()]:
        assert time.monotonic() < until, alive
        time.sleep(0.1)


def test_points_of_different_keys_are_named_by_those_they_have() -> None:
    told = labels_of([{"rps": "1", "seed": "0"}, {"requests": "5", "seed": "0"}])
    assert told == [{"rps": "1"}, {"requests": "5"}]
