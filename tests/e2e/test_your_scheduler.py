"""A scheduler, a trace, an acceptance and a drafter of one's own, as their pages show them: by path and installed."""

import os
import re
import shlex
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from textwrap import dedent

import pytest

from specsim import load_run, registry, simulate
from specsim.cli import main
from specsim.registry import ENTRY_POINTS, installed
from tests.files import block, package, page
from tests.made import refusal

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
        assert (metrics["completed"], metrics["failed"], metrics["specsim"]["arrived"]) == (40, 0, 40)


def test_the_shortest_of_those_who_wait_goes_first(written, tmp_path):
    rows = [(0.0, 500)] + [(0.001 * (i + 1), tokens) for i, tokens in enumerate((300, 100, 200))]
    lines = [f"{at},{prompt},8" for at, prompt in rows]
    (tmp_path / "mine.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]) + "\n")
    words = "'plugins=[./shortest_first.py]' scheduler=./shortest_first.yaml scheduler.max_num_seqs=1"
    run(f"specsim run {words} trace={tmp_path}/mine.csv out={tmp_path}/run", written)
    first_token_s = load_run(tmp_path / "run").requests["first_token_s"]
    assert first_token_s.sort_values().index.tolist() == [0, 2, 3, 1]


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
    assert re.search(r"points against (vllm_spec|as_accepted) ", said), said


def test_from_python(written, monkeypatch, capsys):
    monkeypatch.chdir(written)
    exec(compile(block(PAGE, "python", "simulate(").replace("requests=100", "requests=40"), "page", "exec"), {})
    assert float(capsys.readouterr().out) == load_run(written / "one").metrics["specsim"]["slo_attainment"]


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
    assert (mine.metrics, mine.config["scheduler"]["num_speculative_tokens"]) == (plugin.metrics, 2)


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
        module = registry.load_plugins([str(file)])["shortest_first"]
        assert f"{size}(self.max_num_seqs" in file.read_text()
        assert size in module.ShortestFirst._admitted.__code__.co_names


PAGES = {"trace": "your-trace", "acceptance": "your-acceptance", "drafter": "drafters"}
MODULES = {"trace": "log_lines", "acceptance": "two_kinds", "drafter": "remote"}
LOG = "# seconds prompt output\n12.0 812 64\n12.4 2310 180\n13.1 95 210\n"
SMALL = {"scheduler": "vllm_spec", "profile": "llama8b_1b_h100"}


def block_of(group, kind, holding):
    """Return the block of a group's own section that holds a text."""
    section = re.split(r"^#+ A kind of .*your own$", page(PAGES[group]), maxsplit=1, flags=re.MULTILINE)[1]
    return block(section, kind, holding)


@pytest.fixture
def parts(here):
    """Write the three modules and their files, and go there."""
    for group, module in MODULES.items():
        (here / f"{module}.py").write_text(block_of(group, "python", "class"))
        (here / f"{group}.yaml").write_text(block_of(group, "yaml", "_target_"))
    (here / "served.log").write_text(LOG)
    return here


def own(**more):
    """Return the settings of a run whose trace, acceptance and drafter are all one's own."""
    chosen = {group: f"./{group}.yaml" for group in PAGES}
    return {**SMALL, **chosen, "plugins": [f"./{module}.py" for module in MODULES.values()], **more}


def test_a_limit_a_rate_and_a_window_hold_of_ones_own_trace(parts):
    plain = {"acceptance": "bernoulli", "drafter": "separate", "plugins": ["./log_lines.py"]}
    assert len(simulate(**own(**plain, requests=2)).requests) == 2
    assert simulate(**own(**plain, rps=4)).requests["arrival_s"].max() == pytest.approx(2 / 4)
    text = (parts / "trace.yaml").read_text()
    (parts / "trace.yaml").write_text(f"{text}window: [0.2, 9]\n")
    assert simulate(**own(**plain)).requests["prompt_tokens"].tolist() == [2310, 95]
    (parts / "trace.yaml").write_text(f"{text}resample: 0.5\n")
    varies = simulate(**own(**plain, requests=3)).provenance["varies_with_seed"]
    assert varies == ["arrivals", "lengths", "classes", "acceptance"]


BEYOND = 'type("Beyond", (), dict.fromkeys(("rows", "text_rows"), lambda _, ids, *more: np.arange(len(ids)) + 9000))()'
MISTAKES = [
    ("trace", "trace.yaml", "skip_lines: 1", "skip_line: 1", "unknown key 'skip_line'; did you mean 'skip_lines'?"),
    ("trace", "log_lines.py", "def read(", "def reads(", "has no read; expected all that TraceReader names"),
    ("trace", "log_lines.py", "return trace_of(columns, self.path.name)", "return columns", "expected a Trace"),
    ("acceptance", "two_kinds.py", "confidence[:, None]", "confidence[:, None] * [0.1, 0.2]", "confidences that rise"),
    ("acceptance", "two_kinds.py", "confidence, 0, 1)", "confidence, 0, 3)", "has a rank that is not between 0 and 1"),
    ("acceptance", "two_kinds.py", "Pools(start, start, ROWS)", BEYOND, "its layout's rows are not between 0 and 8191"),
    ("acceptance", "two_kinds.py", "return AcceptanceTrace(", "return (", "expected an AcceptanceTrace"),
    ("acceptance", "two_kinds.py", "(start, start,", "(start, start[1:],", "off_start is of 2 requests; expected 3"),
    ("acceptance", "two_kinds.py", "Pools(start,", "Pools(start * 1.0,", "layout's start: (3,) of float64; expected"),
    ("acceptance", "two_kinds.py", "start, ROWS)", "start, 6)", "Pools: pool_rows=6; expected a power of two"),
    ("acceptance", "two_kinds.py", "confidence[:, None]", "confidence[:, None] * [1, 1]", "that add up to more than 1"),
    ("drafter", "remote.py", "return ModelLatency(", "return dict(", "expected a ModelLatency"),
]


@pytest.mark.parametrize(("group", "file", "old", "new", "said"), MISTAKES, ids=[each[4] for each in MISTAKES])
def test_a_mistake_is_one_line_that_names_the_choice(parts, group, file, old, new, said):
    text = (parts / file).read_text()
    assert old in text
    (parts / file).write_text(text.replace(old, new))
    told = refusal(simulate, **own())
    assert re.match(rf"(scheduler Composed at [\d.]+ s: )?{group}=\./{group}\.yaml: ", told)
    assert said in told


@pytest.mark.parametrize(("factor", "said"), [("-1", "-0.0019"), ("float('nan')", "nan")])
def test_a_drafter_whose_pass_takes_no_possible_time_is_one_line_and_exit_code_2(parts, refused, factor, said):
    text = (parts / "remote.py").read_text()
    (parts / "remote.py").write_text(text.replace("delta_s=", f"delta_s={factor} * "))
    words = ["plugins=[./remote.py]", "drafter=./drafter.yaml", "acceptance=bernoulli", "+scheduler=vllm_spec"]
    told = refused("run", *words, "trace=poisson", "requests=5")
    assert "drafter=./drafter.yaml: a pass of 'remote drafter' takes " + said in told


def test_as_installed_packages(parts):
    for group in PAGES:
        points = block_of(group, "toml", "entry-points")
        assert ENTRY_POINTS[group] in points
        package(parts, group, points)
    folder = parts / "elsewhere"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(parts), *filter(None, sys.path)])}
    folder.mkdir()
    words = [f"{group}={module}" for group, module in MODULES.items()]
    more = [f"acceptance.{key}={value}" for key, value in {"easy": 0.9, "hard": 0.4, "easy_share": 0.5}.items()]
    words = ["run", "scheduler=vllm_spec", "profile=llama8b_1b_h100", *words, *more, "out=run"]
    words += ["trace.path=../served.log", "trace.skip_lines=1", "drafter.round_trip_s=2e-3"]
    code = f"from specsim.cli import main; assert main({words}) == 0 == main(['list'])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"installed by {module}" in done.stdout for module in MODULES.values())
    assert load_run(folder / "run").metrics == simulate(**own()).metrics
