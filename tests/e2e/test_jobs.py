"""Runs in several processes, which may be killed: no run is lost, none is half there, and two never have one place."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace
from unittest.mock import Mock

import pandas as pd
import pytest

from specsim import load_run, load_sweep, sweep
from specsim.cli import main
from specsim.config.configured import from_words
from specsim.runs.plan import checked, plan
from specsim.runs.sweep import _lost, run_all
from specsim.store import runs as stored
from specsim.store.summaries import Failure
from tests.files import contents

DYING = """
import os, signal
from specsim.schedulers.fcfs import Fcfs

class Dying(Fcfs):
    def step(self, view):
        if view.tpot_slo_s[0] > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return Fcfs.step(self, view)
"""


def test_a_point_that_kills_its_process_fails_and_the_rest_runs(tmp_path, capsys):
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


def wait_for_the_end_of(pids):
    until = time.monotonic() + 20
    while alive := [each for each in pids if Path("/proc", each, "exe").exists()]:  # Not of a zombie.
        assert time.monotonic() < until, alive
        time.sleep(0.02)


INTERRUPTED = """
import signal
import sys
from specsim.cli import main

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Tests in the background are started deaf to it.
    sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal's Ctrl-C is a signal to a group of processes")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_end_every_process_and_keep_what_has_ended(tmp_path, number):
    (tmp_path / "begun.py").write_text(INTERRUPTED)
    words = ["run", "-m", "seed=range(0,400)", "trace=poisson", "requests=30", "scheduler=continuous", "--jobs", "2"]
    root = tmp_path / "all"
    command = [sys.executable, tmp_path / "begun.py", *words, f"out={root}"]
    with subprocess.Popen(command, stderr=PIPE, stdout=PIPE, text=True, start_new_session=True) as one:
        while not list(root.glob("[!.]*/metrics.json")):
            assert one.poll() is None
            time.sleep(0.02)
        os.killpg(one.pid, number)
        out, err = one.communicate(timeout=120)
    assert (one.returncode, out) == (130, "")
    (line,) = err.splitlines()
    assert "runs are kept; the same command with out=" in line
    kept = len(list(root.glob("[!.]*/metrics.json")))
    assert 0 < kept < 400
    assert f" {kept} of 400 " in line


def test_processes_that_live_on_follow_the_one_that_asks_into_another_folder(tmp_path, monkeypatch):
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
def test_processes_end_with_the_one_that_asked(tmp_path):
    (tmp_path / "killed.py").write_text(KILLED)
    (tmp_path / "pids").mkdir()
    with subprocess.Popen([sys.executable, "killed.py", "pids"], cwd=tmp_path, stderr=subprocess.DEVNULL) as one:
        while len(pids := [each.name for each in (tmp_path / "pids").iterdir()]) < 2:
            assert one.poll() is None
            time.sleep(0.02)
        told = [Path("/proc", each, "status").read_text() for each in pids]
        one.kill()
    assert all("SigBlk:\t0000000000000002\n" in each for each in told), "none hears Ctrl-C, not even as it starts"
    wait_for_the_end_of(pids)


def test_a_run_that_came_meanwhile_is_no_failure(tmp_path):
    """Another sweep stores the run while the process that makes it here dies."""
    (planned,) = plan(checked(from_words(["trace=poisson", "requests=20", "scheduler=fcfs"], sweep=True)), tmp_path)
    assert isinstance(_lost(tmp_path, planned, " by SIGKILL(-9)").run, Failure)
    run_all([planned], tmp_path)
    assert _lost(tmp_path, planned, "").run == planned.folder
    assert (planned.folder / "metrics.json").is_file()


SWEEP = ["run", "-m", "rps=1,2,3,4,5,6,7,8", "scheduler=fcfs,vllm_spec", "requests=40", "trace=poisson", "passes=true"]
KILLS = 12


def runs_in(root):
    """Return the bytes of every run of a sweep, the clock's own file left out."""
    found = contents(root, "provenance.json").items()
    return {name: text for name, text in found if "/" in name and not name.startswith(".")}


def written(root):
    return sum(len(folders) + len(files) for _, folders, files in os.walk(root))


def killed(root, whole_s):
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
        yield process.exitcode


@pytest.mark.slow
def test_a_sweep_that_is_killed_at_any_moment_ends_as_if_it_had_not_been(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    start_s = time.monotonic()
    assert main([*SWEEP, f"out={whole}"]) == 0
    whole_s, expected, kills = time.monotonic() - start_s, runs_in(whole), 0
    for code in killed(broken, whole_s):
        if code != -signal.SIGKILL:
            break
        kills += 1
        found = runs_in(broken)
        assert all(expected[name] == text for name, text in found.items() if Path(name).name == "requests.parquet")
        runs = {name.partition("/")[0] for name in found if name.endswith("metrics.json")}
        assert not runs or len(load_sweep(broken)) == len(runs)
    assert kills > KILLS / 2
    assert main([*SWEEP, f"out={broken}"]) == 0
    assert runs_in(broken) == expected
    assert not [path for path in broken.rglob(".specsim-*")]


WORDS = ["trace=poisson", "requests=6", "acceptance=bernoulli", "profile=llama8b_1b_h100", "scheduler=fcfs"]
REFUSED = "specsim: out=mine: holds a run with other settings; expected a new folder"
OTHERS, SAME = ("2", "4"), ("2", "2")
RACES = [*((there, rates) for there in ("no folder", "empty", "a file") for rates in (OTHERS, SAME)), ("a run", SAME)]


def lay_out(folder, there, rate):
    """Make what is at the place before the two commands come."""
    if there != "no folder":
        (folder / "mine").mkdir()
    if there == "a file":
        (folder / "mine" / "notes.txt").write_text("mine")
    if there == "a run":
        assert main(["run", *WORDS, f"rps={rate}", f"out={folder / 'mine'}"]) == 0


@pytest.mark.parametrize(("there", "rates"), RACES)
def test_a_run_whose_place_was_taken_meanwhile_is_told(here, monkeypatch, capsys, there, rates):
    """The other command comes and goes when all files of the first are written: both in this process, in turn."""
    lay_out(here, there, rates[0])
    place, words = stored._place, [["run", *WORDS, f"rps={rate}", "out=mine"] for rate in rates]

    def placed(*given):
        monkeypatch.setattr(stored, "_place", place)
        assert main(words[1]) == 0
        place(*given)

    monkeypatch.setattr(stored, "_place", placed)
    assert main(words[0]) == (0 if rates == SAME else 2)
    assert capsys.readouterr().err == ("" if rates == SAME else f"{REFUSED}\n")
    assert load_run("mine").config["rps"] == float(rates[1])
    assert not list(here.rglob(".*"))


def test_two_runs_of_one_second_have_two_folders(here, monkeypatch):
    monkeypatch.setattr("specsim.commands.run.datetime", SimpleNamespace(now=lambda: datetime(2026, 1, 2, 3, 4, 5)))
    assert [main(["run", *WORDS, *more]) for more in (["rps=2"], ["rps=4"], ["-m"])] == [0, 0, 0]
    runs = sorted((here / "results" / "runs").iterdir())
    names = ["20260102-030405-fcfs-poisson", "20260102-030405-fcfs-poisson-2", "20260102-030405-sweep"]
    assert [each.name for each in runs] == names
    assert [load_run(each).config["rps"] for each in runs[:2]] == [2, 4]


def test_a_run_that_fails_leaves_no_folder_of_its_own(here, monkeypatch, capsys):
    monkeypatch.setattr("specsim.runs.execute.execute", Mock(side_effect=KeyboardInterrupt))
    assert main(["run", *WORDS]) == 130
    assert capsys.readouterr().err == "specsim: interrupted; nothing is kept\n"
    assert list((here / "results" / "runs").iterdir()) == []
