"""A run of a sweep that fails, or a damaged file of `--keep summary`, is told, and it alone is made again."""

import gzip

import pandas as pd
import pytest

from specsim import load_sweep, simulation, sweep
from specsim.cli import main
from specsim.errors import SpecsimError
from specsim.store.runs import PLANNED_FILE
from specsim.store.summaries import SUFFIX, SUMMARIES, append_row, read_rows
from tests.files import contents
from tests.made import refusal

WORDS = ["trace=poisson", "requests=6", "acceptance=bernoulli", "profile=llama8b_1b_h100", "scheduler=fcfs"]
CLASSES = 4


def faulty(requests):
    raise SpecsimError("fcfs at 0.5 s: request -1\nis no request")


def broken(requests):
    raise KeyError("acceptance_trace")


def too_large(requests):
    raise MemoryError


def full(*_, **__):
    raise OSError(28, "No space left on device")


FAULTS = {
    "a scheduler's fault": (faulty, "fcfs at 0.5 s: request -1 is no request"),
    "a fault of specsim": (broken, "specsim failed: KeyError: 'acceptance_trace'"),
    "memory": (too_large, "the run needs more memory than there is"),
}


@pytest.fixture
def world(monkeypatch):
    """Let the runs of some seconds of arrivals fail, and count those that start."""

    class World:
        fault, place, started = staticmethod(faulty), 2, 0

    really = simulation.run

    def run(given, *more):
        World.started += 1
        if World.fault is not None and World.started == World.place:
            World.fault(given)
        return really(given, *more)

    monkeypatch.setattr(simulation, "run", run)
    return World


@pytest.mark.parametrize("fault", FAULTS)
def test_the_rest_runs_and_the_failure_stands_in_table_and_exit_code(tmp_path, capsys, world, fault):
    world.fault, line = FAULTS[fault]
    assert main(["run", "-m", "rps=2,4,8", *WORDS, f"out={tmp_path / 'all'}"]) == 1
    said = capsys.readouterr()
    assert said.err == f"specsim: rps=4 failed: {line}\n"
    rows = [row.split() for row in said.out.splitlines() if row[:2] in ("2 ", "4 ", "8 ")]
    assert rows[1] == ["4", *["-"] * 8, "FAILED"]
    assert [len(row) > 8 and row[-1] != "FAILED" for row in rows] == [True, False, True]
    table = pd.read_csv(tmp_path / "all" / "table.csv")
    assert len(table) == 2 * CLASSES + 1
    (failed,) = table[table["error"].notna()].to_dict("records")
    assert (failed["rps"], failed["scheduler"], failed["slo_class"], failed["error"]) == (4, "fcfs", "all", line)
    assert pd.isna([failed[name] for name in ("slo_attainment", "mean_ttft_s", "completed")]).all()


def test_the_folder_tells_of_the_failure_until_it_alone_is_tried_again(tmp_path, capsys, world):
    command = ["run", "-m", *WORDS, f"out={tmp_path}"]
    assert main([*command, "rps=2,4,8"]) == 1
    assert main([*command, "rps=16"]) == 0
    found = load_sweep(tmp_path)
    assert [run.config["rps"] for run in found] == [2, 8, 16]
    (failure,) = found.failures
    assert (failure.config["rps"], failure.label) == (4, {"rps": "4"})
    assert found.table["error"].count() == 1
    assert found.axes == {"rps": [2, 8, 16]}
    assert found.means()["count"].tolist() == [1] * 3 * CLASSES
    assert pd.read_csv(tmp_path / "table.csv")["error"].count() == 1
    world.fault, world.started = None, 0
    capsys.readouterr()
    assert main([*command, "rps=2,4,8"]) == 0
    said = capsys.readouterr()
    assert (world.started, said.err) == (1, "")
    assert "FAILED" not in said.out
    assert "made again" not in said.out
    assert "error" not in pd.read_csv(tmp_path / "table.csv")
    assert not (tmp_path / "summaries").exists()
    assert load_sweep(tmp_path).failures == ()


def test_a_full_disk_ends_the_sweep_with_a_line(tmp_path, monkeypatch, capsys, world):
    world.fault = None
    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write_table", full)
    assert main(["run", "-m", "rps=2,4,8", *WORDS, f"out={tmp_path}"]) == 2
    assert world.started == 1
    assert "No space left on device" in capsys.readouterr().err


SWEEP = ["run", "-m", "scheduler=continuous,vllm_spec", "rps=1,2", "seed=0,1", "trace=poisson", "requests=12"]


def made(root):
    assert main([*SWEEP, "--keep", "summary", f"out={root}"]) == 0
    return contents(root)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Make the sweep of which only summaries are kept."""
    root = tmp_path_factory.mktemp("summaries") / "whole"
    made(root)
    return root


def test_the_table_is_that_of_runs_in_folders(whole, tmp_path):
    assert main([*SWEEP, f"out={tmp_path}"]) == 0
    assert (whole / "table.csv").read_bytes() == (tmp_path / "table.csv").read_bytes()
    (rows,) = (whole / SUMMARIES).iterdir()
    assert rows.name.endswith(SUFFIX)
    assert sorted(pd.read_json(rows, lines=True)["name"]) == sorted(run.name for run in load_sweep(whole))
    assert sorted(path.name for path in whole.iterdir()) == [PLANNED_FILE, SUMMARIES, "table.csv"]


def test_a_run_is_what_it_was_but_for_its_requests(whole):
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
        assert "kept no requests" in refusal(other.plot, whole / "figures")
    assert len(stored.select(scheduler="vllm_spec")) == 4


def test_a_damaged_file_is_named_and_its_runs_are_made_again(whole, tmp_path, capsys, started):
    made(tmp_path)
    (file,) = (tmp_path / SUMMARIES).iterdir()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert refusal(load_sweep, tmp_path) == f"left out: {str(file)!r} is damaged"
    capsys.readouterr()
    assert made(tmp_path) == contents(whole)
    assert f"note: left out: {str(file)!r} is damaged" in capsys.readouterr().out
    assert len(started) == 16


@pytest.mark.parametrize("cut_bytes", [1, 9, 2000])
def test_of_a_file_that_a_kill_has_cut_off_the_rows_before_are_kept(whole, tmp_path, started, capsys, cut_bytes):
    for row in read_rows(whole).runs.values():
        append_row(tmp_path, row)
    (file,) = (tmp_path / SUMMARIES).iterdir()
    file.write_bytes(file.read_bytes()[:-cut_bytes])
    there = len(read_rows(tmp_path).runs)
    assert there >= 7
    assert made(tmp_path) == contents(whole)
    assert f"note: left out: the last row of {str(file)!r} is cut off" in capsys.readouterr().out
    assert len(started) == 8 - there


@pytest.mark.parametrize("content", [b"", b"nothing\n", b'{"key": "a", "name": "b"}\n'])
def test_a_file_of_something_else_is_named_and_left_out(tmp_path, content):
    (tmp_path / SUMMARIES).mkdir()
    file = tmp_path / SUMMARIES / f"mine{SUFFIX}"
    for each in (content, gzip.compress(content)):
        file.write_bytes(each)
        rows = read_rows(tmp_path)
        assert (rows.runs, rows.failures) == ({}, {})
        assert rows.notes == ((f"left out: {str(file)!r} is damaged",) if content else ())


def test_a_full_disk_is_a_line_and_no_row_follows_what_is_cut_off(whole, tmp_path, monkeypatch):
    one, other, *_ = read_rows(whole).runs.values()
    with monkeypatch.context() as patched:
        patched.setattr("gzip.compress", full)
        said = refusal(append_row, tmp_path, one)
    assert said.endswith(f"{SUFFIX}: cannot be written: No space left on device")
    (cut,) = (tmp_path / SUMMARIES).iterdir()
    cut.write_bytes(b"\x1f")
    append_row(tmp_path, other)
    assert list(read_rows(tmp_path).runs) == [other.key]
