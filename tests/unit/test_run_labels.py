"""Runs side by side are named by the settings in which they differ; by their folders where none does."""

import shutil

import pytest

from specsim import load_run, simulate
from specsim.cli import main
from specsim.store.scan import labels_of

SETTINGS = {"trace": "poisson", "requests": 6, "acceptance": "bernoulli", "profile": "llama8b_1b_h100"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")

    def stored(name, scheduler="fcfs", **settings):
        simulate(scheduler, **(SETTINGS | settings), out=folder / name)
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
def test_a_run_is_named_by_what_differs(runs, names, labels):
    assert labels_of([runs[name] for name in names]) == labels


def test_folders_of_one_name_are_told_by_their_paths(runs, tmp_path):
    copy = load_run(shutil.copytree(runs["one"].folder, tmp_path / runs["one"].folder.name))
    assert labels_of([runs["one"], copy]) == [str(runs["one"].folder), str(copy.folder)]


@pytest.mark.usefixtures("unrendered")
def test_plot_writes_these_names_and_says_where_the_figure_is(runs, capsys, monkeypatch):
    from specsim.figures import plots

    drawn, save = {}, plots.save
    monkeypatch.setattr(plots, "save", lambda figures, *more: drawn.update(figures) or save(figures, *more))
    folders = [str(runs[name].folder) for name in ("one", "two")]
    assert main(["plot", *folders]) == 0
    note, *files = capsys.readouterr().out.splitlines()
    assert note == "note: the figure of all runs stands in the first run's folder; --out DIR puts it elsewhere"
    assert files == [f"{folders[0]}/figures/comparison.{kind}" for kind in ("png", "pdf")]
    left = drawn["comparison"].axes[0]
    assert left.get_ylabel() == "replicas"
    assert [text.get_text().split()[0] for text in left.get_yticklabels()] == ["1", "2"]
