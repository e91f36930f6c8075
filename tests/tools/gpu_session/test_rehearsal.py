"""A whole session on the CPU, cut twice, and gone on with elsewhere from its archive."""

import os
import signal
import subprocess
import sys
import time
import zipfile
from collections import Counter
from pathlib import Path

import pytest
import yaml

pytest.importorskip("torch")

from profiler.latency.samples import read_samples
from tools.gpu_session.checks import CHECKS
from tools.gpu_session.state import STAGES, read_state

pytestmark = pytest.mark.torch
GRID = "requests: [1, 2]\ncontexts: [16, 64]\nchunks: [8, 32]\nseconds: 0.001\nrepeats: 2\n"
VLLM = """
import time
class SamplingParams:
    def __init__(self, **settings): pass
class LLM:
    def __init__(self, **settings): pass
    def generate(self, prompts, settings, use_tqdm): time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("rehearsal")
    (made / "vllm.py").write_text(VLLM)
    (made / "grid.yaml").write_text(GRID)
    grid = {"device": "cpu", "grid": str(made / "grid.yaml")}
    one = {"name": "one", "random_weights": ["tiny-llama", "tiny-llama"], **grid}
    two = {"name": "two", "random_weights": ["tiny-llama", "tiny-llama-skip1"], **grid}
    (made / "pairs.yaml").write_text(yaml.safe_dump({"pairs": [one, two]}))
    return made


def begin(folder, state, *words):
    paths = os.pathsep.join([str(Path(__file__).parents[3]), str(folder)])
    command = [sys.executable, "-m", "tools.gpu_session", str(folder / "pairs.yaml"), "--quick"]
    command += ["--state", str(state), "--archive", f"{state}.zip", *words]
    more = {"cwd": folder, "env": {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}, "text": True}
    return subprocess.Popen(command, **more, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finish(process):
    told, _ = process.communicate(timeout=600)
    assert process.returncode in (0, 4), told
    return told


def points(state):
    """Return the names of all that a session measured: samples, and rows of checks, engine and drift."""
    samples = [(path.name, each) for path in state.glob("*.parquet") for each in read_samples(path)[1]]
    rows = [each for each in read_state(state).rows() if each.quantity not in ("begun", "ended", "farthest ratio")]
    names = {(name, *each.name, each.status == "ok") for name, each in samples}
    return names | {(each.check, each.case, each.quantity) for each in rows}


def cut(folder, state, seen, number, *words):
    """Begin a session, send it a signal once it has said this; return the exit code."""
    with begin(folder, state, *words) as process:
        while seen not in (line := process.stdout.readline()):
            assert line, f"{seen} was not reached"
        process.send_signal(number)
        process.wait(60)
    time.sleep(0.5)
    return process.returncode


@pytest.mark.slow
def test_a_session_that_is_cut_goes_on_elsewhere_and_measures_every_pair_and_all_checks_once(folder):
    ended, killed, there = (folder / name for name in ("ended", "killed", "there"))
    assert cut(folder, ended, "1 of 26 points", signal.SIGTERM) == 128 + signal.SIGTERM
    assert read_state(ended).done == ["check"]
    assert cut(folder, killed, "1 of 20 points", signal.SIGKILL, "--resume", f"{ended}.zip") == -signal.SIGKILL
    assert "rest" not in read_state(killed).done
    told = finish(begin(folder, there, "--resume", f"{killed}.zip"))
    assert all(f"{each}: done before" in told for each in ("check", "sweep", "engine"))
    assert "rest: done" in told
    with zipfile.ZipFile(folder / "there.zip") as packed:
        assert {"one-quick.yaml", "two-quick.yaml", "rows.jsonl", "session.log"} <= set(packed.namelist())
    measured = points(there)
    counted = Counter(each[0] for each in measured)
    assert counted.keys() >= {"two-quick.samples.parquet", "drift", *CHECKS} - {"flex"}, "which a GPU alone compiles"
    assert "failed" not in {each[2] for each in measured}
    told = {"one-quick.samples.parquet": 26, "one-quick.again.samples.parquet": 20, "two-quick.samples.parquet": 26}
    told |= {"engine alone": 10, "engine drafting": 9, "drift": 1, "attention_errors": 25, "attention_seconds": 25}
    told |= {"clocks": 6, "compiles": 3, "experts": 7, "head": 1, "layers": 6}
    told |= {"peaks": 2, "small_kernels": 5, "spin": 1}
    assert (counted, read_state(there).done) == (told, list(STAGES))
    names = [sample.name for path in there.glob("one-quick.s*.parquet") for sample in read_samples(path)[1]]
    assert len(names) == len(set(names))
