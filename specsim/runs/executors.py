"""Where the points of a sweep run: in processes here, or on workers of Ray, Dask or Slurm."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, chdir, contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from specsim.core.user_code import complaint
from specsim.errors import SpecsimError, represented
from specsim.runs.processes import Lost, check_jobs, in_processes

if TYPE_CHECKING:
    from distributed import Client, Future, as_completed

Piece = TypeVar("Piece")
Answer = TypeVar("Answer")
LOCAL = "local"
NEEDS = {LOCAL: "joblib", "ray": "ray", "dask": "distributed", "slurm": "dask_jobqueue"}
"""Executors, and the module that each is of."""
WAITING = 4
"""Points that are sent to an executor for each of its workers: one runs, the others follow at once."""
JOB_MEMORY = "4GiB"
"""Resources of a Slurm job where Dask-Jobqueue's configuration does not say."""
LOOK_S, ASK, LOST = 0.005, 200, 10
"""How often results of Dask are looked for; after how many looks in vain Dask is asked what it does, and after how many
idle answers the rest is lost: 10 s."""
QUIET = logging.CRITICAL
"""Of Dask's log while a client opens, works and closes: its errors are raised."""
ANY_PORT = "127.0.0.1:0"
"""Of Dask's own pages. Without it they take port 8787, and of two sweeps on a host one warns that it is taken."""
_ONE_AT_A_TIME = threading.Lock()
Opened = Callable[[int], AbstractContextManager["Client"]]


def check_executor(executor: object, jobs: int) -> str:
    """Return what runs the points of a sweep.

    Raises
    ------
    SpecsimError
        When it is unknown or not installed, when `jobs` is no number of processes, or a cluster that runs already says
        how many there are.
    """
    check_jobs(jobs)
    if not isinstance(executor, str) or executor not in NEEDS:
        raise SpecsimError(f"executor={represented(executor)}: expected {', '.join(NEEDS)}")
    if find_spec(NEEDS[executor]) is None:
        raise SpecsimError(f'executor={executor}: not installed; expected pip install "specsim[{executor}]"')
    if executor == "slurm" and shutil.which("sbatch") is None:
        raise SpecsimError("executor=slurm: no sbatch on this host; expected a host that submits to Slurm")
    if executor == "dask" and jobs > 1 and (address := _dask_address()):
        raise SpecsimError(f"jobs={jobs}: the Dask cluster at {address} says how many; expected its executor alone")
    return executor


def on_workers(
    work: Callable[[Piece], Answer],
    each: Sequence[Piece],
    lost: Lost[Piece, Answer],
    jobs: int = 1,
    executor: str = LOCAL,
) -> Generator[tuple[int, Answer], None, None]:
    """Yield the place and what came of each of the given, as they end.

    `work`, its arguments and results are pickled. Nothing is started where nothing is given. Pieces
    of a worker that died are worked on again at the end, one at a time; `lost` says what comes of a piece whose worker
    dies then, too.

    Raises
    ------
    SpecsimError
        When the executor fails, or a worker has not the folder that this process is in.
    """
    if executor == LOCAL and jobs == 1:
        yield from in_processes(work, each, jobs, lost)
        return
    there = partial(_there, work, Path.cwd())
    try:
        if executor == LOCAL:
            yield from in_processes(work, each, jobs, lost)
        elif executor == "ray" and each:
            yield from _on_ray(there, each, jobs, lost)
        elif each:
            yield from _on_dask(there, each, jobs, lost, _slurm if executor == "slurm" else _dask)
    except SpecsimError:
        raise
    except Exception as error:
        raise SpecsimError(f"executor={executor}: {complaint(error)}") from error


def _there(work: Callable[[Piece], Answer], folder: Path, piece: tuple[int, Piece]) -> tuple[int, Answer]:
    """Work in the folder that the sweep was started in, so that relative paths mean the same there.

    The folder is that of a whole process: its threads take turns.
    """
    if not folder.is_dir():
        raise SpecsimError(f"a worker has no folder {str(folder)!r}; expected the file system of the process that asks")
    index, one = piece
    with _ONE_AT_A_TIME, chdir(folder):
        return index, work(one)


def _on_ray(there: partial[Any], each: Sequence[Any], jobs: int, lost: Lost[Any, Any]) -> Iterator[Any]:
    """Yield results of Ray's tasks: its joblib backend returns all at the end, and its pool ends with a lost worker.

    Ray is started here, unless it has been, or `RAY_ADDRESS` names a cluster.
    """
    import ray
    from ray.exceptions import NodeDiedError, ObjectLostError, OutOfMemoryError, WorkerCrashedError

    ours = not ray.is_initialized()
    if ours:
        own = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": jobs, "include_dashboard": False}
        ray.init(**own, logging_level=logging.ERROR, log_to_driver=False)
    task = ray.remote(max_retries=0)(there.func)
    died = (NodeDiedError, ObjectLostError, OutOfMemoryError, WorkerCrashedError)
    running: list[Any] = []
    pieces, left = enumerate(each), set(range(len(each)))
    try:
        running = [task.remote(*there.args, piece) for piece in islice(pieces, jobs)]
        while running:
            (done,), running = ray.wait(running)
            running += [task.remote(*there.args, piece) for piece in islice(pieces, 1)]
            try:
                index, found = ray.get(done)
            except died:
                continue
            left.remove(index)
            yield index, found
        for index in sorted(left):
            try:
                yield ray.get(task.remote(*there.args, (index, each[index])))
            except died:
                yield index, lost(each[index], "")
    except ray.exceptions.RayTaskError as error:
        raise (error.cause or error) from error  # Its own first line names a task, not what was wrong.
    finally:
        for each_task in running:
            ray.cancel(each_task, force=True)
        if ours:
            ray.shutdown()


def _on_dask(
    there: partial[Any], each: Sequence[Any], jobs: int, lost: Lost[Any, Any], opened: Opened
) -> Iterator[Any]:
    """Yield results from a Dask client: with joblib's Dask backend a sweep whose worker is lost waits for ever.

    Dask itself tries again what a lost worker had, and gives up what several lost workers had.
    """
    from distributed import as_completed

    pieces, left = enumerate(each), set(range(len(each)))
    with opened(jobs) as client:

        def sent(piece: tuple[int, Any]) -> Future:
            return client.submit(there, piece, pure=False)

        client.wait_for_workers(1)
        # Workers that begin later get work, too.
        most = WAITING * max(jobs, sum(client.ncores().values()))
        ended = as_completed(map(sent, islice(pieces, most)), with_results=True, raise_errors=False)
        for found in _as_they_end(client, ended, jobs):
            ended.update(map(sent, islice(pieces, 1)))
            if found is not None:
                left.remove(found[0])
                yield found
        for index in sorted(left):
            alone = as_completed([sent((index, each[index]))], with_results=True, raise_errors=False)
            found = next(_as_they_end(client, alone, jobs), None)
            yield (index, lost(each[index], "")) if found is None else found


def _as_they_end(client: Client, ended: as_completed, jobs: int) -> Iterator[Any]:
    """Yield results as they end; None for one that killed its workers, or that went with one before it was fetched.

    Stop where Dask has lost the rest: its workers have nothing to do, and nothing comes.
    """
    from distributed import KilledWorker

    pause = threading.Event()
    looks = idle = 0
    while not ended.is_empty():
        batch = ended.next_batch(block=False)
        for future, found in batch:
            if future.status == "finished":
                yield found
                continue
            error = found if isinstance(found, BaseException) else found and found[1]
            if isinstance(error, BaseException) and not isinstance(error, KilledWorker):
                # Without a traceback it is of Dask's scheduler: its cause says what that could not read.
                raise error if error is found or found[2] else error.__cause__ or error
            yield None
        if batch:
            looks = idle = 0
            continue
        pause.wait(LOOK_S)
        looks += 1
        if looks % ASK:
            continue
        if not client.nthreads() and client.cluster is not None:
            # A worker that dies as it starts is not started again.
            client.cluster.scale(jobs)
        works = not client.nthreads() or any(client.processing().values())
        idle = 0 if works else idle + 1
        if idle == LOST:
            return


@contextmanager
def _dask(jobs: int) -> Iterator[Client]:
    """Yield a client of the cluster at `DASK_SCHEDULER_ADDRESS`, or of workers that are started here."""
    from distributed import Client
    from distributed.utils import silence_logging_cmgr

    own = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": ANY_PORT, "preload": __name__}
    with silence_logging_cmgr(QUIET), Client(**({} if _dask_address() else own | {"silence_logs": QUIET})) as client:
        yield client


def dask_setup(worker: object) -> None:
    """Leave Ctrl-C to the process that asks: Dask calls this in each worker that was started here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _slurm(jobs: int) -> Iterator[Client]:
    """Yield a client of workers in Slurm jobs; the jobs are as Dask-Jobqueue's own configuration describes them."""
    import dask
    from dask_jobqueue import SLURMCluster
    from distributed import Client
    from distributed.utils import silence_logging_cmgr

    asked: dict[str, Any] = {"cores": 1, "processes": 1, "memory": JOB_MEMORY}
    asked = {key: dask.config.get(f"jobqueue.slurm.{key}", None) or value for key, value in asked.items()}
    asked |= {"scheduler_options": {"dashboard_address": ANY_PORT}, "silence_logs": QUIET}
    with silence_logging_cmgr(QUIET), SLURMCluster(**asked) as cluster, Client(cluster) as client:
        _check_submits(cluster.job_script())
        cluster.scale(jobs=jobs)
        yield client


def _check_submits(script: str) -> None:
    """Ask Slurm whether it takes a job: Dask-Jobqueue would wait for one that it refused."""
    said = subprocess.run(["sbatch", "--test-only"], input=script, capture_output=True, text=True)
    if said.returncode:
        raise SpecsimError(f"executor=slurm: {' '.join(said.stderr.split())}")


def _dask_address() -> str | None:
    """Return where a Dask cluster runs already, as Dask's configuration says."""
    import dask.config

    address: str | None = dask.config.get("scheduler-address", None)
    return address
