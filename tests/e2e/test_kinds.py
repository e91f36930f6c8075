"""A trace, an acceptance and a drafter of one's own, as their pages show them: installed, typed, and when they fail."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from specsim import load_run, simulate
from specsim.registry.plugins import ENTRY_POINTS
from tests.files import block, package, page
from tests.made import refusal

PAGES = {"trace": "your-trace", "acceptance": "your-acceptance", "drafter": "drafters"}
MODULES = {"trace": "log_lines", "acceptance": "two_kinds", "drafter": "remote"}
LOG = "# seconds prompt output\n12.0 812 64\n12.4 2310 180\n13.1 95 210\n"
SMALL = {"scheduler": "vllm_spec", "profile": "llama8b_1b_h100"}


def block_of(group, kind, holding):
    """Return the block of a group's own section that holds a text."""
    section = re.split(r"^#+ A kind of .*your own$", page(PAGES[group]), maxsplit=1, flags=re.MULTILINE)[1]
    return block(section, kind, holding)


@pytest.fixture
def written(here):
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


def test_a_limit_a_rate_and_a_window_hold_of_ones_own_trace(written):
    plain = {"acceptance": "bernoulli", "drafter": "separate", "plugins": ["./log_lines.py"]}
    assert len(simulate(**own(**plain, requests=2)).requests) == 2
    assert simulate(**own(**plain, rps=4)).requests["arrival_s"].max() == pytest.approx(2 / 4)
    text = (written / "trace.yaml").read_text()
    (written / "trace.yaml").write_text(f"{text}window: [0.2, 9]\n")
    assert simulate(**own(**plain)).requests["prompt_tokens"].tolist() == [2310, 95]
    (written / "trace.yaml").write_text(f"{text}resample: 0.5\n")
    varies = simulate(**own(**plain, requests=3)).provenance["varies_with_seed"]
    assert varies == ["arrivals", "lengths", "classes", "acceptance"]


MISTAKES = [
    ("trace", "trace.yaml", "skip_lines: 1", "skip_line: 1", "unknown key 'skip_line'; did you mean 'skip_lines'?"),
    ("trace", "log_lines.py", "def read(", "def reads(", "has no read; expected all that TraceReader names"),
    ("trace", "log_lines.py", "return trace_of(columns, self.path.name)", "return columns", "expected a Trace"),
    ("drafter", "remote.py", "return ModelLatency(", "return dict(", "expected a ModelLatency"),
]


@pytest.mark.parametrize(("group", "file", "old", "new", "said"), MISTAKES, ids=[each[4] for each in MISTAKES])
def test_a_mistake_is_one_line_that_names_the_choice(written, group, file, old, new, said):
    text = (written / file).read_text()
    assert old in text
    (written / file).write_text(text.replace(old, new))
    told = refusal(simulate, **own())
    assert told.startswith(f"{group}=./{group}.yaml: ")
    assert said in told


@pytest.mark.parametrize(("factor", "said"), [("-1", "-0.0019"), ("float('nan')", "nan")])
def test_a_drafter_whose_pass_takes_no_possible_time_is_one_line_and_exit_code_2(written, refused, factor, said):
    text = (written / "remote.py").read_text()
    (written / "remote.py").write_text(text.replace("delta_s=", f"delta_s={factor} * "))
    words = ["plugins=[./remote.py]", "drafter=./drafter.yaml", "acceptance=bernoulli", "+scheduler=vllm_spec"]
    told = refused("run", *words, "trace=poisson", "requests=5")
    assert "drafter=./drafter.yaml: a pass of 'remote drafter' takes " + said in told


def test_as_installed_packages(written):
    for group in PAGES:
        points = block_of(group, "toml", "entry-points")
        assert ENTRY_POINTS[group] in points
        package(written, group, points)
    folder = written / "elsewhere"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(written), *filter(None, sys.path)])}
    folder.mkdir()
    words = [f"{group}={module}" for group, module in MODULES.items()]
    keys = {"easy": 0.9, "hard": 0.4, "easy_share": 0.5}
    more = [f"acceptance.{key}={value}" for key, value in keys.items()]
    words = ["run", "scheduler=vllm_spec", "profile=llama8b_1b_h100", *words, *more, "out=run"]
    words += ["trace.path=../served.log", "trace.skip_lines=1", "drafter.round_trip_s=2e-3"]
    code = f"from specsim.cli import main; assert main({words}) == 0 == main(['list'])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"installed by {module}" in done.stdout for module in MODULES.values())
    assert load_run(folder / "run").metrics == simulate(**own()).metrics


TRACE_MODULE = """\
import numpy as np

from specsim.plugin import AcceptanceTrace, stream_keys


class Mine:
    evidence, sha256 = "assumed", None

    def acceptance_trace(self, category, slo_class, rows, seed):
        confidence = np.tile([0.6, 0.3], (8, 1))
        rank = np.zeros(8, dtype=np.int64)
        keys = stream_keys(seed, "text", rows)
        layout = Mine()
        {edit}
        return AcceptanceTrace(confidence, rank, layout, keys)

    def rows(self, requests, keys, hashed, on, depth):
        return (hashed % np.uint64(8)).astype(np.int64)

    def text_rows(self, requests, depth=0):
        return np.arange(8)
"""
TRACES = {
    "confidence[3] = 0.3, 0.6": "row 3 of its acceptance trace has confidences that rise",
    "rank[2] = 3": "row 2 of its acceptance trace has a rank that is not between 0 and 2",
    "Mine.rows = lambda *a: np.arange(len(a[1])) + 8": "its layout's rows are not between 0 and 7",
}


@pytest.mark.parametrize(("edit", "said"), TRACES.items())
@pytest.mark.usefixtures("here")
def test_an_acceptance_trace_that_is_none_is_one_line(edit, said):
    Path("trace_of_mine.py").write_text(TRACE_MODULE.replace("{edit}", edit))
    Path("mine.yaml").write_text("_target_: trace_of_mine.Mine\n")
    given = {**SMALL, "trace": "poisson", "requests": 5, "acceptance": "./mine.yaml", "plugins": ["./trace_of_mine.py"]}
    assert said in refusal(simulate, **given)
