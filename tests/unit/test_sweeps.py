"""A sweep as one object: a sequence, a table of all that differs, means and notes; what its runs are called."""

import json
import os
import re
import shutil
import sys
import types
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from specsim import SpecsimError, Sweep, load_run, load_sweep, simulate, sweep
from specsim.cli import main
from specsim.figures import plots
from specsim.metrics.sweep_table import in_short
from specsim.store.scan import labels_of
from tests.files import reseal
from tests.made import refusal

SMALL = {"trace": "poisson", "requests": 8, "acceptance": "bernoulli", "profile": "llama8b_1b_h100"}
NOBODY = 65534
AXES = {"scheduler": ["vllm_spec", "fcfs"], "rps": [2, 4], "seed": [0, 1]}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweeps") / "all"
    sweep(AXES, out=folder, **SMALL)
    return folder


@pytest.fixture
def copied(stored, tmp_path):
    return shutil.copytree(stored, tmp_path / "all")


def test_a_sweep_is_a_sequence_of_runs_from_which_some_are_selected(stored):
    made, found = sweep(AXES, out=stored, **SMALL), load_sweep(stored)
    assert [run.folder for run in made] == [run.folder for run in found]
    assert len((stored / "table.csv").read_text().splitlines()) == 1 + len(found.table)
    assert isinstance(made, Sweep)
    assert len(made) == len(found) == len(list(found)) == 8
    assert [run.config["choices"]["scheduler"] for run in made] == ["vllm_spec"] * 4 + ["fcfs"] * 4
    assert made[-1].config["seed"] == 1
    assert [run.folder for run in made[2:4]] == [made[2].folder, made[3].folder]
    with pytest.raises(IndexError):
        made[8]
    assert "sweep.table['rps']" in refusal(lambda: made["rps"])
    some = found.select(scheduler="fcfs", rps=[2, 4], seed=0)
    assert [run.config["rps"] for run in some] == [2, 4]
    assert isinstance(some, Sweep)
    assert found.select(rps=range(2, 3)).axes == {"scheduler": ["fcfs", "vllm_spec"], "seed": [0, 1]}


def test_a_loader_names_the_other_and_what_it_loaded_is_read_in_another_working_folder(stored, monkeypatch):
    monkeypatch.chdir(stored.parent)
    found, made = load_sweep("all"), sweep(AXES, out="all", **SMALL)
    assert "expected load_sweep" in refusal(load_run, "all")
    alone = load_run(f"all/{found[0].folder.name}")
    assert "holds a single run; expected folders of sweeps" in refusal(load_sweep, alone.folder)
    monkeypatch.chdir("/")
    assert len(found[0].requests) == len(made[0].requests) == len(alone.requests) == 8


def test_a_row_per_run_and_class_with_what_was_measured(stored):
    found = load_sweep(stored)
    table = found.table
    assert len(table) == sum(1 + len(run.metrics["specsim"]["classes"]) for run in found)
    for run in found:
        rows = table[table["run"] == run.folder.name].set_index("slo_class")
        block = run.metrics["specsim"]
        parts = block["classes"] | {"all": block}
        assert rows["slo_attainment"].to_dict() == {name: part["slo_attainment"] for name, part in parts.items()}
        assert rows.loc["all", "mean_ttft_s"] == pytest.approx(run.metrics["mean_ttft_ms"] / 1000)
        told = {"worst_class_attainment": block["worst_class_attainment"], "arrived": 8}
        told |= {"requests": run.config["requests"], "load.makespan_ratio": block["load"]["makespan_ratio"]}
        assert rows.loc["all", [*told]].to_dict() == told
    assert table.columns.is_unique


@pytest.mark.parametrize(
    ("key", "values"),
    [("slo_scale", [0.8, 1.2]), ("warmup", [[0, 5], [0, 9]]), ("cost_model", [None, "llama70b_1b_4xh100"])],
)
def test_every_key_that_differs_is_kept_and_never_pooled_with_seeds(key, values):
    found = sweep({key: values, "seed": [0, 1]}, scheduler="vllm_spec", rps=4, **SMALL)
    assert list(found.axes) == [key, "seed"]
    assert found.table[key].nunique(dropna=False) == 2
    assert f"differ in {key} " in refusal(found.means, by=["slo_class", "scheduler", "rps"])
    assert set(found.means()["count"]) == {2}


def test_files_that_changed_between_runs_are_a_key(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, prompt in ((0, 10), (1, 700)):
        (tmp_path / "mine.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n0,{prompt},3\n1,9,3\n")
        simulate("fcfs", "./mine.csv", seed=seed, out=f"all/{seed}", acceptance="bernoulli", profile="llama8b_1b_h100")
    assert "trace.read.sha256" in refusal(lambda: load_sweep("all").means(by=["slo_class"]))


def test_the_same_run_twice_is_counted_once_with_a_note_and_with_other_results_refused(copied):
    first = load_sweep(copied)[0].folder
    copy = shutil.copytree(first, copied / "a copy")
    found = load_sweep(copied)
    assert len(found) == len(load_sweep(copied, copied)) == 8
    assert set(found.means()["count"]) == {2}
    assert found.whole_notes == (f"{first.name!r} and 'a copy' hold the same run: it is counted once",)
    metrics = json.loads((copy / "metrics.json").read_text())
    metrics["specsim"]["slo_attainment"] = 0.123
    (copy / "metrics.json").write_text(json.dumps(metrics))
    assert "metrics.json is damaged" in load_sweep(copied).whole_notes[0]
    reseal(copy)
    with pytest.raises(SpecsimError, match=r" and 'a copy' .* different results"):
        load_sweep(copied)


@pytest.mark.parametrize("lacking", ["varies_with_seed", "versions", "trace"])
def test_a_run_of_an_earlier_version_is_left_out_with_a_note(copied, lacking):
    first = load_sweep(copied)[0].folder
    reseal(first, **{lacking: None})
    said = "does not say what it was made from, or what its seed drew: an earlier version stored it; run it again"
    assert load_sweep(copied).whole_notes == (f"left out: {first.name!r} {said}",)
    assert len(load_sweep(copied)) == 7


@contextmanager
def as_nobody(folder):
    """Own a folder without root's right to read all."""
    mine = os.getresuid()
    for each in (folder, *folder.rglob("*")) if 0 in mine else ():
        os.chown(each, NOBODY, -1)
    os.setresuid(*(NOBODY if each == 0 else each for each in mine[:2]), mine[2])
    try:
        yield
    finally:
        os.setresuid(*mine)


@pytest.mark.skipif(sys.platform != "linux", reason="rights of Linux")
def test_a_folder_that_may_not_be_read_is_named_and_the_rest_is_read(stored):
    with TemporaryDirectory() as root:  # pytest's own folders let nobody but their owner through.
        copied = shutil.copytree(stored, Path(root, "all"))
        Path(root).chmod(0o755)
        (closed := copied / "lost+found").mkdir(0o000)
        with as_nobody(copied):
            found, said = load_sweep(copied), f"{str(closed)!r} cannot be read: Permission denied"
            assert (len(found), found.whole_notes, refusal(load_sweep, closed)) == (8, (f"left out: {said}",), said)
            copied.chmod(0o444)
            listed = refusal(load_sweep, copied)
    assert listed == f"{str(copied)!r} cannot be read: Permission denied"


def test_what_jupyter_shows_is_short_and_names_what_differs(stored):
    found = load_sweep(stored)
    shown = found._repr_html_()
    assert "Sweep of 8 runs: scheduler (2), rps (2), seed (2)" in shown
    assert "difference: attained less that of vllm_spec with the same seed" in shown
    assert len(re.findall(r"^(?:fcfs|vllm_spec) +[24] +[*0-9.]+ +[-+0-9.]+ ", shown, re.M)) == 4
    assert "mean \u00b1 half width of the 95% interval over seeds, from 5 seeds on; " in shown
    assert len(shown) < 4000
    assert repr(found) == "<Sweep of 8 runs: scheduler (2), rps (2), seed (2); 2 notes>"
    run = found[0]._repr_html_()
    assert "trace=poisson" in run
    assert re.search(r"<pre style=\"font-family: monospace;[^<]*\ncoding ", run)
    assert len(run) < 4000


@pytest.mark.parametrize("shell", [None, types.SimpleNamespace(kernel=None)], ids=["pipe", "jupyter"])
def test_progress_is_drawn_in_jupyter_and_not_in_a_pipe(monkeypatch, capsys, shell):
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    sweep({"rps": [2, 4]}, scheduler="fcfs", **SMALL)
    assert ("0/2" in capsys.readouterr().err) == (shell is not None)


def test_what_the_seed_drew_is_what_it_was_when_the_run_was_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "arrival_s,prompt_tokens,output_tokens,slo_class\n0,9,3,chat\n1,9,3,coding\n2,9,3,chat\n"
    (tmp_path / "mine.csv").write_text(rows)
    sweep({"seed": [0, 1]}, **{**SMALL, "trace": "./mine.csv", "requests": 3}, scheduler="fcfs", out="all")
    before = load_sweep("all").table["varies_with_seed"]
    (tmp_path / "mine.csv").unlink()
    assert list(load_sweep("all").table["varies_with_seed"]) == list(before)


SILLY = {
    "plotted into a number": (lambda runs: runs.plot(3), "folder=3: expected the path of a folder"),
    "no run": (lambda _: Sweep([3]), "is no run; expected runs"),
    "one run twice": (lambda runs: Sweep([runs[0], runs[0]]).means(), "same run"),
    "by of an unknown name": (lambda runs: runs.means(by=["rpss"]), "'rps'"),
    "empty by of pairs": (lambda runs: runs.paired(against="fcfs", by=[]), "expected rps in by"),
    "of classes": (lambda runs: runs.paired(against="chat", of="slo_class"), "every run holds all classes"),
    "a fraction of a place": (lambda runs: runs[0.5], "indexed by number"),
    "selection by an unknown name": (lambda runs: runs.select(schedulr="fcfs"), "'scheduler'"),
    "selection of nothing": (lambda runs: runs.select(rps=3), "rps=3"),
    "selection of a class": (lambda runs: runs.select(slo_class="chat"), "slo_class"),
}


@pytest.mark.parametrize(("call", "named"), SILLY.values(), ids=SILLY)
def test_a_silly_argument_is_one_line(stored, call, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert named in refusal(call, load_sweep(stored))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("empty", [Sweep([]), Sweep([])[1:]], ids=["made", "cut"])
def test_an_empty_sweep_shows_that_it_is_and_refuses_all_else_in_one_line(empty, tmp_path):
    assert (len(empty), list(empty), empty.axes, len(empty.table), empty.labelled()) == (0, [], {}, 0, [])
    assert repr(empty) == "<Sweep of 0 runs>"
    assert "Sweep of 0 runs" in empty._repr_html_()
    calls = [empty.means, empty.why, empty.winners, empty.curves, empty.select, lambda: empty.plot(tmp_path)]
    for call in (*calls, *(lambda: empty.means(by=[]), lambda: empty.select(rps=2), lambda: empty.paired(against="x"))):
        assert re.search("holds no run|has no rows", refusal(call))
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("unrendered")
def test_a_sweep_of_one_run_is_drawn_and_has_nothing_to_be_paired_with(stored, tmp_path):
    one = load_sweep(stored)[:1]
    assert set(one.means()["interval_covers"]) == {"no interval: fewer than 5 seeds"}
    assert one.plot(tmp_path)
    assert "is the only value in the sweep" in refusal(one.paired, against=one[0].config["choices"]["scheduler"])
    assert refusal(one.curves, x="nope").endswith("the runs do not differ in it")


def test_a_kind_of_notes_that_several_runs_have_is_counted_and_that_of_one_said_in_full_with_its_point():
    several = [("surrogate", "OVERLOADED: a"), ("surrogate", "too short: b"), ("OVERLOADED: c", "too short: d"), ()]
    columns, why = "load.too_short and load.attainment_half_width", "the notes in each run's provenance why"
    assert in_short(several, "rps={}".format) == [
        "surrogate",
        f"OVERLOADED: 2 of 4 runs; the table's column load.overloaded tells which, {why}",
        f"too short: 2 of 4 runs; the table's columns {columns} tell which, {why}",
    ]
    sizes = [(f"extrapolated: 3 of 9 passes{each}", "hardly drafts: 9%") for each in ("", ": up to 8 context tokens")]
    said, shares = in_short(sizes, "rps={}".format)
    assert said.startswith("extrapolated: 2 of 2 runs, such as up to 8 context tokens; the table's column")
    assert shares == "hardly drafts: 2 of 2 runs by their notes, such as 9%"
    single = [(), ("surrogate", "too short: b", "not steady: c"), ("extrapolated: 2 of 100 passes",)]
    said = ["surrogate", "extrapolated: rps=2: 2 of 100 passes", "too short: rps=1: b", "not steady: rps=1: c"]
    assert in_short(single, "rps={}".format) == said
    assert in_short([("too short: b",)], lambda _: "") == ["too short: b"]


@pytest.mark.parametrize("stored", [False, True])
def test_a_sweep_in_python_has_the_notes_of_its_runs(tmp_path, stored):
    out = tmp_path if stored else None
    small = {"trace": "poisson", "requests": 30, "profile": "llama8b_1b_h100", "progress": False}
    runs = sweep({"scheduler": ["continuous", "vllm_spec"], "rps": [2, 4]}, out=out, **small)
    assert runs.whole_notes == ()
    assert any(note.startswith("MISMATCHED PAIR: ") for note in runs.notes)
    assert sum(note.startswith("too short: 4 of 4 runs") for note in runs.notes) == 1
    assert not stored or load_sweep(tmp_path).notes == runs.notes
    (plain,) = (note for note in runs.select(scheduler="continuous", rps=2).notes if note.startswith("too short"))
    assert plain.startswith("too short: 30 requests in ")
    assert "too short: 4 of 4 runs" in runs._repr_html_()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")

    def stored(name, scheduler="fcfs", **settings):
        simulate(scheduler, **(SMALL | settings), out=folder / name)
        return load_run(folder / name)

    return {
        "one": stored("20261123-145318-fcfs-poisson"),
        "two": stored("20261123-145319-fcfs-poisson", replicas=2),
        "other": stored("mine", "vllm_spec", replicas=2, rps=2.5),
        "seed": stored("luck", seed=1),
        "passes": stored("kept", passes=True),
    }


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["one", "two"], ["replicas=1", "replicas=2"]),
        (["two", "other"], ["scheduler=fcfs,rps=none", "scheduler=vllm_spec,rps=2.5"]),
        (["one", "seed"], ["seed=0", "seed=1"]),
        (["one", "passes"], ["20261123-145318-fcfs-poisson", "kept"]),
        (["one", "two", "passes"], ["replicas=1 20261123-145318-fcfs-poisson", "replicas=2", "replicas=1 kept"]),
    ],
)
def test_a_run_is_named_by_what_differs_and_of_one_name_by_its_path(runs, tmp_path, names, labels):
    assert labels_of([runs[name] for name in names]) == labels
    one = runs["one"]
    copy = load_run(shutil.copytree(one.folder, tmp_path / one.folder.name))
    assert labels_of([one, copy]) == [str(one.folder), str(copy.folder)]


@pytest.mark.usefixtures("unrendered")
def test_plot_writes_these_names_and_says_where_the_figure_is(runs, capsys, monkeypatch):
    drawn, save = {}, plots.save
    monkeypatch.setattr(plots, "save", lambda figures, *more: drawn.update(figures) or save(figures, *more))
    folders = [str(runs[name].folder) for name in ("one", "two")]
    assert main(["plot", *folders]) == 0
    note, *files = capsys.readouterr().out.splitlines()
    assert note == "note: the figure of all runs stands in the first run's folder; --out DIR puts it elsewhere"
    assert files == [f"{folders[0]}/figures/comparison.{kind}" for kind in ("png", "pdf")]
    left = drawn["comparison"].axes[0]
    assert [text.get_text().split()[0] for text in left.get_yticklabels()] == ["replicas=1", "replicas=2"]
