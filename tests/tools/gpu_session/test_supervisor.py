"""The process of a session, with a stand-in for its stages: breaks, limits, signals, kills."""

import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from tools.gpu_session import supervisor
from tools.gpu_session.state import State, read_state
from tools.gpu_session.supervisor import Supervisor

LIMITS = dict.fromkeys(("check", "sweep", "engine", "rest"), 1.0)

# A stage that measures a row at each start, and then does as told.
STAGE = """
import os, signal, sys, threading, time
from pathlib import Path
folder, stage, seconds = sys.argv[1:]
rows = Path(folder) / "rows.jsonl"
what = (Path(folder) / f"{stage}.do").read_text().split()
started = len(rows.read_text().splitlines()) if rows.exists() else 0
do = what[min(started, len(what) - 1)]
if do != "3-idle":
    with rows.open("a") as file:
        file.write(f"{stage} {do}\\n")
(Path(folder) / "stage.pid").write_text(str(os.getpid()))
print("at", do, flush=True)
def watch():
    os.read(0, 1)
    os._exit(137)
threading.Thread(target=watch, daemon=True).start()
if do == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if do in ("deaf", "long"):
    time.sleep(60)
if do == "abort":
    os.abort()
sys.exit(int(do.partition("-")[0]))
"""


@pytest.fixture
def session(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "POLL_S", 0.02)
    monkeypatch.setattr(supervisor, "TO_DIE_S", 0.2)
    (tmp_path / "stage.py").write_text(STAGE)
    state = State(tmp_path / "state", {"one": []})
    state.write()

    def made(minutes=LIMITS, deadline=float("inf"), **stages):
        for stage, do in stages.items():
            (state.folder / f"{stage}.do").write_text(do)
        command = (sys.executable, str(tmp_path / "stage.py"))
        return Supervisor(state, tmp_path / "s.zip", minutes, deadline, command)

    return made


def has_ended(pid):
    """Return whether a process ends within ten seconds; a zombie waits for its parent only."""
    for _ in range(500):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def begun(folder):
    return (folder / "rows.jsonl").read_text().splitlines()


def test_stages_follow_each_other_and_one_that_fails_stops_no_other(session, tmp_path):
    codes = session(check="0", sweep="3", engine="2 3-idle", rest="4").run(["check", "sweep", "engine", "rest"])
    assert codes == {"check": 0, "sweep": 3, "engine": 3, "rest": 4}
    with zipfile.ZipFile(tmp_path / "s.zip") as packed:
        assert {"session.json", "session.log", "rows.jsonl"} <= set(packed.namelist())
        log = packed.read("session.log").decode()
    assert "sweep: time is up" in log
    assert "rest: done, a fit is not fit for use" in log


def test_a_stage_whose_process_breaks_goes_on_in_another_as_long_as_it_gets_on(session, tmp_path):
    assert session(sweep="abort abort 0").run(["sweep"]) == {"sweep": 0}
    assert begun(tmp_path / "state") == ["sweep abort", "sweep abort", "sweep 0"]


def test_a_stage_that_fails_without_having_measured_is_not_started_again(session, tmp_path):
    (tmp_path / "state" / "rows.jsonl").write_text("a\n")
    made = session(sweep="0")
    (tmp_path / "stage.py").write_text("import sys; print('here'); sys.exit(2)")
    assert made.run(["sweep"]) == {"sweep": 2}
    assert (tmp_path / "state" / "session.log").read_text().count("here\n") == 1


def test_a_stage_that_hangs_past_its_limit_is_ended_and_the_next_has_its_turn(session, tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "GRACE_S", 0.4)
    codes = session({**LIMITS, "check": 0.0}, check="deaf", sweep="0 0").run(["check", "sweep"])
    assert codes == {"check": 3, "sweep": 0}
    assert "past its limit by 0 s, ended" in (tmp_path / "state" / "session.log").read_text()
    # No stage is begun after the session is over.
    assert session(deadline=time.monotonic(), check="0").run(["check"]) == {"check": 3}


def test_an_archive_is_written_while_a_stage_runs(session, tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "ARCHIVE_EVERY_S", 0.0)
    packed, real = [], supervisor.pack

    def pack(*words):
        packed.append(begun(tmp_path / "state"))
        if packed[-2:] == 2 * [["check long"]]:
            monkeypatch.setattr(supervisor, "GRACE_S", 0.0)
        real(*words)

    monkeypatch.setattr(supervisor, "pack", pack)
    (tmp_path / "state" / "rows.jsonl").write_text("")
    session({**LIMITS, "check": 0.0}, check="long").run(["check"])
    # Not by the 20 s that it would be without two archives of its row.
    assert "past its limit by 0 s, ended" in (tmp_path / "state" / "session.log").read_text()


SESSION = """
import sys
from pathlib import Path
from tools.gpu_session import supervisor
from tools.gpu_session.state import read_state
folder = Path(sys.argv[1])
limits = dict.fromkeys(("check", "sweep", "engine", "rest"), 1.0)
made = supervisor.Supervisor(
    read_state(folder / "state"), folder / "s.zip", limits, float("inf"), (sys.executable, str(folder / "stage.py"))
)
made.run(["check", "sweep"])
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.skipif(os.name != "posix", reason="signals of Linux and macOS")
def test_a_signal_ends_session_and_stage_and_leaves_the_archive(session, tmp_path, number):
    session(check="long")
    with subprocess.Popen([sys.executable, "-c", SESSION, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        while "at long" not in process.stdout.readline():
            assert process.poll() is None
        pid = int((tmp_path / "state" / "stage.pid").read_text())
        process.send_signal(number)
        process.wait(20)
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    with zipfile.ZipFile(tmp_path / "s.zip") as packed:
        assert packed.testzip() is None
        assert "session.json" in packed.namelist()
        # A kill leaves the archive of the stage's begin, before its first row.
        assert ("rows.jsonl" in packed.namelist()) == (number != signal.SIGKILL)
    assert has_ended(pid)
    assert read_state(tmp_path / "state").done == []
