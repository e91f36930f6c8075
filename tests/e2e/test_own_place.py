"""Each run has a place of its own: of two runs that want one place, one has it and the other is refused."""

import subprocess
import sys

import pytest

from specsim import cli, load_run
from specsim.cli import main
from specsim.commands import run as run_command
from specsim.store import writer

WORDS = ["trace=poisson", "requests=6", "acceptance=bernoulli", "profile=llama8b_1b_h100", "scheduler=fcfs"]
REFUSED = "specsim: out=mine: holds a run with other settings; expected a new folder"
TOGETHER = """
import sys
from pathlib import Path
import specsim.store.writer as writer
from specsim.cli import main

place, me, other = writer._place, *map(Path, sys.argv[1:3])

def placed(*given):
    "Meet the other process with all files written, so that both want the place at once."
    me.touch()
    while not other.exists():
        pass
    place(*given)

writer._place = placed
sys.exit(main(sys.argv[3:]))
"""


def two_at_once(folder, one, other):
    """Run two commands in two processes that reach the last moment together; return (code, stderr) of each."""
    marks = [str(folder / name) for name in ("one", "other")]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", TOGETHER, *order, *words],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for order, words in ((marks, one), (marks[::-1], other))
    ]
    told = [process.communicate(timeout=120) for process in running]
    return [(process.returncode, err) for process, (_, err) in zip(running, told, strict=True)]


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
def test_a_run_whose_place_was_taken_meanwhile_is_told(tmp_path, monkeypatch, capsys, there, rates):
    """The other command comes and goes when all files of the first are written: both in this process, in turn."""
    lay_out(tmp_path, there, rates[0])
    monkeypatch.chdir(tmp_path)
    place, words = writer._place, [["run", *WORDS, f"rps={rate}", "out=mine"] for rate in rates]

    def placed(*given):
        monkeypatch.setattr(writer, "_place", place)
        assert main(words[1]) == 0
        place(*given)

    monkeypatch.setattr(writer, "_place", placed)
    assert main(words[0]) == (0 if rates == SAME else 2)
    assert capsys.readouterr().err == ("" if rates == SAME else f"{REFUSED}\n")
    assert load_run(tmp_path / "mine").config["rps"] == float(rates[1])
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize(("there", "rates"), [RACES[0], RACES[-1]])
def test_of_two_with_one_out_one_wins_and_the_other_is_told(tmp_path, there, rates):
    lay_out(tmp_path, there, rates[0])
    ended = two_at_once(tmp_path, *(["run", *WORDS, f"rps={rate}", "out=mine"] for rate in rates))
    assert sorted(ended) == [(0, ""), (0, "") if rates == SAME else (2, f"{REFUSED}\n")]
    won = {float(rate) for rate, (code, _) in zip(rates, ended, strict=True) if code == 0}
    assert load_run(tmp_path / "mine").config["rps"] in won
    assert not list(tmp_path.rglob(".*"))


def test_two_runs_of_one_second_have_two_folders(tmp_path, monkeypatch):
    class Stopped:
        @staticmethod
        def now():
            return cli_datetime(2026, 1, 2, 3, 4, 5)

    cli_datetime = run_command.datetime
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_command, "datetime", Stopped)
    for rate in ("2", "4"):
        assert cli.main(["run", *WORDS, f"rps={rate}"]) == 0
    assert cli.main(["run", "-m", *WORDS]) == 0
    names = sorted(path.name for path in (tmp_path / "results" / "runs").iterdir())
    assert names == ["20260102-030405-fcfs-poisson", "20260102-030405-fcfs-poisson-2", "20260102-030405-sweep"]
    assert [load_run(tmp_path / "results" / "runs" / name).config["rps"] for name in names[:2]] == [2, 4]


def test_a_run_that_fails_leaves_no_folder_of_its_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def fails(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("specsim.runs.execute.execute", fails)
    assert main(["run", *WORDS]) == 130
    assert capsys.readouterr().err == "specsim: interrupted; nothing is kept\n"
    assert list((tmp_path / "results" / "runs").iterdir()) == []
