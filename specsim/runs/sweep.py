"""The runs of a sweep, in one process or several: what stands is kept, what fails is noted, the rest runs."""

from __future__ import annotations

import csv
import json
import os
import time
import traceback
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from specsim.config.configured import Configured
from specsim.config.identity import identity, settings_of
from specsim.errors import SpecsimError
from specsim.files.staging import Unwritable, in_one_step, remove_stale
from specsim.replica.blame import complaint
from specsim.runs.execute import execute, stored_config
from specsim.runs.executors import LOCAL, on_workers
from specsim.runs.guard import guarded
from specsim.runs.plan import PlannedRun
from specsim.runs.resume import changed, made_again, why_again
from specsim.runs.run import Run
from specsim.runs.tally import Worst, tallied, worst_of
from specsim.store.places import check_same_run
from specsim.store.run_folder import METRICS_FILE, is_run
from specsim.store.scan import AnyRun
from specsim.store.summaries import Failure, Summary, append_row, read_rows, settle
from specsim.store.sweep_folder import load_sweep, write_planned
from specsim.store.sweeps import Sweep
from specsim.store.writer import remove_run


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
    made, again, notes = _summaries(planned, root)
    if root is not None:
        write_planned(root, [*beside, *(each.key for each in planned)])
    left = [index for index in range(len(planned)) if index not in made]
    # Another process prepares its points itself: what was prepared would have to be sent.
    alone = jobs == 1 and executor == LOCAL
    ready = [planned[index] if alone else replace(planned[index], experiment=None) for index in left]
    ending = closing(on_workers(partial(_made, root), ready, partial(_lost, root), jobs, executor))
    with tallied(len(planned), progress) as tally, ending as ended:
        for each in made.values():
            tally.add(each.worst, stood=True)
        for place, each in ended:
            made[left[place]] = each
            tally.add(each.worst, stood=each.stood)
    runs = [made[index].run for index in range(len(planned))]
    if root is not None:
        rows = [each if isinstance(each, Summary | Failure) else None for each in runs]
        settle(root, {each.key: row for each, row in zip(planned, rows, strict=True)})
    failures = [each for each in runs if isinstance(each, Failure)]
    again += [made[index].again for index in left if made[index].again]
    stored = [each for each in runs if not isinstance(each, Failure)]
    return Sweep(stored, [*notes, *made_again(again)], failures=failures)


def _summaries(planned: Sequence[PlannedRun], root: Path | None) -> tuple[dict[int, Made], list[str], Sequence[str]]:
    """Return the summaries below `root` that still stand, by place; why others are made again; notes on damage."""
    if root is None:
        return {}, [], ()
    rows, made, again = read_rows(root), dict[int, Made](), list[str]()
    for place, each in enumerate(planned):
        summary = rows.runs.get(each.key) if each.folder is None else None
        if summary is None:
            continue
        reason = changed(summary.provenance, each.sources)
        if reason is None:
            made[place] = Made(summary, worst_of(summary.metrics), stood=True)
        else:
            again.append(reason)
    return made, again, rows.notes


def standing(planned: Sequence[PlannedRun], root: Path) -> list[PlannedRun]:
    """Return the runs of a sweep that are stored below `root`, in folders or as summaries."""
    kept = read_rows(root).runs
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


def _made(root: Path | None, planned: PlannedRun) -> Made:
    """Return what comes of a point; its summary or failure is stored below `root`."""
    try:
        return guarded(_executed, root, planned)
    except Unwritable:
        raise
    except Exception as error:
        return _failed(root, planned, error)


def _lost(root: Path | None, planned: PlannedRun, how: str) -> Made:
    """Return what comes of a point whose process died whenever it ran."""
    said = f"its process was ended{how}, alone, too: out of memory, or a crash of compiled code"
    return _failed(root, planned, SpecsimError(said))


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


def _executed(root: Path | None, planned: PlannedRun) -> Made:
    """Return the run, where it has a folder as that: nothing of it stays in memory."""
    config, folder = planned.config, _made_meanwhile(planned) or planned.folder
    if folder is None:
        run = execute(config, None, planned.prepared())
        if not planned.summary:
            return Made(run, worst_of(run.metrics))
        summary = run.summary(planned.key, planned.name)
        if root is not None:
            append_row(root, summary)
        return Made(summary, worst_of(run.metrics))
    reason = why_again(folder, planned.sources) if check_same_run(folder, config) else ""
    if reason is None:
        return _standing(folder)
    run = execute(config, folder, planned.prepared())
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


def _failed(root: Path | None, planned: PlannedRun, error: Exception) -> Made:
    """Keep what a run failed of, in place of an older run; a run that another process has made meanwhile stays."""
    folder = planned.folder
    if folder is not None:
        with suppress(SpecsimError):
            if check_same_run(folder, planned.config):
                if why_again(folder, planned.sources) is None:
                    return _standing(folder)
                remove_run(folder)
    if isinstance(error, SpecsimError):
        line = " ".join(str(error).splitlines())
    elif isinstance(error, MemoryError):
        line = "the run needs more memory than there is"
    else:
        line = f"specsim failed: {complaint(error)}"
    name = planned.name if root is not None or planned.summary else ""
    told = "".join(traceback.format_exception(error))
    failure = Failure(stored_config(planned.config), dict(planned.label), line, name, told)
    if root is not None:
        append_row(root, failure)
    return Made(failure, None)
