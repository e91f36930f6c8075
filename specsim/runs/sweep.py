"""The runs of a sweep, in one process or several: what stands is kept, what fails is noted, the rest runs."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from specsim.errors import SpecsimError
from specsim.replica.blame import complaint
from specsim.results.failure import Failure, write_failure
from specsim.results.run_folder import Stamp, holds_remains, is_run, stamp_of
from specsim.results.staging import in_one_step, remove_stale
from specsim.results.sweeps import Sweep, load_sweep
from specsim.results.writer import Taken, Unwritable
from specsim.runs.execute import execute, stored_config
from specsim.runs.places import check_same_run
from specsim.runs.plan import PlannedRun
from specsim.runs.prepare import prepare
from specsim.runs.processes import in_processes
from specsim.runs.progress import bar
from specsim.runs.resume import made_again, why_again
from specsim.runs.run import Run


def run_all(planned: Sequence[PlannedRun], *, progress: bool = False, jobs: int = 1) -> Sweep:
    """Execute runs in `jobs` processes; those whose folder holds them already are not run again.

    A stored run is made anew where it is damaged, or where the code or a file behind it is another one by now; a note
    says so. A run that fails is among the `failures`, and the rest runs. The order is that of `planned`.

    Raises
    ------
    Unwritable
        When a run cannot be stored: none of the rest could.
    """
    for root in {each.folder.parent for each in planned if each.folder is not None}:
        remove_stale(root, time.time())
    # Another process prepares its points itself: what was prepared would have to be sent.
    ready = planned if jobs == 1 else [replace(each, experiment=None) for each in planned]
    made: dict[int, Made] = {}
    with bar(len(planned), "run", progress) as watch:
        for index, each in in_processes(_made, ready, jobs):
            made[index] = each
            if watch is not None:
                watch(len(made))
    ended = [made[index] for index in range(len(planned))]
    runs = [each.run for each in ended if not isinstance(each.run, Failure)]
    failures = [each.run for each in ended if isinstance(each.run, Failure)]
    return Sweep(runs, made_again([each.again for each in ended if each.again]), failures=failures)


class Made(NamedTuple):
    """What came of a point: its run, or where it is stored, or its failure; and why it was made `again`, if it was."""

    run: Run | Path | Failure
    again: str = ""


def _made(planned: PlannedRun) -> Made:
    """Return what comes of a point; a failure is noted in its folder."""
    seen = None if planned.folder is None else stamp_of(planned.folder)
    try:
        return _executed(planned)
    except Unwritable:
        raise
    except Exception as error:
        return Made(_failed(planned, error, seen))


def write_table(root: Path) -> tuple[str, ...]:
    """Write ``table.csv`` into a sweep's folder, whole or not at all: the table of all runs in it.

    Returns
    -------
    lines about the runs in the folder as a whole.
    """
    found = load_sweep(root)
    with in_one_step(root / "table.csv") as partial:
        found.table.to_csv(partial, index=False)
    return found.notes


def _executed(planned: PlannedRun) -> Made:
    """Return the run, where it has a folder as that: nothing of it stays in memory."""
    config, folder = planned.config, planned.folder
    if folder is None:
        return Made(execute(config, None, planned.experiment))
    stored = check_same_run(folder, config) and holds_remains(folder)
    experiment = planned.experiment or prepare(config)
    reason = why_again(folder, experiment) if stored else ""
    if reason is None:
        return Made(folder)
    try:
        execute(config, folder, experiment)
    except Taken:
        # Another process has made the same run meanwhile.
        if not is_run(folder) or why_again(folder, prepare(config)) is not None:
            raise
        return Made(folder)
    return Made(folder, reason)


def _failed(planned: PlannedRun, error: Exception, seen: Stamp | None) -> Failure:
    """Keep what a run failed of, where it has a folder."""
    if isinstance(error, SpecsimError):
        line = " ".join(str(error).splitlines())
    elif isinstance(error, MemoryError):
        line = "the run needs more memory than there is"
    else:
        line = f"specsim failed: {complaint(error)}"
    told = "".join(traceback.format_exception(error))
    failure = Failure(stored_config(planned.config), dict(planned.label), line, planned.folder, told)
    write_failure(failure, seen)
    return failure
