"""`--executor`: Ray, Dask and Slurm make the runs that processes here make, byte for byte."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from specsim import SpecsimError, sweep
from specsim.cli import main
from specsim.runs import executors
from specsim.runs.executors import NEEDS, on_workers

WORDS = ["run", "-m", "scheduler=continuous,vllm_spec", "rps=1,2", "seed=0,1", "trace=poisson", "requests=12"]
SBATCH = """#!/bin/sh
if [ -n "$REFUSED" ]; then echo "sbatch: error: $REFUSED" >&2; exit 1; fi
if [ "$1" = --test-only ]; then cat > /dev/null; exit 0; fi
cp "$1" "$0.$$"
setsid sh "$0.$$" > /dev/null 2>&1 < /dev/null &
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/sh
kill -- "-$1" 2> /dev/null || true
"""


def needed(executor: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(NEEDS[executor]) is None, reason=f"needs specsim[{executor}]")


EXECUTORS = [pytest.param(name, marks=needed(name)) for name in ("ray", "dask", "slurm")]


def files(root: Path) -> dict[str, bytes]:
    found = (path for path in root.rglob("*") if path.is_file() and path.name != "provenance.json")
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


@pytest.fixture(autouse=True)
def _slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a stand-in for Slurm on the path: a job is a process of this host."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)


def started(words: list[str], folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run specsim in a process of its own."""
    paths = [Path(executors.__file__).parents[2], *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), **env}
    command = [sys.executable, "-m", "specsim", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what stands on stderr beside the line of a sweep that takes long."""
    return [line for line in done.stderr.splitlines() if " runs done, " not in line]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("executors") / "here"
    assert main([*WORDS, "--keep", "summary", f"out={root}"]) == 0
    return root


@pytest.mark.parametrize("executor", EXECUTORS)
def test_every_executor_makes_the_same_bytes(whole: Path, tmp_path: Path, executor: str) -> None:
    jobs = "1" if executor == "ray" else "2"  # Workers of Ray start slowly, and those that die below are two.
    done = started([*WORDS, "--keep", "summary", "--jobs", jobs, "--executor", executor, "out=here"], tmp_path)
    assert (done.returncode, said(done)) == (0, [])
    assert files(tmp_path / "here") == files(whole)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Yield a client of a cluster that runs already."""
    distributed = pytest.importorskip("distributed")
    with distributed.Client(n_workers=1, threads_per_worker=2, dashboard_address=executors.ANY_PORT) as client:
        yield client


def test_workers_of_a_cluster_are_left_as_they_were(whole: Path, tmp_path: Path, cluster: Any) -> None:
    """They outlive the sweep: they hear Ctrl-C, stay in their own folder, and do not end with the one that asked."""
    before = cluster.run(_state)
    words = [*WORDS, "--keep", "summary", "--executor", "dask", "out=here"]
    done = started(words, tmp_path, DASK_SCHEDULER_ADDRESS=cluster.scheduler.address)
    assert (done.returncode, said(done)) == (0, [])
    assert files(tmp_path / "here") == files(whole)
    time.sleep(2)
    assert cluster.run(_state) == before


def _state() -> tuple[int, str, bool]:
    return os.getpid(), str(Path.cwd()), signal.getsignal(signal.SIGINT) is signal.SIG_IGN


LIVE = ["local", *(pytest.param(name, marks=needed(name)) for name in ("dask", "ray"))]


@pytest.fixture
def found_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers of Ray find this module."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


@pytest.mark.parametrize("executor", LIVE[:2])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_a_killed_worker_had_is_done_by_another(executor: str, tmp_path: Path) -> None:
    found = dict(on_workers(_die_once, [str(tmp_path)] * 6, _lost, 2, executor))
    assert found == dict.fromkeys(range(6), "done")
    assert (tmp_path / "died").exists()


def _die_once(folder: str) -> str:
    try:
        Path(folder, "died").touch(exist_ok=False)
    except FileExistsError:
        return "done"
    os.kill(os.getpid(), signal.SIGKILL)
    return "not here"


@pytest.mark.usefixtures("found_there")
@pytest.mark.parametrize("executor", LIVE)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_kills_its_worker_is_lost_and_nothing_else(executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if executor == "dask":
        # Not three workers more: each takes a second to start.
        config = pytest.importorskip("distributed.config").config
        monkeypatch.setitem(config["distributed"]["scheduler"], "allowed-failures", 1)
    ended = list(on_workers(_die_of, list(range(8)), _lost, 2, executor))
    assert len(ended) == 8
    killed = " by SIGKILL(-9)" if executor == "local" else ""
    assert dict(ended) == {place: f"{place} was lost{killed}" if place == 3 else "done" for place in range(8)}


def _die_of(place: int) -> str:
    if place == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def _lost(given: object, how: str) -> str:
    return f"{given} was lost{how}"


@pytest.mark.parametrize("executor", LIVE[:2])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_ends_the_work_is_one_line(
    executor: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if executor == "dask":
        cluster, config = request.getfixturevalue("cluster"), pytest.importorskip("distributed.config").config
        monkeypatch.setitem(config, "scheduler-address", cluster.scheduler.address)
    with pytest.raises(SpecsimError, match=r"^the disk is full$"):
        list(on_workers(_refuse, [0, 1, 2], _lost, 1 if executor == "dask" else 2, executor))


def _refuse(place: int) -> str:
    if place == 1:
        raise SpecsimError("the disk is full")
    return "done"


def test_a_wrong_executor_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([*WORDS, "--executor", "mpi"]) == 2
    assert capsys.readouterr().err == "specsim: executor='mpi': expected local, ray, dask, slurm\n"
    for wrong in ("mpi", None, 2):
        with pytest.raises(SpecsimError, match=r"^executor=.*: expected local, ray, dask, slurm$"):
            sweep({"seed": [0, 1]}, trace="poisson", executor=wrong)  # type: ignore[arg-type]
    monkeypatch.setattr(executors, "find_spec", lambda name: None)
    for name in ("ray", "dask", "slurm"):
        assert main([*WORDS, "--executor", name]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line == f'specsim: executor={name}: not installed; expected pip install "specsim[{name}]"'


@needed("slurm")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_job_that_slurm_refuses_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REFUSED", "Invalid partition name specified")
    assert main([*WORDS, "--executor", "slurm", "out=here"]) == 2
    assert capsys.readouterr().err == "specsim: executor=slurm: sbatch: error: Invalid partition name specified\n"
