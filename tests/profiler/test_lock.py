"""One run at a time on one file, whatever became of the runs before."""

import os
import subprocess
import sys

import pytest

from profiler.lock import only_one
from specsim.errors import SpecsimError
from specsim.files.staging import staging_path

HOLD = """
import sys, time
from pathlib import Path
from profiler.lock import only_one
with only_one(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""

OLD = ".specsim-elsewhere-7-01234567.tmp"


def test_another_process_is_refused_until_it_ends_even_killed_or_by_an_error(tmp_path):
    path = tmp_path / "s.parquet"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(SpecsimError, match="another run is writing it; expected one at a time"), only_one(path):
            pytest.fail("held twice")
        process.kill()
    for _ in range(2):
        with pytest.raises(OSError, match="inside"), only_one(path):
            raise BlockingIOError("inside")
    assert not list(tmp_path.iterdir())


def test_what_killed_runs_left_is_cleared_and_nothing_else(tmp_path):
    keep = {".s.parquet.old.tmp", staging_path(tmp_path).name, "s.parquet.7.tmp", "s.parquet"}
    for name in (*keep, OLD):
        (tmp_path / name).write_text("")
    os.utime(tmp_path / OLD, (0, 0))
    with only_one(tmp_path / "s.parquet"):
        assert {each.name for each in tmp_path.iterdir()} == keep | {".s.parquet.lock"}
    assert {each.name for each in tmp_path.iterdir()} == keep


@pytest.mark.skipif(os.name != "posix", reason="paths of Linux and macOS")
def test_a_place_that_cannot_be_locked(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecsimError, match="file/s: cannot be written under a lock: "), only_one(tmp_path / "file/s"):
        pytest.fail("locked")
