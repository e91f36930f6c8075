"""docs/your-scheduler.md, run as it stands: as a plugin, from Python, and as an installed package."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import chdir
from pathlib import Path
from textwrap import dedent

import pytest

from specsim import load_run, simulate
from specsim.cli import main
from specsim.registry import plugins
from specsim.registry.plugins import installed as installed_packages

PAGE = Path(__file__).parents[2] / "docs" / "your-scheduler.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def block(kind, holding):
    (found,) = [text for name, text in BLOCKS if name == kind and holding in text]
    return found


def shell(commands, cwd, **variables):
    environment = {key: value for key, value in os.environ.items() if key != "SPECSIM_DATA"} | variables
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", commands], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


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
    (folder / "shortest_first.py").write_text(block("python", "class ShortestFirst"))
    (folder / "shortest_first.yaml").write_text(block("yaml", "_target_"))
    run(block("sh", "shortest_first.yaml"), folder)
    return folder


@pytest.fixture
def on_path(monkeypatch):
    """Return a function that puts a folder of installed packages on this process's path, until the test ends."""

    def put(folder):
        monkeypatch.delitem(sys.modules, "shortest_first", raising=False)
        monkeypatch.syspath_prepend(folder)
        installed_packages.cache_clear()

    yield put
    sys.modules.pop("shortest_first", None)
    monkeypatch.undo()
    installed_packages.cache_clear()


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Lay out what pip would: the module and its dist-info, on the path."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "shortest_first.py").write_text(block("python", "class ShortestFirst"))
    points = tomllib.loads(block("toml", "entry-points"))["project"]["entry-points"]
    info = folder / "shortest_first-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shortest-first\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "".join(f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in each.items()) for group, each in points.items())
    )
    return folder


def test_as_a_plugin_every_request_ends(written):
    for folder in (written / "one", *filter(Path.is_dir, (written / "three").iterdir())):
        metrics = load_run(folder).metrics
        assert metrics["completed"] + metrics["failed"] == metrics["specsim"]["arrived"] == 40
        assert metrics["completed"] == 40
    assert len(list(filter(Path.is_dir, (written / "three").iterdir()))) == 3


def test_the_shortest_of_those_who_wait_goes_first(written, tmp_path):
    rows = [(0.0, 500)] + [(0.001 * (i + 1), tokens) for i, tokens in enumerate((300, 100, 200))]
    lines = [f"{at},{prompt},8" for at, prompt in rows]
    (tmp_path / "mine.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]) + "\n")
    words = "'plugins=[./shortest_first.py]' scheduler=./shortest_first.yaml scheduler.max_num_seqs=1"
    run(f"specsim run {words} trace={tmp_path}/mine.csv out={tmp_path}/run", written)
    first_token_s = load_run(tmp_path / "run").requests["first_token_s"]
    assert first_token_s.sort_values().index.tolist() == [0, 2, 3, 1]


@pytest.mark.usefixtures("no_highest_rate")
def test_a_policy_of_parts_drafts_as_far_as_a_requests_own_drafts_are_right(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("as_accepted.py").write_text(block("python", "class AsAccepted"))
    page = PAGE.read_text(encoding="utf-8").partition("Its `as_accepted.yaml`")[2].splitlines()
    Path("as_accepted.yaml").write_text(dedent("\n".join(line for line in page if line.startswith("    "))))
    found = simulate("./as_accepted.yaml", "poisson", plugins=["./as_accepted.py"], requests=60)
    assert found.config["scheduler"]["num_speculative_tokens"] == 6
    length = found.requests["draft_tokens"] / found.requests["speculations"]
    assert length.between(1, 6).all()
    right = found.requests["accepted_tokens"] / found.requests["draft_tokens"]
    assert length.corr(right) > 0.5
    run(block("sh", "as_accepted.yaml"), tmp_path)
    said = capsys.readouterr().out
    assert re.search(r"points against (vllm_spec|\./as_accepted.yaml) ", said), said


def test_from_python(written, monkeypatch, capsys):
    monkeypatch.chdir(written)
    exec(compile(block("python", "simulate(").replace("requests=100", "requests=40"), "page", "exec"), {})
    attainment = load_run(written / "one").metrics["specsim"]["slo_attainment"]
    assert float(capsys.readouterr().out) == attainment


@pytest.mark.slow
def test_as_an_installed_package(installed, written, tmp_path):
    commands = block("sh", "specsim list schedulers").replace("requests=100", "requests=40")
    said = shell(commands, tmp_path, PYTHONPATH=str(installed))
    assert re.search(r"^shortest_first +installed by shortest_first$", said, re.MULTILINE)
    mine, plugin = load_run(tmp_path / "installed"), load_run(written / "one")
    assert mine.metrics == plugin.metrics
    assert mine.config["scheduler"]["num_speculative_tokens"] == 2


def test_a_broken_package_of_somebody_else_is_told_only_when_it_is_chosen(on_path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[specsim.schedulers]\nbroken = no_such_module_at_all:Mine\n")
    on_path(tmp_path)
    assert main(["run", "scheduler=fcfs", "trace=poisson", "requests=3", "out=fine"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["run", "scheduler=broken", "trace=poisson", "requests=3", "out=here"]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) <= 2
    assert "no_such_module_at_all" in said


def test_a_plug_in_is_read_from_its_text_never_from_bytecode(written, tmp_path, monkeypatch):
    """Two texts of one size in one second: Python itself would take the first one's bytecode for the second."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "shortest_first.py"
    text = (written / "shortest_first.py").read_text()
    for size in ("min", "max"):
        file.write_text(text.replace("max(self.max_num_seqs", f"{size}(self.max_num_seqs"))
        os.utime(file, (1e9, 1e9))
        module = plugins._module_of_file(file)
        assert f"{size}(self.max_num_seqs" in file.read_text()
        assert (size in module.ShortestFirst._admitted.__code__.co_names) is True
