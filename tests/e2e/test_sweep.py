"""`-m`: a folder per point, one table, nothing run twice, nothing lost when it is cut short."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from specsim import load_sweep
from specsim.cli import main
from specsim.config.configured import from_words
from specsim.errors import SpecsimError
from specsim.runs.plan import checked, plan
from specsim.store.runs import PLANNED_FILE
from specsim.store.status import sweep_status

WORDS = ["trace=poisson", "requests=6", "acceptance=bernoulli", "profile=llama8b_1b_h100"]
CLASSES = ["chat", "coding", "summarization", "all"]
AXES = ["scheduler=fcfs,continuous", "rps=2,4", "slo_scale=0.8,1.2"]


def contents(root):
    return {path.relative_to(root): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def folder(root, label):
    (found,) = root.glob(f"{label}-*")
    return found


def test_eight_points_write_eight_folders_and_one_table(tmp_path, capsys, started):
    assert main(["run", "-m", *AXES, *WORDS, f"out={tmp_path / 'all'}"]) == 0
    assert len((tmp_path / "all" / "table.csv").read_text().splitlines()) == 1 + 8 * len(CLASSES)
    table = load_sweep(tmp_path / "all").table
    table.to_csv(tmp_path / "by_pandas.csv", index=False)
    assert (tmp_path / "all" / "table.csv").read_bytes() == (tmp_path / "by_pandas.csv").read_bytes()
    folders = sorted(path.name for path in (tmp_path / "all").iterdir() if path.is_dir())
    assert [name.rpartition("-")[0] for name in folders] == [
        f"scheduler={scheduler},rps={rps},slo_scale={scale}"
        for scheduler in ("continuous", "fcfs")
        for rps in ("2", "4")
        for scale in ("0.8", "1.2")
    ]
    assert len(started) == 8
    for place in filter(Path.is_dir, (tmp_path / "all").iterdir()):
        assert json.loads((place / "metrics.json").read_text())["completed"] == 6
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("note: ")]
    assert lines[0].split()[:3] == ["scheduler", "rps", "slo_scale"]
    assert [line.split()[:3] for line in lines[4:12]] == [
        [scheduler, rps, scale]
        for scheduler in ("fcfs", "continuous")
        for rps in ("2", "4")
        for scale in ("0.8", "1.2")
    ]
    assert lines[-1] == str(tmp_path / "all")


def test_a_sweep_with_seeds_prints_a_row_a_point_and_with_each_a_row_a_run(tmp_path, capsys):
    words = ["scheduler=fcfs,continuous", "seed=0,1", "rps=10,2", *WORDS, f"out={tmp_path}", "--keep", "summary"]
    points = [[scheduler, rps] for scheduler in ("fcfs", "continuous") for rps in ("10", "2")]
    assert main(["run", "-m", *words]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("note: ")]
    assert lines[0].split()[:4] == ["scheduler", "rps", "attained", "difference"]
    assert [line.split()[:2] for line in lines[4:8]] == points
    found = load_sweep(tmp_path).over_seeds(against="fcfs").set_index(["scheduler", "rps"])
    for line in lines[4:8]:
        scheduler, rps, attained, _, half, *apart = line.split()
        row = found.loc[(scheduler, int(rps))]
        assert float(attained.lstrip("*")) == pytest.approx(100 * row["slo_attainment"], abs=0.5)
        assert float(half) == pytest.approx(100 * row["slo_attainment_half_width"], abs=0.5)
        if scheduler == "continuous":
            assert float(apart[0]) == pytest.approx(100 * row["difference"], abs=0.5)
            assert float(apart[2]) == pytest.approx(100 * row["difference_half_width"], abs=0.5)
        else:
            assert apart[0] == "-"
    assert main(["run", "-m", *words, "--each"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("note: ")]
    assert len([line for line in lines if line.startswith(("fcfs ", "continuous "))]) == 8


def test_a_point_of_a_sweep_is_the_run_alone(tmp_path):
    assert main(["run", "-m", "rps=2,4", "scheduler=fcfs", *WORDS, f"out={tmp_path / 'all'}"]) == 0
    assert main(["run", "rps=4", "scheduler=fcfs", *WORDS, f"out={tmp_path / 'one'}"]) == 0
    for name in ("metrics.json", "requests.parquet", "config.yaml"):
        assert (folder(tmp_path / "all", "rps=4") / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


def test_two_points_that_are_one_configuration_are_refused():
    (point,) = checked(from_words(["scheduler=fcfs", "trace=poisson", "requests=5"], sweep=False))
    with pytest.raises(SpecsimError, match=r"rps=2 and rps=2\.0 are one configuration"):
        plan([replace(point, point={"rps": rps}) for rps in ("2", "2.0")], None)


ADDED = {
    "a rate": ["rps=2,4,8", "seed=0,1"],
    "the axes in another order": ["seed=0,1", "rps=2,4"],
    "a default, now said": ["rps=2,4", "seed=0,1", "replicas=1", "slo_scale=1.0"],
}


@pytest.mark.parametrize("added", ADDED)
def test_what_is_added_to_a_sweep_runs_and_what_is_there_is_neither_run_nor_counted_again(tmp_path, started, added):
    command = ["run", "-m", "scheduler=fcfs", *WORDS, f"out={tmp_path}"]
    assert main([*command, "rps=2,4", "seed=0,1"]) == 0
    before = contents(tmp_path)
    for rewritten in ("table.csv", PLANNED_FILE):
        before.pop(Path(rewritten))
    assert main([*command, *ADDED[added]]) == 0
    points = 1
    for word in ADDED[added]:
        points *= len(word.split(","))
    assert len(started) == len(load_sweep(tmp_path)) == max(points, 4)
    assert {path: text for path, text in contents(tmp_path).items() if path in before} == before


def test_a_run_made_alone_an_older_name_and_a_moved_folder_are_found_by_their_settings(tmp_path, started):
    assert main(["run", "rps=2", "scheduler=fcfs", *WORDS, f"out={tmp_path / 'sweep' / 'mine'}"]) == 0
    assert main(["run", "rps=4", "scheduler=fcfs", *WORDS, f"out={tmp_path / 'sweep' / 'rps=4'}"]) == 0
    (tmp_path / "sweep").rename(tmp_path / "moved")
    assert main(["run", "-m", "rps=2,4", "scheduler=fcfs", *WORDS, f"out={tmp_path / 'moved'}"]) == 0
    assert len(started) == 2
    assert sorted(path.name for path in (tmp_path / "moved").iterdir()) == [PLANNED_FILE, "mine", "rps=4", "table.csv"]
    assert sweep_status(tmp_path / "moved", 0).done == 2


def test_the_table_holds_the_whole_folder(tmp_path):
    command = ["run", "-m", "scheduler=fcfs", *WORDS, f"out={tmp_path}"]
    assert main([*command, "rps=2,4"]) == 0
    assert main([*command, "rps=4,8", "slo_scale=1.2"]) == 0
    table = pd.read_csv(tmp_path / "table.csv")
    assert len(table) == 4 * len(CLASSES)
    assert set(zip(table["rps"], table["slo_scale"], strict=True)) == {(2, 1.0), (4, 1.0), (4, 1.2), (8, 1.2)}
    assert set(table["varies_with_seed"]) == {"arrivals, lengths, classes, acceptance"}


def test_a_sweep_and_a_single_run_do_not_share_a_folder(tmp_path, capsys, started):
    """Either would hide the other: what reads a folder takes it for a run or for a sweep."""
    words = ["scheduler=fcfs", *WORDS]
    assert main(["run", "rps=2", *words, f"out={tmp_path / 'one'}"]) == 0
    assert main(["run", "-m", "rps=2,4", *words, f"out={tmp_path / 'all'}"]) == 0
    stood, ran = contents(tmp_path), len(started)
    capsys.readouterr()
    assert main(["run", "-m", "rps=2,4", *words, f"out={tmp_path / 'one'}"]) == 2
    assert main(["run", "rps=2", *words, f"out={tmp_path / 'all'}"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("one: holds a single run; expected a new folder, or one of sweeps")
    assert second.endswith(f"all: holds a sweep; expected another folder, such as {tmp_path / 'all' / 'single'}")
    assert (contents(tmp_path), len(started)) == (stood, ran)
