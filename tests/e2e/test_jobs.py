"""Runs of a sweep in several processes: the same runs, failures and notes as in one, in the same order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from specsim import sweep
from specsim.cli import main
from specsim.config.configured import from_words
from specsim.runs.plan import checked, plan
from specsim.runs.sweep import _lost, run_all
from specsim.store.summaries import Failure

DYING = """
import os, signal
from specsim.schedulers.fcfs import Fcfs

class Dying(Fcfs):
    def step(self, view):
        if view.tpot_slo_s[0] > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return Fcfs.step(self, view)
"""


def test_a_point_that_kills_its_process_fails_and_the_rest_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dies.py").write_text(DYING)
    (tmp_path / "dies.yaml").write_text("_target_: dies.Dying\nmax_num_seqs: 8\n")
    words = ["trace=poisson", "requests=20", "profile=llama8b_1b_h100", f"out={tmp_path}/out"]
    words += [f"scheduler={tmp_path}/dies.yaml", f"plugins=[{tmp_path}/dies.py]"]
    said = "its process was ended by SIGKILL(-9), alone, too: out of memory, or a crash of compiled code"
    command = ["run", "-m", *words, "slo_scale=1,2,1000,3", "--jobs", "2"]
    assert main(command) == 1
    assert capsys.readouterr().err.endswith(f"specsim: slo_scale=1000 failed: {said}\n")
    table = pd.read_csv(tmp_path / "out" / "table.csv")
    assert table.loc[table["error"].notna(), ["slo_scale", "error"]].to_numpy().tolist() == [[1000, said]]
    assert set(table.loc[table["error"].isna(), "slo_scale"]) == {1, 2, 3}
    assert main(command) == 1, "the only point that is left is tried again, in a process of its own"
    assert capsys.readouterr().err.endswith(f"specsim: slo_scale=1000 failed: {said}\n")


def wait_for_the_end_of(pids: list[str]) -> None:
    until = time.monotonic() + 20
    while alive := [each for each in pids if Path("/proc", each, "exe").exists()]:  # Not of a zombie.
        assert time.monotonic() < until, alive
        time.sleep(0.02)


UNSENT = """
import os, signal, sys
from specsim.runs.processes import in_processes

class Unsent:
    def __reduce__(self):
        children = f"/proc/self/task/{os.getpid()}/children"
        with open(sys.argv[1], "w") as file, open(children) as known:
            file.write(known.read())
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    list(in_processes(print, [Unsent()] * 4, 2, None))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells which processes live")
def test_processes_that_never_heard_what_to_do_end_with_the_one_that_asked(tmp_path: Path) -> None:
    """The one that asks is killed as it writes down the first piece of work."""
    (tmp_path / "killed.py").write_text(UNSENT)
    one = subprocess.run([sys.executable, tmp_path / "killed.py", tmp_path / "pids"], stderr=subprocess.DEVNULL)
    assert one.returncode == -signal.SIGKILL
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) >= 2
    wait_for_the_end_of(pids)


def test_one_run_takes_no_number_of_processes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "trace=poisson", "requests=4", "--jobs", "3"]) == 2
    assert capsys.readouterr().err == "specsim: --jobs: this is one run; expected -m beside it, for a sweep\n"


INTERRUPTED = """
import signal
import sys
from specsim.cli import main

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Tests in the background are started deaf to it.
    sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal's Ctrl-C is a signal to a group of processes")
def test_ctrl_c_ends_every_process_and_keeps_what_has_ended(tmp_path: Path) -> None:
    (tmp_path / "begun.py").write_text(INTERRUPTED)
    words = ["run", "-m", "seed=range(0,400)", "trace=poisson", "requests=30", "scheduler=continuous", "--jobs", "2"]
    root = tmp_path / "all"
    with subprocess.Popen(
        [sys.executable, tmp_path / "begun.py", *words, f"out={root}"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as one:
        while not list(root.glob("[!.]*/metrics.json")):
            assert one.poll() is None
            time.sleep(0.02)
        os.killpg(one.pid, signal.SIGINT)
        out, err = one.communicate(timeout=120)
    assert one.returncode == 130
    assert out == ""
    (line,) = err.splitlines()
    assert "runs are kept; the same command with out=" in line
    kept = len(list(root.glob("[!.]*/metrics.json")))
    assert 0 < kept < 400
    assert f" {kept} of 400 " in line


def test_processes_that_live_on_follow_the_one_that_asks_into_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """joblib's processes are used again by the next sweep of a notebook."""
    for name, count in (("a", 3), ("b", 5)):
        (tmp_path / name).mkdir()
        rows = "".join(f"{place},100,4\n" for place in range(count))
        (tmp_path / name / "t.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
        monkeypatch.chdir(tmp_path / name)
        runs = sweep({"seed": [0, 1]}, scheduler="continuous", trace="./t.csv", jobs=2, progress=False)
        assert [run.metrics["completed"] for run in runs] == [count] * 2


KILLED = """
import os, sys, time
from pathlib import Path
from specsim.runs.processes import in_processes

def work(folder):
    Path(folder, str(os.getpid())).touch()
    time.sleep(60)

if __name__ == "__main__":
    list(in_processes(work, [sys.argv[1]] * 4, 2, None))
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
            time.sleep(0.02)
        told = [Path("/proc", each.name, "status").read_text() for each in (tmp_path / "pids").iterdir()]
        one.kill()
    assert all("SigBlk:\t0000000000000002\n" in each for each in told), "none hears Ctrl-C, not even as it starts"
    wait_for_the_end_of([each.name for each in (tmp_path / "pids").iterdir()])


def test_a_run_that_came_meanwhile_is_no_failure(tmp_path: Path) -> None:
    """Another sweep stores the run while the process that makes it here dies."""
    words = ["trace=poisson", "requests=20", "scheduler=fcfs"]
    (planned,) = plan(checked(from_words(words, sweep=True)), tmp_path)
    assert planned.folder is not None
    failed = _lost(tmp_path, planned, " by SIGKILL(-9)")
    assert isinstance(failed.run, Failure)
    run_all([planned], tmp_path)
    assert _lost(tmp_path, planned, "").run == planned.folder
    assert (planned.folder / "metrics.json").is_file()
