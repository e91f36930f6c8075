"""A sweep that is run again keeps what still stands: what is damaged, or made by other code, is made anew and said."""

import os
import shutil
import subprocess
import sys

import pytest

from specsim import SpecsimError, load_run, load_sweep
from specsim.cli import main

WORDS = ["requests=6", "trace=poisson", "acceptance=bernoulli", "profile=llama8b_1b_h100", "passes=true"]
SWEEP = ["run", "-m", "rps=2,4,8", "scheduler=fcfs", *WORDS]
PLUGIN = """
from dataclasses import dataclass
from specsim.schedulers.fcfs import Fcfs
{imports}

@dataclass(frozen=True, slots=True)
class Mine(Fcfs):
    def step(self, view):
        yield from Fcfs({size}).step(view)
"""
YAML = "description: mine\n_target_: my_policy.Mine\nmax_num_seqs: 64\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("made") / "all"
    assert main([*SWEEP, f"out={root}"]) == 0
    return root


@pytest.fixture
def root(made, tmp_path):
    return shutil.copytree(made, tmp_path / "all")


def contents(root):
    return {path.relative_to(root): path.read_bytes() for path in sorted(root.rglob("*.*")) if path.is_file()}


def of(root, label):
    (found,) = root.glob(f"{label}-*")
    return found


def flip(path):
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def edited(path):
    path.write_text(path.read_text().replace('"slo_attainment": ', '"slo_attainment": 0.'))


HARMS = {
    "passes.parquet is deleted": (lambda run, _: (run / "passes.parquet").unlink(), "passes.parquet is missing"),
    "another run's requests.parquet": (
        lambda run, other: shutil.copy(other / "requests.parquet", run / "requests.parquet"),
        "requests.parquet is damaged",
    ),
    "a flipped byte of requests.parquet": (
        lambda run, _: flip(run / "requests.parquet"),
        "requests.parquet is damaged",
    ),
    "a flipped byte of config.yaml": (lambda run, _: flip(run / "config.yaml"), "config.yaml is damaged"),
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
    harmful(of(root, "rps=4"), of(root, "rps=8"))
    assert main([*SWEEP, f"out={root}"]) == 0
    assert f"note: 1 run made again: {reason}" in capsys.readouterr().out.splitlines()
    assert len(started) == 1
    for path, text in contents(made).items():
        if path.name != "provenance.json":
            assert (root / path).read_bytes() == text
    assert load_sweep(root).whole_notes == ()


@pytest.mark.parametrize("harm", HARMS)
def test_reading_names_a_damaged_run_and_leaves_it_out(root, harm):
    harmful, reason = HARMS[harm]
    harmful(of(root, "rps=4"), of(root, "rps=8"))
    found = load_sweep(root)
    assert [run.config["rps"] for run in found] == [2, 8]
    (note,) = found.whole_notes
    assert note.startswith("left out: ")
    name = reason.split()[0]
    assert name in note
    assert of(root, "rps=4").name in note
    with pytest.raises(SpecsimError, match=name):
        load_run(of(root, "rps=4"))


def test_other_code_of_specsim_makes_all_runs_again(root, capsys, started, monkeypatch):
    monkeypatch.setattr("specsim.runs.provenance.package_sha256", lambda: "0" * 64)
    assert main([*SWEEP, f"out={root}"]) == 0
    assert "note: 3 runs made again: specsim's own code has changed" in capsys.readouterr().out.splitlines()
    assert len(started) == 3
    assert main([*SWEEP, f"out={root}"]) == 0
    assert len(started) == 3


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Write a scheduler of one's own, with a helper module beside it where one is named."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_policy.yaml").write_text(YAML)

    def write(size, imports=""):
        (tmp_path / "my_policy.py").write_text(PLUGIN.format(size=size, imports=imports))

    yield write
    for name in ("my_policy", "my_sizes"):
        sys.modules.pop(name, None)


MINE = ["run", "-m", "rps=20,40", "scheduler=./my_policy.yaml", "plugins=[my_policy.py]", *WORDS, "out=all"]


def test_an_edited_plug_in_is_not_read_back_from_an_old_run(plugin, capsys, started):
    plugin(1)
    assert main(MINE) == 0
    before = load_sweep("all").table["slo_attainment"].tolist()
    plugin(64)
    assert main(MINE) == 0
    assert "note: 2 runs made again: plug-in my_policy has changed" in capsys.readouterr().out.splitlines()
    assert len(started) == 4
    assert load_sweep("all").table["slo_attainment"].tolist() != before
    assert main(MINE) == 0
    assert len(started) == 4
    assert "made again" not in capsys.readouterr().out


@pytest.mark.slow
def test_an_edited_module_that_a_plug_in_imports_counts_in_a_new_process(plugin, tmp_path):
    plugin("SIZE", "from my_sizes import SIZE")
    for size, again in ((1, ""), (64, "note: 2 runs made again: plug-in my_policy has changed")):
        (tmp_path / "my_sizes.py").write_text(f"SIZE = {size}\n")
        done = subprocess.run(
            [sys.executable, "-m", "specsim", *MINE],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert again in done.stdout.splitlines() or not again
