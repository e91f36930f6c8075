"""Compiled kernels are kept whole or not at all, by one process of many, and not after a crash."""

import os
import subprocess
import sys
from unittest.mock import Mock

import pytest

from specsim.files.kept import write_whole
from specsim.files.staging import Unwritable
from specsim.kernels import compile_cache
from specsim.kernels.compiling import compiling as into_folder

COMPILE = "from specsim.kernels import compiled_loops; compiled_loops()"
CRASH = f"{COMPILE}; import os; os.kill(os.getpid(), 11)"
RUN = ("run", "scheduler=specserve", "trace=azure_conv", "requests=300")


def environment(cache, **environ):
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("NUMBA_", "PYTHONFAULT"))}
    return clean | {"XDG_CACHE_HOME": str(cache)} | environ


def compiling(cache, **environ):
    """Return what a fresh process says on stderr."""
    words = (sys.executable, "-c", COMPILE)
    told = subprocess.run(words, env=environment(cache, **environ), capture_output=True, text=True, check=True)
    return told.stderr


def kept_in(cache):
    return sorted((cache / "specsim" / "numba").glob("*.kernels"))


@pytest.mark.slow
def test_compiling_is_told_once_and_again_after_damage_and_after_a_crash(tmp_path):
    """Damaged, numba would fail of it, or abort the process."""
    first = compiling(tmp_path)
    assert first.startswith("specsim: compiling its kernels, once for this machine ... ")
    assert first.endswith(" s\n")
    assert first.count("\n") == 1
    assert compiling(tmp_path) == ""
    (file,) = kept_in(tmp_path)
    content = file.read_bytes()
    file.write_bytes(content[:100] + bytes(len(content) - 200) + content[-100:])
    assert compiling(tmp_path).count("compiling") == 1
    died = subprocess.run((sys.executable, "-c", CRASH), env=environment(tmp_path), capture_output=True, text=True)
    assert (died.returncode, died.stderr) == (-11, "")
    assert compiling(tmp_path).count("compiling") == 1
    assert compiling(tmp_path) == ""


@pytest.mark.slow
def test_six_cold_processes_at_once_compile_once_and_one_later_not_at_all(tmp_path):
    """Kernels that several processes had compiled lay in one folder and were signed together: all later runs died."""

    def begun(number):
        words = (sys.executable, "-m", "specsim", *RUN, f"seed={number}", f"out={tmp_path / str(number)}")
        return subprocess.Popen(
            words, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    together = [begun(number) for number in range(6)]
    said = [each.communicate()[1] for each in together]
    later = begun(6)
    said.append(later.communicate()[1])
    assert [each.returncode for each in (*together, later)] == [0] * 7
    assert sum("compiling its kernels" in each for each in said[:-1]) == 1
    assert "compiling" not in said[-1]
    assert len(kept_in(tmp_path)) == 1


@pytest.mark.slow
def test_a_worker_that_crashes_lets_the_next_one_compile(tmp_path, monkeypatch):
    from specsim.runs.processes import in_processes

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    file = compile_cache.kept_file()
    write_whole(file, b"kernels of somebody")
    found = list(in_processes(_crashed_or_square, [0, 1, 2], 2, lambda piece, how: (piece, how)))
    assert sorted(found) == [(0, (0, " by SIGSEGV(-11)")), (1, 1), (2, 4)]
    assert not file.exists()


def _crashed_or_square(number):
    if number == 0:
        os.kill(os.getpid(), 11)
    return number**2


@pytest.mark.slow
def test_where_nothing_can_be_written_it_is_compiled_anew(tmp_path):
    """A file stands where the cache would be: not even root can write there."""
    (tmp_path / "file").touch()
    told = compiling(tmp_path / "file", NUMBA_CACHE_DIR=str(tmp_path / "file" / "below"))
    assert "compiling its kernels, for this process alone" in told
    assert (tmp_path / "file").read_bytes() == b""


def test_kernels_of_other_sources_lie_elsewhere(tmp_path, monkeypatch):
    """numba looks at the time of a kernel's own file alone, and a kernel's constants stand in others, too."""
    assert {"rng.py", "growth.py", "tree_loops.py"} <= {each.name for each in compile_cache.SOURCES}
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "own"))
    source, files = tmp_path / "rng.py", []
    monkeypatch.setattr(compile_cache, "SOURCES", (source,))
    for number in range(compile_cache.MOST_KEPT + 2):
        source.write_text(f"M1 = {number}")
        file = compile_cache.kept_file()
        with compile_cache.folder_of_kernels(file, tmp_path / "empty"):
            pass
        os.utime(file, (number, number))
        files.append(file)
    assert len(set(files)) == len(files)
    assert [each.is_file() for each in files] == [False, False] + [True] * compile_cache.MOST_KEPT
    monkeypatch.setattr("zipfile.ZipFile.extractall", Mock(side_effect=OSError(28, "No space left")))
    with pytest.raises(Unwritable, match=r"/specsim-\w+: cannot be written: No space left; expected"), into_folder():
        pass
