"""An extra that is there but broken: one line, from every command that needs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from profiler.compose import library
from profiler.models import loading as models

COMMANDS = {
    "latency": ["--random-weights", "tiny-llama", "tiny-llama", "--out", "x.yaml"],
    "acceptance": ["--target", ".", "--prompts", "p.jsonl", "--drafter", "lookup", "--out", "x.parquet"],
}


def python_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder whose modules stand before those that are installed."""
    paths = os.pathsep.join([str(folder), str(Path(__file__).parents[2])])
    more = {"cwd": folder, "env": {**os.environ, "PYTHONPATH": paths}}
    return subprocess.run([sys.executable, *words], **more, capture_output=True, text=True, check=False)


def test_torch_that_cannot_be_imported(tmp_path):
    for package, text in {"torch": "raise OSError('libtorch.so: no such\\nfile')", "transformers": ""}.items():
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(text)
    (tmp_path / "p.jsonl").write_text('{"category": "a", "prompt": "b"}\n')
    words = [["profile", name, *more] for name, more in COMMANDS.items()]
    done = python_in(tmp_path, "-c", f"from specsim.cli import main; print(*(main(each) for each in {words}))")
    assert done.stdout == "2 2\n", done.stderr
    said = "needs torch, which is here but cannot be imported (libtorch.so: no such file): pip install"
    assert [said in line for line in done.stderr.splitlines()] == [True, True]


def test_compose_without_its_library(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    library.sdk.cache_clear()
    (told,) = refused(
        "profile", "compose", "--target", "Llama-3.1-8B", "--gpu", "h100_sxm", "--out", "m.yaml"
    ).splitlines()
    assert told.endswith('pip install "specsim[compose]"')


@pytest.mark.torch
def test_tests_without_torch_are_collected_where_there_is_none(tmp_path):
    """`make test` installs no torch: the profiler's tests are imported without. There the suite itself shows that."""
    pytest.importorskip("torch")
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('not on this machine', name='torch')")
    words = ["-p", "no:cacheprovider", "--collect-only", "-m"]
    done = python_in(tmp_path, "-m", "pytest", *words, "not slow and not torch", str(Path(__file__).parent))
    assert done.returncode == 0, done.stdout


@pytest.mark.torch
def test_what_is_needed_once_all_is_measured_is_asked_for_before(refused, monkeypatch):
    """A checkout brings no packages: one that writes, fits or draws must not be missed after minutes on a GPU."""
    pytest.importorskip("torch")
    here = models.find_spec
    gone = ("pyarrow", "yaml")
    monkeypatch.setattr(models, "find_spec", lambda name: None if name in gone else here(name))
    said = refused("profile", "latency", *COMMANDS["latency"], "--device", "cpu")
    assert said == "specsim: specsim profile needs pyarrow, pyyaml: pip install pyarrow pyyaml\n"


@pytest.mark.torch
@pytest.mark.slow
def test_a_checkout_holds_a_session_without_what_only_simulating_needs(tmp_path):
    """On a borrowed GPU there is torch and transformers, and what it takes to keep samples."""
    pytest.importorskip("torch")
    for package in ("hydra", "omegaconf", "simpy", "pandas", "numba", "joblib"):
        (tmp_path / f"{package}.py").write_text("raise ImportError('not on this machine')")
    pair = "{name: one, random_weights: [tiny-llama, tiny-llama], device: cpu}"
    (tmp_path / "pairs.yaml").write_text(f"pairs:\n  - {pair}\n")
    words = "./pairs.yaml --quick --stages sweep --limits sweep=0 --state state"
    done = python_in(tmp_path, "-m", "tools.gpu_session", *words.split())
    assert (done.returncode, done.stderr) == (3, "")
    assert (tmp_path / "state" / "one-quick.samples.parquet").is_file()
