"""`-m`: a folder per point, one table, nothing run twice, nothing lost when it is cut short."""

import json
from pathlib import Path

import pytest

from specsim import load_run, simulation
from specsim.cli import main

WORDS = ["trace=poisson", "requests=6", "acceptance=bernoulli", "profile=llama8b_1b_h100"]
AXES = ["scheduler=fcfs,continuous", "rps=2,4", "slo_scale=0.8,1.2"]


def contents(root):
    return {path.relative_to(root): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture
def counted(monkeypatch):
    """Count the simulations that start."""
    started, really = [], simulation.run

    def run(*given):
        started.append(given)
        return really(*given)

    monkeypatch.setattr(simulation, "run", run)
    return started


def test_eight_points_write_eight_folders_and_one_table(tmp_path, capsys, counted):
    assert main(["run", "-m", *AXES, *WORDS, f"out={tmp_path / 'all'}"]) == 0
    assert len((tmp_path / "all" / "table.csv").read_text().splitlines()) == 9
    folders = sorted(path.name for path in (tmp_path / "all").iterdir() if path.is_dir())
    assert folders == [
        f"scheduler={scheduler},rps={rps},slo_scale={scale}"
        for scheduler in ("continuous", "fcfs")
        for rps in ("2", "4")
        for scale in ("0.8", "1.2")
    ]
    assert len(counted) == 8
    for folder in filter(Path.is_dir, (tmp_path / "all").iterdir()):
        assert json.loads((folder / "metrics.json").read_text())["completed"] == 6
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("note: ")]
    assert lines[0].split()[:3] == ["scheduler", "rps", "slo_scale"]
    assert [line.split()[:3] for line in lines[3:11]] == [
        [scheduler, rps, scale]
        for scheduler in ("fcfs", "continuous")
        for rps in ("2", "4")
        for scale in ("0.8", "1.2")
    ]
    assert lines[11:] == [str(tmp_path / "all")]


def test_a_point_of_a_sweep_is_the_run_alone(tmp_path):
    assert main(["run", "-m", "rps=2,4", "scheduler=fcfs", *WORDS, f"out={tmp_path / 'all'}"]) == 0
    assert main(["run", "rps=4", "scheduler=fcfs", *WORDS, f"out={tmp_path / 'one'}"]) == 0
    for name in ("metrics.json", "requests.parquet", "config.yaml"):
        assert (tmp_path / "all" / "rps=4" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


def test_a_second_call_runs_nothing_and_prints_the_same(tmp_path, capsys, counted):
    command = ["run", "-m", *AXES[1:], "scheduler=fcfs", *WORDS, f"out={tmp_path / 'all'}"]
    assert main(command) == 0
    first, said = contents(tmp_path / "all"), capsys.readouterr().out
    assert main(command) == 0
    assert contents(tmp_path / "all") == first
    assert capsys.readouterr().out == said
    assert len(counted) == 4


def test_a_wider_sweep_keeps_what_is_there(tmp_path, counted):
    for rates in ("2,4", "2,4,8"):
        assert main(["run", "-m", f"rps={rates}", "scheduler=fcfs", *WORDS, f"out={tmp_path}"]) == 0
    assert len(counted) == 3


def test_what_was_finished_before_a_break_is_kept(tmp_path, monkeypatch, capsys):
    really, started = simulation.run, []

    def second_breaks(*given):
        started.append(given)
        if len(started) == 2:
            raise KeyboardInterrupt
        return really(*given)

    monkeypatch.setattr(simulation, "run", second_breaks)
    command = ["run", "-m", "rps=2,4", "scheduler=fcfs", *WORDS, f"out={tmp_path}"]
    assert main(command) == 130
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["rps=2"]
    kept = contents(tmp_path)
    assert main(command) == 0
    assert len(started) == 3
    assert {path: text for path, text in contents(tmp_path).items() if path.parts[0] == "rps=2"} == kept


def test_a_folder_with_another_run_is_refused_before_any_run(tmp_path, capsys, counted):
    assert main(["run", "-m", "rps=2,4", "scheduler=fcfs", *WORDS, f"out={tmp_path}"]) == 0
    before = contents(tmp_path)
    capsys.readouterr()
    assert main(["run", "-m", "rps=8,4", "scheduler=fcfs", "seed=1", *WORDS, f"out={tmp_path}"]) == 2
    said = capsys.readouterr().err
    assert "rps=4" in said
    assert len(said.splitlines()) <= 2
    assert len(counted) == 2
    assert contents(tmp_path) == before


def test_a_file_that_changed_is_not_read_back_from_an_old_run(tmp_path, monkeypatch, capsys):
    """The configuration holds the file's name only; its content decides."""
    monkeypatch.chdir(tmp_path)
    trace, codes = tmp_path / "mine.csv", []
    for prompt in (10, 7000):
        trace.write_text(f"arrival_s,prompt_tokens,output_tokens\n0,{prompt},3\n1,{prompt},3\n")
        codes.append(main(["run", "-m", "trace=./mine.csv", "rps=2,4", "scheduler=fcfs", *WORDS[2:], "out=all"]))
    said = capsys.readouterr().err
    stored = load_run(tmp_path / "all" / "rps=2").requests["prompt_tokens"].tolist()
    assert (codes, stored) in [([0, 0], [7000, 7000]), ([0, 2], [10, 10])]
    assert len(said.splitlines()) <= 2


def test_points_whose_folders_would_be_one_are_kept_apart_or_refused(tmp_path, monkeypatch, capsys, counted):
    monkeypatch.chdir(tmp_path)
    rows = "arrival_s,prompt_tokens,output_tokens\n0,{},3\n1,9,3\n"
    for name, prompt in (("a/b.csv", 10), ("a_b.csv", 20)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(rows.format(prompt))
    code = main(["run", "-m", "trace=./a/b.csv,./a_b.csv", "scheduler=fcfs", *WORDS[2:], "out=all"])
    assert len(capsys.readouterr().err.splitlines()) <= 2
    found = len(list((tmp_path / "all").iterdir())) if (tmp_path / "all").exists() else 0
    assert (code, len(counted), found) in [(0, 2, 2), (2, 0, 0)]


def test_m_without_commas_is_one_run(tmp_path, counted):
    assert main(["run", "-m", "scheduler=fcfs", *WORDS, f"out={tmp_path / 'all'}"]) == 0
    assert len(list(filter(Path.is_dir, (tmp_path / "all").iterdir()))) == len(counted) == 1


def test_settings_on_both_sides_of_m(tmp_path, counted):
    assert main(["run", "scheduler=fcfs", "-m", "rps=2,4", *WORDS, f"out={tmp_path / 'all'}"]) == 0
    assert len(counted) == 2
