"""`--executor`: Ray, Dask and Slurm make the runs that processes here make, byte for byte."""

import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from specsim import SpecsimError, sweep
from specsim.cli import main
from specsim.runs import executors
from specsim.runs.executors import NEEDS, on_workers
from tests.files import contents
from tests.made import refusal

WORDS = ["run", "-m", "scheduler=continuous,vllm_spec", "rps=1,2", "seed=0,1", "trace=poisson", "requests=12"]
SBATCH = """#!/bin/sh
if [ -n "$REFUSED" ]; then echo "sbatch: error: $REFUSED" >&2; exit 1; fi
if [ "$1" = --test-only ]; then cat > /dev/null; exit 0; fi
cp "$1" "$0.$$"
setsid sh "$0.$$" > /dev/null 2>&1 < /dev/null &
echo "Submitted batch job $!"
"""
SCANCEL = '#!/bin/sh\nkill -- "-$1" 2> /dev/null || true\n'


def needed(executor):
    return pytest.mark.skipif(find_spec(NEEDS[executor]) is None, reason=f"needs specsim[{executor}]")


EXECUTORS = [pytest.param(name, marks=needed(name)) for name in ("ray", "dask", "slurm")]


@pytest.fixture(autouse=True)
def _slurm(tmp_path, monkeypatch):
    """Put a stand-in for Slurm on the path: a job is a process of this host."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)


def made(folder, *words, **env):
    """Make the sweep in a process of its own, which says nothing but that it takes long, and return its bytes."""
    paths = [Path(executors.__file__).parents[2], *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), **env}
    command = [sys.executable, "-m", "specsim", *WORDS, "--keep", "summary", *words, "out=here"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    said = [line for line in done.stderr.splitlines() if " runs done, " not in line]
    assert (done.returncode, said) == (0, [])
    return contents(folder / "here", "provenance.json")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("executors") / "here"
    assert main([*WORDS, "--keep", "summary", f"out={root}"]) == 0
    return contents(root, "provenance.json")


@pytest.mark.parametrize("executor", EXECUTORS)
def test_every_executor_makes_the_same_bytes(whole, tmp_path, executor):
    jobs = "1" if executor == "ray" else "2"  # Workers of Ray start slowly, and those that die below are two.
    assert made(tmp_path, "--jobs", jobs, "--executor", executor) == whole


@pytest.fixture(scope="module")
def cluster():
    """Yield a client of a cluster that runs already."""
    distributed = pytest.importorskip("distributed")
    with distributed.Client(n_workers=1, threads_per_worker=2, dashboard_address=executors.ANY_PORT) as client:
        yield client


def test_workers_of_a_cluster_are_left_as_they_were(whole, tmp_path, cluster):
    """They outlive the sweep: they hear Ctrl-C, stay in their own folder, and do not end with the one that asked."""
    before = cluster.run(_state)
    assert made(tmp_path, "--executor", "dask", DASK_SCHEDULER_ADDRESS=cluster.scheduler.address) == whole
    time.sleep(2)  # Processes of joblib would have ended.
    assert cluster.run(_state) == before


def _state():
    return os.getpid(), str(Path.cwd()), signal.getsignal(signal.SIGINT) is signal.SIG_IGN


LIVE = ["local", *(pytest.param(name, marks=needed(name)) for name in ("dask", "ray"))]


@pytest.mark.parametrize("executor", LIVE[:2])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_a_killed_worker_had_is_done_by_another(executor, tmp_path):
    assert dict(on_workers(_die_once, [str(tmp_path)] * 6, _lost, 2, executor)) == dict.fromkeys(range(6), "done")
    assert (tmp_path / "died").exists()


def _die_once(folder):
    try:
        Path(folder, "died").touch(exist_ok=False)
    except FileExistsError:
        return "done"
    os.kill(os.getpid(), signal.SIGKILL)
    return "not here"


@pytest.mark.parametrize("executor", LIVE)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_kills_its_worker_is_lost_and_nothing_else(executor, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))  # Workers of Ray find this module by it.
    if executor == "dask":
        # Not three workers more: each takes a second to start.
        config = pytest.importorskip("distributed.config").config
        monkeypatch.setitem(config["distributed"]["scheduler"], "allowed-failures", 1)
    ended = sorted(on_workers(_die_of, list(range(8)), _lost, 2, executor))
    killed = " by SIGKILL(-9)" if executor == "local" else ""
    assert ended == [(place, f"{place} was lost{killed}" if place == 3 else "done") for place in range(8)]


def _die_of(place):
    if place == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def _lost(given, how):
    return f"{given} was lost{how}"


@pytest.mark.parametrize("executor", LIVE[:2])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_ends_the_work_is_one_line(executor, request, monkeypatch):
    if executor == "dask":
        cluster, config = request.getfixturevalue("cluster"), pytest.importorskip("distributed.config").config
        monkeypatch.setitem(config, "scheduler-address", cluster.scheduler.address)
    jobs, own = 1 if executor == "dask" else 2, f"executor={executor}: RuntimeError: it says more than its cause"
    wrong = [([0, 1, 2], "the disk is full"), ([0, 3], own)]
    wrong += [([_Absent()], "executor=dask: ModuleNotFoundError: No module named 'absent'")] * (executor == "dask")
    for each, said in wrong:
        assert refusal(lambda each=each: list(on_workers(_refuse, each, _lost, jobs, executor))) == said


class _Absent:
    def __reduce__(self):
        return __import__, ("absent",)


def _refuse(place):
    if place == 1:
        raise SpecsimError("the disk is full")
    if place == 3:
        raise RuntimeError("it says more than its cause") from KeyError(place)
    return "done"


def test_a_wrong_executor_is_one_line(refused, monkeypatch):
    for wrong in ("mpi", None, 2):
        said = refusal(sweep, {"seed": [0, 1]}, trace="poisson", executor=wrong)
        assert said == f"executor={wrong!r}: expected local, ray, dask, slurm"
    assert refused(*WORDS, "--executor", "mpi") == "specsim: executor='mpi': expected local, ray, dask, slurm\n"
    monkeypatch.setattr(executors, "find_spec", lambda name: None)
    for name in ("ray", "dask", "slurm"):
        said = f'specsim: executor={name}: not installed; expected pip install "specsim[{name}]"\n'
        assert refused(*WORDS, "--executor", name) == said


@needed("slurm")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.usefixtures("here")
def test_a_job_that_slurm_refuses_is_one_line(monkeypatch, capsys):
    monkeypatch.setenv("REFUSED", "Invalid partition name specified")
    said = "specsim: executor=slurm: sbatch: error: Invalid partition name specified"
    for more, kept in (([], ""), (["seed=0"], "; 4 of 8 runs are kept; the same command with out=here goes on")):
        assert not more or main([*WORDS[:4], *more, *WORDS[5:], "out=here"]) == 0
        assert main([*WORDS, "--executor", "slurm", "out=here"]) == 2
        assert capsys.readouterr().err == f"{said}{kept}\n"
