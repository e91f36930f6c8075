"""What fails, is damaged or serves no request is told by every table, figure and search, and alone made again."""

import gzip
import re
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from specsim import find, iterations, load_run, load_sweep, simulate, simulation, sweep
from specsim.cli import main
from specsim.errors import SpecsimError
from specsim.metrics.tables import class_table
from specsim.store.runs import PLANNED_FILE
from specsim.store.summaries import SUFFIX, SUMMARIES, append_row, read_rows
from tests.files import contents
from tests.made import refusal

WORDS = ["trace=poisson", "requests=6", "acceptance=bernoulli", "profile=llama8b_1b_h100", "scheduler=fcfs"]
CLASSES = 4


def full(*_, **__):
    raise OSError(28, "No space left on device")


FAULTS = [
    (SpecsimError("fcfs at 0.5 s: request -1\nis no request"), "fcfs at 0.5 s: request -1 is no request"),
    (KeyError("acceptance_trace"), "specsim failed: KeyError: 'acceptance_trace'"),
    (MemoryError(), "the run needs more memory than there is"),
]


@pytest.fixture
def world(monkeypatch):
    """Let the second run fail, and count those that start."""

    class World:
        fault, started = FAULTS[0][0], 0

    really = simulation.run

    def run(*given):
        World.started += 1
        if World.fault is not None and World.started == 2:
            raise World.fault
        return really(*given)

    monkeypatch.setattr(simulation, "run", run)
    return World


@pytest.mark.parametrize(("fault", "line"), FAULTS, ids=["a scheduler's fault", "a fault of specsim", "memory"])
def test_the_rest_runs_and_the_failure_stands_in_table_and_exit_code(tmp_path, capsys, world, fault, line):
    world.fault = fault
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
    assert [run.config["rps"] for run in found] == [16, 2, 8], "the last sweep is first"
    (failure,) = found.failures
    assert (failure.config["rps"], failure.label, failure.traceback[:9]) == (4, {"rps": "4"}, "Traceback")
    assert (found.axes, found.means()["count"].tolist()) == ({"rps": [2, 8, 16]}, [1] * 3 * CLASSES)
    assert pd.read_csv(tmp_path / "table.csv")["error"].count() == 1
    world.fault, world.started = None, 0
    capsys.readouterr()
    assert main([*command, "rps=2,4,8"]) == 0
    said = capsys.readouterr()
    assert (world.started, said.err) == (1, "")
    assert not re.search("FAILED|made again", said.out)
    assert "error" not in pd.read_csv(tmp_path / "table.csv")
    assert not (tmp_path / "summaries").exists()
    assert load_sweep(tmp_path).failures == ()


def test_a_value_whose_runs_failed_is_a_point_of_its_own(tmp_path, world):
    assert main(["run", "-m", "scheduler.max_num_seqs=8,16", *WORDS, f"out={tmp_path}"]) == 1
    assert main(["run", "-m", "scheduler.max_num_seqs=8", "seed=1,2", *WORDS, f"out={tmp_path}"]) == 0
    points = (found := load_sweep(tmp_path)).over_seeds()[["scheduler.max_num_seqs", "seeds", "failed"]]
    assert (world.started, points.to_numpy().tolist()) == (4, [[8, 3, 0], [16, 0, 1]])
    assert re.search(r"\n16 .* FAILED\n", found._repr_html_())


def test_a_full_disk_ends_the_sweep_with_a_line(tmp_path, monkeypatch, capsys, world):
    world.fault = None
    command = ["run", "-m", *WORDS, f"out={tmp_path}"]
    assert main([*command, "rps=2"]) == 0
    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write_table", full)
    assert main([*command, "rps=2,4,8"]) == 2
    assert world.started == 2
    goes_on = f"No space left on device; 1 of 3 runs are kept; the same command with out={tmp_path} goes on\n"
    assert capsys.readouterr().err.endswith(goes_on)
    monkeypatch.setattr("pathlib.Path.replace", full)
    assert main([*command, "rps=2"]) == 2
    assert capsys.readouterr().err.endswith(f"1 of 1 runs are kept; specsim plot {tmp_path} --out DIR draws them\n")


SWEEP = ["run", "-m", "scheduler=continuous,vllm_spec", "rps=1,2", "seed=0,1", "trace=poisson", "requests=12"]


def made(root):
    assert main([*SWEEP, "--keep", "summary", f"out={root}"]) == 0
    return contents(root)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
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


BRIEF = {"trace": "poisson", "requests": 6, "profile": "llama8b_1b_h100"}
TOO_LONG = {"distribution": "fixed", "mean": 900_000, "cv": None, "low": None, "high": None}
SPLIT = {"replicas": 2, "split__prefill": 1, "split__link_gb_per_s": 50}
CASES = {
    "rejected": {"trace__prompt_tokens": TOO_LONG},
    "cancelled": {"timeout_s": 1e-6, "replicas": 2},
    "rejected, apart": {"trace__prompt_tokens": TOO_LONG, **SPLIT},
}
RUNS = [*product(["rejected", "cancelled"], ["vllm_spec", "laps_sd"]), ("rejected, apart", "continuous")]


@pytest.fixture(params=CASES)
def settings(request, here):
    return {**BRIEF, **CASES[request.param]}


@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize(("settings", "scheduler"), RUNS, indirect=["settings"])
def test_a_run_in_which_nothing_ran(scheduler, settings, capsys):
    made = simulate(scheduler, **settings, passes=True, out="run")
    assert [file.stem for file in made.plot("figures") if file.suffix == ".png"] == ["slo_by_class", "latency_cdf"]
    for run in (made, load_run("run")):
        assert (len(run.requests), len(run.passes)) == (6, 0)
        assert "nothing ran: every request was rejected or cancelled" in class_table(run.metrics)
        assert "%" not in class_table(run.metrics).partition("nothing ran")[2]
        assert "iterations: no request was served: the run has none" in refusal(iterations, run, [0])
    assert main(["plot", "run"]) == 0
    assert capsys.readouterr().out.startswith("note: no timeline: no request was served\n")
    assert main(["compare", "run", "run"]) != 0
    assert "nothing ran in A and B: every request was rejected or cancelled" in capsys.readouterr().err


@pytest.mark.usefixtures("unrendered")
def test_a_sweep_in_which_nothing_ran(settings, capsys):
    axes = {"scheduler": ["continuous", "fcfs"], "rps": [1, 2], "seed": [0, 1]}
    sweep(axes, out="sweep", keep="summary", **settings)
    assert len(load_sweep("sweep").table)
    assert main(["sweep", "status", "sweep"]) == 0
    assert main(["plot", "sweep"]) == 0
    said = capsys.readouterr()
    assert str(Path("sweep", "figures", "attainment.png")) in said.out
    assert "Traceback" not in said.err


def test_a_search_says_that_nothing_ran_and_makes_no_run_longer(settings):
    settings.pop("requests")
    found = find({"scheduler": ["continuous"]}, rates=(1, 4), of="chat", longest=300, progress=False, **settings)
    assert found.table["keeps_rps"].isna().all()
    notes = list(found.notes())
    (said,) = (note for note in notes if "nothing ran" in note)
    runs = "nothing ran in 5 of 5 runs at 1 requests/s, 5 of 5 runs at 2 requests/s"
    assert said.startswith(f"scheduler=continuous: {runs}")
    assert said.endswith(": every request was rejected or cancelled")
    assert not any("would do" in each for each in notes)
    assert found.figure().axes
