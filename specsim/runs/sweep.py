"""The runs of a sweep, in one process or several: what stands is kept, what fails is noted, the rest runs."""

from __future__ import annotations

import csv
import json
import os
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from specsim.errors import SpecsimError
from specsim.files.staging import in_one_step, remove_stale
from specsim.kernels.chosen import compile_ahead
from specsim.replica.blame import complaint
from specsim.runs.execute import execute, stored_config
from specsim.runs.executors import LOCAL, on_workers
from specsim.runs.guard import guarded
from specsim.runs.plan import PlannedRun
from specsim.runs.prepare import prepare
from specsim.runs.resume import made_again, why_again
from specsim.runs.run import Run
from specsim.runs.shelf import Shelf
from specsim.runs.tally import Worst, tallied, worst_of
from specsim.settings.configured import Configured
from specsim.settings.identity import identity, settings_of
from specsim.store.failure import Failure, write_failure
from specsim.store.parts import read_parts
from specsim.store.places import check_same_run
from specsim.store.run_folder import METRICS_FILE, Stamp, holds_remains, is_run, stamp_of
from specsim.store.scan import AnyRun
from specsim.store.summaries import Summary
from specsim.store.sweep_folders import load_sweep
from specsim.store.sweep_status import write_planned
from specsim.store.sweeps import Sweep
from specsim.store.writer import Taken, Unwritable


def run_all(
    planned: Sequence[PlannedRun],
    root: Path | None = None,
    *,
    progress: bool = False,
    jobs: int = 1,
    executor: str = LOCAL,
    beside: Sequence[str] = (),
) -> Sweep:
    """Execute runs with so many workers of an executor; those whose folder holds them already are not run again.

    A stored run is made anew where it is damaged, or where the code or a file behind it is another one by now; a note
    says so. A run that fails is among the `failures`, and the rest runs. The order is that of `planned`.

    Parameters
    ----------
    root : folder of the summaries, where only summaries are kept; None: they stay in memory.
    beside : keys of points of the same search that ran before, which `specsim sweep status` counts, too.

    Raises
    ------
    Unwritable
        When a run cannot be stored: none of the rest could.
    SpecsimError
        When the executor fails; what has ended is kept.
    """
    for folder in {each.folder.parent for each in planned if each.folder is not None} | ({root} if root else set()):
        remove_stale(folder, time.time())
    shelf = Shelf(root, planned)
    if root is not None:
        write_planned(root, [*beside, *(each.key for each in planned)])
    made: dict[int, Made] = {index: Made(run, worst_of(run.metrics)) for index, run in shelf.standing.items()}
    left = [index for index in range(len(planned)) if index not in made]
    # Another process prepares its points itself: what was prepared would have to be sent.
    alone = jobs == 1 and executor == LOCAL
    ready = [planned[index] if alone else replace(planned[index], experiment=None) for index in left]
    if not alone:
        compile_ahead({each.config.get("kernel") for each in ready})
    before = {each.key: stamp_of(each.folder) for each in ready if each.folder is not None}
    ending = closing(on_workers(_made, ready, partial(_lost, before), jobs, executor))
    with tallied(len(planned), progress) as tally, shelf, ending as ended:
        for each in made.values():
            tally.add(each.worst, stood=True)
        for place, each in ended:
            made[left[place]] = each
            shelf.put(each.run)
            tally.add(each.worst, stood=each.stood)
    shelf.merge()
    inorder = [made[index] for index in range(len(planned))]
    runs = [each.run for each in inorder if not isinstance(each.run, Failure)]
    failures = [each.run for each in inorder if isinstance(each.run, Failure)]
    again = [*shelf.again, *(each.again for each in inorder if each.again)]
    return Sweep(runs, [*shelf.notes, *made_again(again)], failures=failures)


def standing(planned: Sequence[PlannedRun], root: Path) -> list[PlannedRun]:
    """Return the runs of a sweep that are stored below `root`, in folders or as summaries."""
    kept = read_parts(root).runs
    return [each for each in planned if (each.key in kept if each.folder is None else is_run(each.folder))]


def in_order(points: Sequence[Configured | PlannedRun], made: Sweep) -> list[AnyRun | Failure]:
    """Return what came of each of the points that a sweep was made of."""
    failed = {identity(settings_of(each.config)): each for each in made.failures}
    runs = iter(made)
    return [failed.get(identity(settings_of(each.config))) or next(runs) for each in points]


class Made(NamedTuple):
    """What came of a point.

    Attributes
    ----------
    run : its run or summary, or where it is stored, or its failure. worst : its worst class, None where it failed.
    again : why it was made again, if it was. stood : whether its folder held it already.
    """

    run: Run | Summary | Path | Failure
    worst: Worst | None
    again: str = ""
    stood: bool = False


def _made(planned: PlannedRun) -> Made:
    """Return what comes of a point; a failure is noted in its folder."""
    seen = None if planned.folder is None else stamp_of(planned.folder)
    try:
        return guarded(_executed, planned)
    except Unwritable:
        raise
    except Exception as error:
        return Made(_failed(planned, error, seen), None)


def _lost(before: Mapping[str, Stamp | None], planned: PlannedRun, how: str) -> Made:
    """Return the failure of a point whose process died whenever it ran, or the run that came meanwhile.

    `before` tells by key what was in each folder before anything was sent.
    """
    folder, seen = planned.folder, before.get(planned.key)
    if folder is not None and is_run(folder) and stamp_of(folder) != seen:
        return _standing(folder)
    said = f"its process was ended{how}, alone, too: out of memory, or a crash of compiled code"
    return Made(_failed(planned, SpecsimError(said), seen), None)


def write_table(root: Path) -> Sweep:
    """Write ``table.csv`` into a sweep's folder, whole or not at all, and return all runs in it."""
    found = load_sweep(root)
    table = found.table
    with in_one_step(root / "table.csv") as partial, partial.open("w", newline="", encoding="utf-8") as file:
        # Of numbers and texts the bytes of pandas' to_csv, in half the time.
        writer = csv.writer(file, lineterminator=os.linesep)
        writer.writerow(table.columns)
        cells = (table[name].astype(object).where(table[name].notna(), "").tolist() for name in table)
        writer.writerows(zip(*cells, strict=True))
    return found


def _executed(planned: PlannedRun) -> Made:
    """Return the run, where it has a folder as that: nothing of it stays in memory."""
    config, folder = planned.config, _made_meanwhile(planned) or planned.folder
    if folder is None:
        run = execute(config, None, planned.experiment)
        kept = run.summary(planned.key, planned.name) if planned.summary else run
        return Made(kept, worst_of(run.metrics))
    stored = check_same_run(folder, config) and holds_remains(folder)
    experiment = planned.experiment or prepare(config)
    reason = why_again(folder, experiment) if stored else ""
    if reason is None:
        return _standing(folder)
    try:
        run = execute(config, folder, experiment)
    except Taken:
        # Another process has made the same run meanwhile.
        if not is_run(folder) or why_again(folder, prepare(config)) is not None:
            raise
        return _standing(folder)
    return Made(folder, worst_of(run.metrics), reason)


def _made_meanwhile(planned: PlannedRun) -> Path | None:
    """Return where another sweep has stored the same run under another name since this one was planned."""
    folder = planned.folder
    if folder is None or is_run(folder):
        return None
    return next(filter(is_run, sorted(folder.parent.glob(f"*-{planned.key}"))), None)


def _standing(folder: Path) -> Made:
    """Return a run that its folder holds, undamaged."""
    return Made(folder, worst_of(json.loads((folder / METRICS_FILE).read_bytes())), stood=True)


def _failed(planned: PlannedRun, error: Exception, seen: Stamp | None) -> Failure:
    """Keep what a run failed of, where it has a folder."""
    if isinstance(error, SpecsimError):
        line = " ".join(str(error).splitlines())
    elif isinstance(error, MemoryError):
        line = "the run needs more memory than there is"
    else:
        line = f"specsim failed: {complaint(error)}"
    told = "".join(traceback.format_exception(error))
    name = planned.name if planned.summary and planned.folder is None else ""
    failure = Failure(stored_config(planned.config), dict(planned.label), line, planned.folder, told, name)
    write_failure(failure, seen)
    return failure
