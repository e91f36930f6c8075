"""`-m`: a folder per point, one table, nothing run twice; what is damaged or made by other code is made anew."""

import json
import re
import shutil
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from specsim import load_run, load_sweep
from specsim.cli import main
from specsim.config.configured import from_words
from specsim.runs.plan import checked, plan
from specsim.runs.processes import SweepProgress, Worst
from specsim.store.runs import PLANNED_FILE
from specsim.store.status import sweep_status
from specsim.store.summaries import Failure, append_row, read_rows, settle
from tests.files import contents, run_in
from tests.made import refusal

WORDS = ["trace=poisson", "requests=6", "acceptance=bernoulli", "profile=llama8b_1b_h100"]
CLASSES = ["chat", "coding", "summarization", "all"]
AXES = ["scheduler=fcfs,continuous", "rps=2,4", "slo_scale=0.8,1.2"]
PLACES = [(scheduler, rps, scale) for scheduler in ("fcfs", "continuous") for rps in "24" for scale in ("0.8", "1.2")]


def table_of(capsys):
    """Return the words of each line of the table that is on stdout, and what stands behind it."""
    return [line.split() for line in capsys.readouterr().out.splitlines() if not line.startswith("note: ")]


def test_eight_points_write_eight_folders_and_one_table(tmp_path, capsys, started):
    assert main(["run", "-m", *AXES, *WORDS, f"out={tmp_path / 'all'}"]) == 0
    assert len((tmp_path / "all" / "table.csv").read_text().splitlines()) == 1 + 8 * len(CLASSES)
    table = load_sweep(tmp_path / "all").table
    table.to_csv(tmp_path / "by_pandas.csv", index=False)
    assert (tmp_path / "all" / "table.csv").read_bytes() == (tmp_path / "by_pandas.csv").read_bytes()
    folders = sorted(path.name for path in (tmp_path / "all").iterdir() if path.is_dir())
    labels = [f"scheduler={scheduler},rps={rps},slo_scale={scale}" for scheduler, rps, scale in sorted(PLACES)]
    assert [name.rpartition("-")[0] for name in folders] == labels
    assert len(started) == 8
    for place in filter(Path.is_dir, (tmp_path / "all").iterdir()):
        assert json.loads((place / "metrics.json").read_text())["completed"] == 6
    lines = table_of(capsys)
    assert (lines[0][:3], lines[-1]) == (["scheduler", "rps", "slo_scale"], [str(tmp_path / "all")])
    assert [tuple(line[:3]) for line in lines[4:12]] == PLACES
    assert main(["run", "rps=4", "slo_scale=0.8", "scheduler=fcfs", *WORDS, f"out={tmp_path / 'one'}"]) == 0
    point = run_in(tmp_path / "all", "scheduler=fcfs,rps=4,slo_scale=0.8")
    alike = (contents(each, "provenance.json") for each in (point, tmp_path / "one"))
    assert next(alike) == next(alike), "a point is the run alone"


def test_a_sweep_with_seeds_prints_a_row_a_point_and_with_each_a_row_a_run(tmp_path, capsys):
    words = ["scheduler=fcfs,continuous", "seed=0,1", "rps=10,2", *WORDS, f"out={tmp_path}"]
    points = [[scheduler, rps] for scheduler in ("fcfs", "continuous") for rps in ("10", "2")]
    assert main(["run", "-m", *words]) == 0
    lines = table_of(capsys)
    assert lines[0][:4] == ["scheduler", "rps", "attained", "difference"]
    assert [line[:2] for line in lines[4:8]] == points
    found = load_sweep(tmp_path).over_seeds().set_index(["scheduler", "rps"])
    assert [[scheduler, str(rps)] for scheduler, rps in found.index] == points
    for line in lines[4:8]:
        scheduler, rps, attained, difference, *_ = line
        row = found.loc[(scheduler, int(rps))]
        assert float(attained.lstrip("*")) == pytest.approx(100 * row["slo_attainment"], abs=0.5)
        assert "\u00b1" not in line, "two seeds are too few for an interval"
        apart = float(difference.replace("-", "nan") if scheduler == "fcfs" else difference)
        assert apart == pytest.approx(100 * row["difference"], abs=0.5, nan_ok=True)
    shutil.copytree(next(tmp_path.glob("*fcfs*")), tmp_path / "a copy")
    assert main(["run", "-m", *words]) == 0
    assert table_of(capsys)[:8] == lines[:8], "a copy changes no mean"
    assert main(["run", "-m", *words, "--each"]) == 0
    assert len([line for line in table_of(capsys) if line[:1] in (["fcfs"], ["continuous"])]) == 8


def test_two_points_that_are_one_configuration_are_refused():
    (point,) = checked(from_words(["scheduler=fcfs", "trace=poisson", "requests=5"], sweep=False))
    assert point.but(experiment=None, sources={"plugins": {"__main__": "x"}}).prepared().plugins == {"__main__": "x"}
    said = refusal(plan, [replace(point, point={"rps": rps}) for rps in ("2", "2.0")], None)
    assert "rps=2 and rps=2.0 are one configuration" in said


def test_what_is_added_to_a_sweep_runs_and_what_is_there_is_neither_run_nor_counted_again(tmp_path, started):
    """A rate is added, the axes stand in another order, and two defaults are said."""
    command = ["run", "-m", "scheduler=fcfs", *WORDS, f"out={tmp_path}"]
    assert main([*command, "rps=2,4", "seed=0,1"]) == 0
    before = contents(tmp_path, "table.csv", PLANNED_FILE)
    assert main([*command, "seed=0,1", "replicas=1", "rps=2,4,8", "slo_scale=1.0"]) == 0
    assert len(started) == len(load_sweep(tmp_path)) == 6
    assert before.items() <= contents(tmp_path).items()
    assert main([*command, "rps=4,8", "slo_scale=1.2"]) == 0
    table = pd.read_csv(tmp_path / "table.csv")
    assert len(table) == 8 * len(CLASSES), "the table holds the whole folder"
    assert set(zip(table["rps"], table["slo_scale"], strict=True)) == {*product((2, 4, 8), (1.0,)), (4, 1.2), (8, 1.2)}
    assert set(table["varies_with_seed"]) == {"arrivals, lengths, classes, acceptance"}


def test_a_run_made_alone_an_older_name_and_a_moved_folder_are_found_by_their_settings(tmp_path, started):
    assert main(["run", "rps=2", "scheduler=fcfs", *WORDS, f"out={tmp_path / 'sweep' / 'mine'}"]) == 0
    assert main(["run", "rps=4", "scheduler=fcfs", *WORDS, f"out={tmp_path / 'sweep' / 'rps=4'}"]) == 0
    moved, latin = (tmp_path / "sweep").rename(tmp_path / "moved"), "caf\udce9"
    (moved / "mine").rename(moved / latin)
    assert main(["run", "-m", "rps=2,4", "scheduler=fcfs", *WORDS, f"out={moved}"]) == 0
    assert sorted(path.name for path in moved.iterdir()) == [PLANNED_FILE, latin, "rps=4", "table.csv"]
    assert (len(started), sweep_status(moved, 0).done, len(load_sweep(moved)[0].requests)) == (2, 2, 6)


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


FILE = """
run: {trace: poisson, requests: 8, profile: llama8b_1b_h100}
grid: {scheduler: [fcfs, continuous], rps: "2,4"}
seeds: 2
"""


@pytest.mark.parametrize("keep", ["runs", "summary"])
def test_the_status_counts_what_is_done_what_failed_and_what_is_left(tmp_path, capsys, keep):
    def told():
        capsys.readouterr()
        assert main(["sweep", "status", str(root)]) == 0
        return capsys.readouterr().out.splitlines()

    root = tmp_path / "all"
    (tmp_path / "sweep.yaml").write_text(FILE)
    assert main(["sweep", str(tmp_path / "sweep.yaml"), f"out={root}", "--keep", keep]) == 0
    first, worst = told()
    assert first == f"{root}: 8 of 8 runs done, 0 failed, 0 left"
    lowest = min(run.metrics["specsim"]["worst_class_attainment"] for run in load_sweep(root))
    assert re.fullmatch(rf"worst class \w+ {100 * lowest:.1f}%", worst)
    if keep == "runs":
        next(root.glob("*/requests.parquet")).write_bytes(b"")
    else:
        key, run = next(iter(read_rows(root).runs.items()))
        settle(root, {key: None})
    first, rate, stored, _, *notes = told()
    assert first == f"{root}: 7 of 8 runs done, 0 failed, 1 left"
    assert [": 1 of the runs, as " in each for each in notes] == [True] * (keep == "runs")
    assert re.fullmatch(r"[\d.]+ runs/s: \d\d:\d\d left if it runs", rate)
    assert re.fullmatch(r"the last run was stored \d+ s ago", stored)
    if keep == "summary":
        append_row(root, Failure(run.config, {"rps": "2"}, "at last", name=run.name))
        first, *_, last = told()
        assert first == f"{root}: 7 of 8 runs done, 1 failed, 0 left"
        assert last == f"failed: {run.name}: at last"
    for content in ("{}", "{", "[" * 100_000):
        (root / PLANNED_FILE).write_text(content)
        assert main(["sweep", "status", str(root)]) != 0
        assert f"{PLANNED_FILE}' is damaged" in capsys.readouterr().err


def test_a_plain_line_tells_done_failed_rate_time_left_and_the_worst_class(capsys, monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr("specsim.runs.processes.time.monotonic", lambda: now_s[0])
    tally = SweepProgress(20, None, speaks=True)
    tally.add(Worst(0.5, "chat"), stood=True)
    for worst in (Worst(0.9, "coding"), None, Worst(0.417, "coding")):
        now_s[0] += 4.0
        tally.add(worst)
    said = capsys.readouterr().err
    assert said == "4 of 20 runs done, 1 failed, 0.25 runs/s, 01:04 left, worst class coding 41.7%\n"
    SweepProgress(20, None, speaks=False).add(None)
    assert capsys.readouterr().err == ""


PLUGIN = """
from dataclasses import dataclass
from specsim.schedulers.fcfs import Fcfs

@dataclass(frozen=True, slots=True)
class Mine(Fcfs):
    def step(self, view):
        yield from Fcfs({size}).step(view)
"""
RATES = ["run", "-m", "rps=2,4,8", "scheduler=fcfs", "passes=true", *WORDS]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("made") / "all"
    assert main([*RATES, f"out={root}"]) == 0
    return root


@pytest.fixture
def root(made, tmp_path):
    return shutil.copytree(made, tmp_path / "all")


def flip(path):
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def edited(path):
    path.write_text(path.read_text().replace('"slo_attainment": ', '"slo_attainment": 0.'))


HARMS = {
    "metrics.json is deleted": (lambda run, _: (run / "metrics.json").unlink(), "metrics.json is missing"),
    "passes.parquet is deleted": (lambda run, _: (run / "passes.parquet").unlink(), "passes.parquet is missing"),
    "another run's requests.parquet": (
        lambda run, other: shutil.copy(other / "requests.parquet", run / "requests.parquet"),
        "requests.parquet is damaged",
    ),
    "a byte of requests.parquet": (lambda run, _: flip(run / "requests.parquet"), "requests.parquet is damaged"),
    "a byte of config.yaml": (lambda run, _: flip(run / "config.yaml"), "config.yaml is damaged"),
    "an edited metrics.json": (lambda run, _: edited(run / "metrics.json"), "metrics.json is damaged"),
    **{
        f"a truncated {name}": (
            lambda run, _, name=name: (run / name).write_bytes((run / name).read_bytes()[:20]),
            f"{name} is damaged",
        )
        for name in ("metrics.json", "passes.parquet", "config.yaml", "provenance.json")
    },
}


AT_ONCE = ("passes.parquet is deleted", "another run's requests.parquet", "a truncated config.yaml")
"""One for each of: what is missing, what is damaged, and what is damaged and tells which run it was."""


@pytest.mark.parametrize(
    "harm", [harm if harm in AT_ONCE else pytest.param(harm, marks=pytest.mark.slow) for harm in HARMS]
)
def test_a_damaged_run_is_made_again_and_the_rest_is_kept(made, root, capsys, started, harm):
    harmful, reason = HARMS[harm]
    harmful(run_in(root, "rps=4"), run_in(root, "rps=8"))
    assert main([*RATES, f"out={root}"]) == 0
    assert f"note: 1 run made again: {reason}" in capsys.readouterr().out.splitlines()
    assert (len(started), load_sweep(root).whole_notes) == (1, ())
    assert contents(root, "provenance.json") == contents(made, "provenance.json")


@pytest.mark.parametrize("harm", HARMS)
def test_reading_names_a_damaged_run_and_leaves_it_out(root, harm):
    harmful, reason = HARMS[harm]
    harmful(run_in(root, "rps=4"), run_in(root, "rps=8"))
    found = load_sweep(root)
    assert [run.config["rps"] for run in found] == [2, 8]
    (note,), name, run = found.whole_notes, reason.split()[0], run_in(root, "rps=4")
    assert all(each in note for each in ("left out: ", name, run.name))
    assert "no run folder" not in note
    assert name in refusal(load_run, run)


def test_other_code_of_specsim_makes_all_runs_again(root, capsys, started, monkeypatch):
    monkeypatch.setattr("specsim.runs.provenance.package_sha256", lambda: "0" * 64)
    assert main([*RATES, f"out={root}"]) == 0
    assert "note: 3 runs made again: specsim's own code has changed" in capsys.readouterr().out.splitlines()
    assert len(started) == 3
    assert main([*RATES, f"out={root}"]) == 0
    assert len(started) == 3


@pytest.fixture
def plugin(here, monkeypatch):
    """Write a scheduler of one's own."""
    monkeypatch.syspath_prepend(here)
    (here / "my_policy.yaml").write_text("description: mine\n_target_: my_policy.Mine\nmax_num_seqs: 64\n")
    yield lambda size: (here / "my_policy.py").write_text(PLUGIN.format(size=size))
    sys.modules.pop("my_policy", None)


MINE = ["scheduler=./my_policy.yaml,fcfs", "plugins=[my_policy.py]"]


def test_a_plug_in_is_of_its_own_schedulers_runs_alone_beside_the_baselines(plugin, capsys, started):
    words = ["run", "-m", "rps=20,40", "seed=0,1", *WORDS]
    plugin(1)
    assert main([*words, "scheduler=continuous,fcfs", "out=all"]) == 0
    assert main([*words, "scheduler=./my_policy.yaml", MINE[1], "out=mine"]) == 0
    joined = load_sweep("all", "mine")
    assert [*joined.axes] == ["scheduler", "rps", "seed"]
    assert joined.figure().caption
    assert joined.paired(against="fcfs")["count"].tolist() == [2] * 2 * 2 * len(CLASSES)
    assert len(joined.winners()) == 2
    assert main([*words, *MINE, "out=all"]) == 0
    assert len(started) == 8 + 4 + 4
    named = {run.made_of.chosen.scheduler.name: [*run.provenance["plugins"]] for run in load_sweep("all")}
    assert named == {"continuous": [], "fcfs": [], "./my_policy.yaml": ["my_policy"]}
    before = load_sweep("all").table["slo_attainment"].tolist()
    plugin(64)
    assert main([*words, *MINE, "out=all"]) == 0
    assert "note: 4 runs made again: plug-in my_policy has changed" in capsys.readouterr().out.splitlines()
    assert load_sweep("all").table["slo_attainment"].tolist() != before
    edited = load_sweep("all", "mine").over_seeds()
    assert len(edited) == 2 * 4
    assert set(edited["scheduler.read.my_policy"].dropna().str.len()) == {12}
    assert main([*words, *MINE, "out=all"]) == 0
    assert len(started) == 20
    assert "made again" not in capsys.readouterr().out
