"""docs/your-scheduler.md, run as it stands: as a plugin, from Python, and as an installed package."""

import os
import re
import shlex
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from textwrap import dedent

import pytest

from specsim import load_run, simulate
from specsim.cli import main
from specsim.registry import plugins
from specsim.registry.plugins import installed
from tests.files import block, package, page

PAGE = page("your-scheduler")
POLICY = block(PAGE, "python", "class ShortestFirst")


def run(commands, folder):
    """Run lines of `specsim ...` in this process, in a folder, with fewer requests."""
    with chdir(folder):
        for line in re.sub(r"requests=[12]00", "requests=40", commands).splitlines():
            program, *words = shlex.split(line)
            assert (program, main(words)) == ("specsim", 0), line


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Write the two files of the page, and run its first commands."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "shortest_first.py").write_text(POLICY)
    (folder / "shortest_first.yaml").write_text(block(PAGE, "yaml", "_target_"))
    run(block(PAGE, "sh", "shortest_first.yaml"), folder)
    return folder


def test_as_a_plugin_every_request_ends(written):
    three = list(filter(Path.is_dir, (written / "three").iterdir()))
    assert len(three) == 3
    for folder in (written / "one", *three):
        metrics = load_run(folder).metrics
        assert metrics["completed"] == metrics["specsim"]["arrived"] == 40


def test_the_shortest_of_those_who_wait_goes_first(written, tmp_path):
    rows = [(0.0, 500)] + [(0.001 * (i + 1), tokens) for i, tokens in enumerate((300, 100, 200))]
    lines = [f"{at},{prompt},8" for at, prompt in rows]
    (tmp_path / "mine.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]) + "\n")
    words = "'plugins=[./shortest_first.py]' scheduler=./shortest_first.yaml scheduler.max_num_seqs=1"
    run(f"specsim run {words} trace={tmp_path}/mine.csv out={tmp_path}/run", written)
    first_token_s = load_run(tmp_path / "run").requests["first_token_s"]
    assert first_token_s.sort_values().index.tolist() == [0, 2, 3, 1]


@pytest.mark.usefixtures("no_highest_rate")
def test_a_policy_of_parts_drafts_as_far_as_a_requests_own_drafts_are_right(here, capsys):
    Path("as_accepted.py").write_text(block(PAGE, "python", "class AsAccepted"))
    lines = PAGE.partition("Its `as_accepted.yaml`")[2].splitlines()
    Path("as_accepted.yaml").write_text(dedent("\n".join(line for line in lines if line.startswith("    "))))
    found = simulate("./as_accepted.yaml", "poisson", plugins=["./as_accepted.py"], requests=60)
    assert found.config["scheduler"]["num_speculative_tokens"] == 6
    length = found.requests["draft_tokens"] / found.requests["speculations"]
    assert length.between(1, 6).all()
    right = found.requests["accepted_tokens"] / found.requests["draft_tokens"]
    assert length.corr(right) > 0.5
    run(block(PAGE, "sh", "as_accepted.yaml"), here)
    said = capsys.readouterr().out
    assert re.search(r"points against (vllm_spec|\./as_accepted.yaml) ", said), said


def test_from_python(written, monkeypatch, capsys):
    monkeypatch.chdir(written)
    exec(compile(block(PAGE, "python", "simulate(").replace("requests=100", "requests=40"), "page", "exec"), {})
    attainment = load_run(written / "one").metrics["specsim"]["slo_attainment"]
    assert float(capsys.readouterr().out) == attainment


@pytest.mark.slow
def test_as_an_installed_package(written, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "shortest_first.py").write_text(POLICY)
    package(tmp_path / "site", "shortest_first", block(PAGE, "toml", "entry-points"))
    commands = block(PAGE, "sh", "specsim list schedulers").replace("requests=100", "requests=40")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "SPECSIM_DATA": "", "PYTHONPATH": str(tmp_path / "site")}
    bash = ["bash", "-euc", commands]
    done = subprocess.run(bash, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^shortest_first +installed by shortest_first$", done.stdout, re.MULTILINE)
    mine, plugin = load_run(tmp_path / "installed"), load_run(written / "one")
    assert mine.metrics == plugin.metrics
    assert mine.config["scheduler"]["num_speculative_tokens"] == 2


def test_a_broken_package_of_somebody_else_is_told_only_when_it_is_chosen(here, monkeypatch, capsys, refused):
    package(here, "broken", "[project.entry-points.'specsim.schedulers']\nbroken = 'no_such_module_at_all:Mine'")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(here)
        installed.cache_clear()
        assert main(["run", "scheduler=fcfs", "trace=poisson", "requests=3", "out=fine"]) == 0
        assert capsys.readouterr().err == ""
        assert "no_such_module_at_all" in refused("run", "scheduler=broken", "trace=poisson", "requests=3", "out=here")
    installed.cache_clear()


def test_a_plug_in_is_read_from_its_text_never_from_bytecode(tmp_path, monkeypatch):
    """Two texts of one size in one second: Python itself would take the first one's bytecode for the second."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "shortest_first.py"
    for size in ("min", "max"):
        file.write_text(POLICY.replace("max(self.max_num_seqs", f"{size}(self.max_num_seqs"))
        os.utime(file, (1e9, 1e9))
        module = plugins._module_of_file(file)
        assert f"{size}(self.max_num_seqs" in file.read_text()
        assert size in module.ShortestFirst._admitted.__code__.co_names
