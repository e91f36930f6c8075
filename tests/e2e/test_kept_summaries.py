"""`--keep summary`: a sweep whose runs are rows of a few files, equal to the sweep whose runs have folders."""

from __future__ import annotations

import gzip
from pathlib import Path

import pandas as pd
import pytest

from specsim import SpecsimError, load_sweep, sweep
from specsim.cli import main
from specsim.store.runs import PLANNED_FILE
from specsim.store.summaries import SUFFIX, SUMMARIES, append_row, read_rows

WORDS = ["run", "-m", "scheduler=continuous,vllm_spec", "rps=1,2", "seed=0,1", "trace=poisson", "requests=12"]
SUMMARY = ["--keep", "summary"]


def files(root: Path) -> dict[str, bytes]:
    found = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def made(root: Path, *more: str) -> dict[str, bytes]:
    assert main([*WORDS, *SUMMARY, *more, f"out={root}"]) == 0
    return files(root)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("summaries") / "whole"
    made(root)
    return root


def test_the_table_is_that_of_runs_in_folders(whole: Path, tmp_path: Path) -> None:
    assert main([*WORDS, f"out={tmp_path}"]) == 0
    assert (whole / "table.csv").read_bytes() == (tmp_path / "table.csv").read_bytes()
    (rows,) = (whole / SUMMARIES).iterdir()
    assert rows.name.endswith(SUFFIX)
    assert sorted(pd.read_json(rows, lines=True)["name"]) == sorted(run.name for run in load_sweep(whole))
    assert sorted(path.name for path in whole.iterdir()) == [PLANNED_FILE, SUMMARIES, "table.csv"]


def test_a_run_is_what_it_was_but_for_its_requests(whole: Path) -> None:
    axes = {"scheduler": ["continuous", "vllm_spec"], "rps": [1, 2], "seed": [0, 1]}
    in_memory = sweep(axes, trace="poisson", requests=12, progress=False)
    kept = sweep(axes, trace="poisson", requests=12, progress=False, keep="summary")
    stored = load_sweep(whole)
    pd.testing.assert_frame_equal(in_memory.table.drop(columns="run"), kept.table.drop(columns="run"))
    assert sorted(kept.table["run"]) == sorted(stored.table["run"])
    for one, other in zip(in_memory, kept, strict=True):
        assert (one.metrics, one.config, one.notes) == (other.metrics, other.config, other.notes)
        assert (one.slo_attainment, one._repr_html_()) == (other.slo_attainment, other._repr_html_())
        assert one.folder is other.folder is None
        for asked in ("requests", "passes"):
            with pytest.raises(SpecsimError, match=r"kept no requests and no passes; .*keep='runs'"):
                getattr(other, asked)
        with pytest.raises(SpecsimError, match="kept no requests"):
            other.plot(whole / "figures")
    assert len(stored.select(scheduler="vllm_spec")) == 4


def test_a_damaged_file_is_named_and_its_runs_are_made_again(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], started: list[object]
) -> None:
    made(tmp_path)
    (file,) = (tmp_path / SUMMARIES).iterdir()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert load_sweep_fails(tmp_path) == f"left out: {str(file)!r} is damaged"
    capsys.readouterr()
    assert made(tmp_path) == files(whole)
    assert f"note: left out: {str(file)!r} is damaged" in capsys.readouterr().out
    assert len(started) == 16


@pytest.mark.parametrize("cut_bytes", [1, 9, 2000])
def test_of_a_file_that_a_kill_has_cut_off_the_rows_before_are_kept(
    whole: Path, tmp_path: Path, started: list[object], capsys: pytest.CaptureFixture[str], cut_bytes: int
) -> None:
    for row in read_rows(whole).runs.values():
        append_row(tmp_path, row)
    (file,) = (tmp_path / SUMMARIES).iterdir()
    file.write_bytes(file.read_bytes()[:-cut_bytes])
    there = len(read_rows(tmp_path).runs)
    assert there >= 7
    assert made(tmp_path) == files(whole)
    assert f"note: left out: the last row of {str(file)!r} is cut off" in capsys.readouterr().out
    assert len(started) == 8 - there


@pytest.mark.parametrize("content", [b"", b"nothing\n", b'{"key": "a", "name": "b"}\n'])
def test_a_file_of_something_else_is_named_and_left_out(tmp_path: Path, content: bytes) -> None:
    (tmp_path / SUMMARIES).mkdir()
    file = tmp_path / SUMMARIES / f"mine{SUFFIX}"
    for each in (content, gzip.compress(content)):
        file.write_bytes(each)
        rows = read_rows(tmp_path)
        assert (rows.runs, rows.failures) == ({}, {})
        assert rows.notes == ((f"left out: {str(file)!r} is damaged",) if content else ())


def test_a_full_disk_is_a_line_and_no_row_follows_what_is_cut_off(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, *_ = read_rows(whole).runs.values()
    with monkeypatch.context() as full:
        full.setattr("gzip.compress", lambda *_, **__: raise_full())
        with pytest.raises(SpecsimError, match=rf"{SUFFIX}: cannot be written: No space left on device$"):
            append_row(tmp_path, one)
    (cut,) = (tmp_path / SUMMARIES).iterdir()
    cut.write_bytes(b"\x1f")
    append_row(tmp_path, other)
    assert list(read_rows(tmp_path).runs) == [other.key]


def raise_full() -> None:
    raise OSError(28, "No space left on device")


def load_sweep_fails(root: Path) -> str:
    with pytest.raises(SpecsimError) as wrong:
        load_sweep(root)
    return str(wrong.value)
