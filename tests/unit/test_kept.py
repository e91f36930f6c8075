"""Arrays kept from process to process: made once, never of other code, and never a reason to fail."""

import os
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

import specsim.files.kept
from specsim.files.kept import kept


@pytest.fixture
def make():
    return Mock(side_effect=lambda: {"numbers": np.arange(5) / 3, "words": np.array(["a", "b"])})


@pytest.fixture
def code(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(specsim.files.kept, "MOST_BYTES", 1 << 20)
    file = tmp_path / "code.py"
    file.write_text("one")
    return file


def stored(tmp_path):
    return sorted((tmp_path / "cache" / "specsim" / "made").iterdir())


def test_a_damaged_file_is_made_anew(code, make, tmp_path):
    kept("test", "key", [code], make)
    (file,) = stored(tmp_path)
    whole = file.read_bytes()
    for damaged in (b"", whole[:50], whole[: len(whole) // 2], whole.replace(np.float64(1 / 3).tobytes(), b"x" * 8)):
        assert damaged != whole
        file.write_bytes(damaged)
        assert kept("test", "key", [code], make)["numbers"].tolist() == (np.arange(5) / 3).tolist()
        assert file.read_bytes() == whole
    assert make.call_count == 5


def test_the_oldest_go(code, make, tmp_path, monkeypatch):
    for age, key in enumerate("cba"):
        kept("test", key, [code], make)
        os.utime(max(stored(tmp_path), key=lambda file: file.stat().st_mtime_ns), (1_000 - age, 1_000 - age))
    monkeypatch.setattr(specsim.files.kept, "MOST_BYTES", 2 * stored(tmp_path)[0].stat().st_size + 10)
    kept("test", "d", [code], make)
    assert len(stored(tmp_path)) == 2
    before = make.call_count
    kept("test", "d", [code], make)
    kept("test", "c", [code], make)
    assert make.call_count == before


def test_a_folder_that_cannot_be_made_or_no_home_costs_only_time(code, make, tmp_path, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    (tmp_path / "cache").write_text("a file")
    for _ in range(2):
        assert len(kept("test", "key", [code], make)) == 2
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    for _ in range(2):
        assert len(kept("test", "key", [code], make)) == 2
    assert make.call_count == 4
