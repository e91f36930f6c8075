"""What a kill leaves behind: read by nobody, and removed once its writer is gone."""

import os
import shutil
import subprocess
import sys

import pytest

from specsim.config.identity import identity, settings_of
from specsim.errors import SpecsimError
from specsim.files.staging import DAY_S, in_one_step, remove_stale, staging_path
from specsim.store.runs import run_folders
from specsim.store.writer import check_same_run
from tests.unit.test_store import parts, write_run

NOW_S = 1_000_000_000.0


@pytest.fixture
def gone():
    """The process id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def left(folder, pid, host=None):
    """Leave a complete run as a kill between writing and renaming does, begun just now."""
    path = staging_path(folder)
    parts_of_name = path.name.split("-")
    parts_of_name[2] = str(pid)
    parts_of_name[1] = host or parts_of_name[1]
    path = path.with_name("-".join(parts_of_name))
    write_run(folder / "whole", **parts())
    shutil.move(folder / "whole", path)
    os.utime(path, (NOW_S, NOW_S))
    return path


def test_what_a_process_of_this_host_left_is_removed_once_it_is_gone(tmp_path, gone):
    write_run(tmp_path / "run", **parts())
    stale, inside, alive = left(tmp_path, gone), left(tmp_path / "run", gone), left(tmp_path, os.getpid())
    remove_stale(tmp_path, NOW_S)
    assert not stale.exists()
    assert not inside.exists()
    assert alive.exists()
    assert run_folders(tmp_path) == [tmp_path / "run"]


def test_what_another_host_left_is_removed_after_a_day(tmp_path, gone):
    path = left(tmp_path, gone, host="elsewhere")
    remove_stale(tmp_path, NOW_S + DAY_S - 1)
    assert path.exists()
    remove_stale(tmp_path, NOW_S + DAY_S + 1)
    assert not path.exists()


@pytest.mark.parametrize("name", [".mine.tmp", "specsim-a-1-00000000.tmp", ".specsim-notes"])
def test_other_hidden_files_stay(tmp_path, name):
    (tmp_path / name).write_text("mine")
    remove_stale(tmp_path, NOW_S * 100)
    assert (tmp_path / name).read_text() == "mine"


def test_a_file_takes_its_place_whole_or_not_at_all(tmp_path):
    file = tmp_path / "new" / "table.csv"
    with in_one_step(file) as partial:
        partial.write_text("one")
        assert not file.exists()
    assert file.read_text() == "one"
    with pytest.raises(ZeroDivisionError), in_one_step(file) as partial:
        partial.write_text(f"tw{1 / 0}")
    with pytest.raises(SpecsimError, match=r"^.*table.csv: cannot be written: No space left"), in_one_step(file):
        raise OSError(28, "No space left on device")
    assert file.read_text() == "one"
    assert list(file.parent.iterdir()) == [file]


CONFIG = {"choices": {"scheduler": "fcfs"}, "scheduler": {"max_num_seqs": 64}, "rps": 2}
OTHER = {**CONFIG, "rps": 4}


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / f"rps=2-{identity(settings_of(CONFIG))}"
    write_run(folder, **parts(config=CONFIG))
    return folder


@pytest.mark.parametrize("text", ["rps: [", "rps: 4\n", ""])
def test_a_damaged_configuration_is_the_run_that_the_folders_name_tells(tmp_path, run, text):
    (run / "config.yaml").write_text(text)
    assert check_same_run(run, CONFIG)
    with pytest.raises(SpecsimError):
        check_same_run(run, OTHER)
    unnamed = run.rename(tmp_path / "mine")
    with pytest.raises(SpecsimError, match=r"holds a run whose config\.yaml is damaged; expected a new folder"):
        check_same_run(unnamed, CONFIG)
