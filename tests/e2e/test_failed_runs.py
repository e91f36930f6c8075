"""A run of a sweep that fails: the rest runs, the failure stands in the table, and only it is tried again."""

import pandas as pd
import pytest

from specsim import load_sweep, simulation
from specsim.cli import main
from specsim.errors import SpecsimError

WORDS = ["trace=poisson", "requests=6", "acceptance=bernoulli", "profile=llama8b_1b_h100", "scheduler=fcfs"]
CLASSES = 4


def faulty(requests):
    raise SpecsimError("fcfs at 0.5 s: request -1\nis no request")


def broken(requests):
    raise KeyError("acceptance_trace")


def too_large(requests):
    raise MemoryError


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


def test_only_what_failed_is_tried_again(tmp_path, capsys, world):
    command = ["run", "-m", "rps=2,4,8", *WORDS, f"out={tmp_path / 'all'}"]
    assert main(command) == 1
    world.fault, world.started = None, 0
    capsys.readouterr()
    assert main(command) == 0
    said = capsys.readouterr()
    assert world.started == 1
    assert said.err == ""
    assert "FAILED" not in said.out
    assert "made again" not in said.out
    assert "error" not in pd.read_csv(tmp_path / "all" / "table.csv")
    assert not (tmp_path / "all" / "summaries").exists()
    assert load_sweep(tmp_path / "all").failures == ()


def test_the_folder_tells_of_the_failure_until_it_succeeds(tmp_path, world):
    assert main(["run", "-m", "rps=2,4,8", *WORDS, f"out={tmp_path}"]) == 1
    assert main(["run", "-m", "rps=16", *WORDS, f"out={tmp_path}"]) == 0
    found = load_sweep(tmp_path)
    assert [run.config["rps"] for run in found] == [2, 8, 16]
    (failure,) = found.failures
    assert failure.config["rps"] == 4
    assert failure.label == {"rps": "4"}
    assert found.table["error"].count() == 1
    assert found.axes == {"rps": [2, 8, 16]}
    assert found.means()["count"].tolist() == [1] * 3 * CLASSES
    assert pd.read_csv(tmp_path / "table.csv")["error"].count() == 1


def test_a_full_disk_ends_the_sweep_with_a_line(tmp_path, monkeypatch, capsys, world):
    import pyarrow.parquet as pq

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    world.fault = None
    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    assert main(["run", "-m", "rps=2,4,8", *WORDS, f"out={tmp_path}"]) == 2
    assert world.started == 1
    assert "No space left on device" in capsys.readouterr().err
