"""A run of a sweep that fails: the rest runs, the failure stands in the table, and only it is tried again."""

import warnings

import pandas as pd
import pytest

from specsim import load_sweep, simulation, sweep
from specsim.cli import main
from specsim.errors import SpecsimError

WORDS = ["trace=poisson", "requests=6", "acceptance=bernoulli", "profile=llama8b_1b_h100", "scheduler=fcfs"]
SETTINGS = dict(word.split("=") for word in WORDS) | {"requests": 6}
CLASSES = 4


def faulty(requests):
    raise SpecsimError("fcfs at 0.5 s: request -1\nis no request")


def broken(requests):
    raise KeyError("tape")


def too_large(requests):
    raise MemoryError


FAULTS = {
    "a scheduler's fault": (faulty, "fcfs at 0.5 s: request -1 is no request"),
    "a fault of specsim": (broken, "specsim failed: KeyError: 'tape'"),
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


@pytest.mark.parametrize("keep", ["runs", "summary"])
def test_of_several_seeds_the_table_says_how_many_failed_and_is_in_the_order_of_the_sweep(
    tmp_path, capsys, world, keep
):
    words = ["rps=10,4", "seed=0,1,2", *WORDS, f"out={tmp_path}", "--keep", keep]
    assert main(["run", "-m", *words]) == 1
    rows = [row for row in capsys.readouterr().out.splitlines() if row[:2] in ("10", "4 ")]
    assert [row.split()[0] for row in rows] == ["10", "4"]
    assert [row.endswith("1 of 3 FAILED") for row in rows] == [True, False]


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


def test_a_failure_takes_the_place_of_a_run_that_no_longer_stands(tmp_path, world, capsys):
    command = ["run", "-m", "rps=2,4", *WORDS, f"out={tmp_path}"]
    world.fault = None
    assert main(command) == 0
    (folder,) = tmp_path.glob("rps=4-*")
    (folder / "requests.parquet").write_bytes(b"")
    (folder / "mine.txt").write_text("mine")
    world.fault, world.place = faulty, 3
    assert main(command) == 1
    assert {path.name for path in folder.iterdir()} == {"mine.txt"}
    assert len(load_sweep(tmp_path)) == 1


@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize("axis", ["rps=2,4,8", "scheduler=fcfs,continuous,vtc"])
def test_a_plot_says_in_a_note_and_in_its_captions_that_runs_failed(tmp_path, capsys, world, monkeypatch, axis):
    from specsim.figures import plots

    words = [word for word in WORDS if word.partition("=")[0] != axis.partition("=")[0]]
    assert main(["run", "-m", axis, *words, f"out={tmp_path}"]) == 1
    drawn, save = {}, plots.save
    monkeypatch.setattr(plots, "save", lambda figures, *more: drawn.update(figures) or save(figures, *more))
    capsys.readouterr()
    assert main(["plot", str(tmp_path)]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if "failed" in line]
    assert notes == ["note: 1 of 3 runs failed and is left out"]
    assert drawn
    for figure in drawn.values():
        assert "1 of 3 runs failed and is left out." in figure._supxlabel.get_text().replace("\n", " ")


def test_python_has_the_failures_and_a_warning(world):
    with pytest.warns(UserWarning, match=r"1 of 3 runs failed, the first: fcfs at 0\.5 s"):
        runs = sweep({"rps": [2, 4, 8]}, **SETTINGS)
    assert [run.config["rps"] for run in runs] == [2, 8]
    (failure,) = runs.failures
    assert (failure.config["rps"], failure.error) == (4, "fcfs at 0.5 s: request -1 is no request")
    assert "faulty" in failure.traceback
    assert runs.table["error"].count() == 1
    assert runs.table.loc[runs.table["error"].notna(), "slo_attainment"].isna().all()
    assert "1 failed" in repr(runs)
    assert "request -1" in runs._repr_html_()
    assert runs.select(rps=[2, 8]).failures == ()
    assert runs.select(rps=[4, 8]).failures == runs.failures
    assert len(runs.select(rps=[4, 8])) == 1


def test_a_mean_over_seeds_tells_how_many_there_are(world):
    with pytest.warns(UserWarning, match="1 of 3"):
        runs = sweep({"seed": [0, 1, 2]}, rps=2, **SETTINGS)
    assert set(runs.means()["count"]) == {2}
    from specsim.metrics.seeds import over_seeds

    assert set(over_seeds(runs.table, "slo_attainment", ["slo_class"])["count"]) == {2}


def test_a_sweep_of_failures_alone_still_has_a_table(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(simulation, "run", lambda *_: faulty(None))
    assert main(["run", "-m", "rps=2,4", *WORDS, f"out={tmp_path}"]) == 1
    said = capsys.readouterr()
    assert [line.split()[-1] for line in said.out.splitlines()[4:6]] == ["FAILED", "FAILED"]
    assert len(said.err.splitlines()) == 2
    assert len(pd.read_csv(tmp_path / "table.csv")) == 2
    found = load_sweep(tmp_path)
    assert len(found) == 0
    assert "2 failed" in repr(found)
    assert "request -1" in found._repr_html_()


def test_debug_shows_where_a_run_failed(tmp_path, world, capsys):
    assert main(["run", "-m", "--debug", "rps=2,4", *WORDS, f"out={tmp_path}"]) == 1
    said = capsys.readouterr().err
    assert "in faulty" in said
    assert said.splitlines()[-1].startswith("specsim: rps=4 failed")


def test_a_bad_value_is_refused_before_anything_runs(tmp_path, world, capsys):
    assert main(["run", "-m", "rps=2,4,-1", *WORDS, f"out={tmp_path}"]) == 2
    assert world.started == 0
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_full_disk_ends_the_sweep_with_a_line(tmp_path, monkeypatch, capsys, world):
    import pyarrow.parquet as pq

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    world.fault = None
    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    assert main(["run", "-m", "rps=2,4,8", *WORDS, f"out={tmp_path}"]) == 2
    assert world.started == 1
    assert "No space left on device" in capsys.readouterr().err


def test_an_interrupt_says_how_many_are_kept_and_how_to_go_on(tmp_path, world, capsys):
    def stop(_):
        raise KeyboardInterrupt

    world.fault = stop
    command = ["run", "-m", "rps=2,4,8", *WORDS, f"out={tmp_path}"]
    assert main(command) == 130
    said = capsys.readouterr().err
    assert said == f"specsim: interrupted; 1 of 3 runs are kept; the same command with out={tmp_path} goes on\n"
    world.fault, world.started = None, 0
    assert main(command) == 0
    assert world.started == 2


def test_nothing_is_warned_of_where_nothing_fails():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sweep({"rps": [2]}, **SETTINGS).failures == ()
