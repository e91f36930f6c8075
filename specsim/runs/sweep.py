"""Sweeps executed and resumed."""

from __future__ import annotations

import csv
import json
import os
import re
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from specsim.config.configured import Configured
from specsim.config.identity import identity, settings_of
from specsim.core.user_code import complaint
from specsim.errors import SpecsimError
from specsim.figures.any_run import AnyRun
from specsim.files.staging import Unwritable, in_one_step, remove_stale
from specsim.runs.execute import Run, execute, guarded
from specsim.runs.executors import LOCAL, on_workers
from specsim.runs.plan import PlannedRun
from specsim.runs.processes import Worst, progress_bar, worst_of
from specsim.runs.provenance import PACKAGES, versions
from specsim.store.runs import METRICS_FILE, StoredRun, damage, is_run
from specsim.store.status import write_planned
from specsim.store.summaries import Failure, Summary, append_row, read_rows, settle
from specsim.store.sweeps import Sweep, load_sweep
from specsim.store.writer import check_same_run, remove_run

AGAIN = re.compile(r"(\d+) runs? made again: (.*)")


def why_again(folder: Path, sources: Mapping[str, Any]) -> str | None:
    """Return why the run in `folder` is not what the `sources` would give now, None where it is."""
    return damage(folder) or changed(StoredRun(folder, {}).provenance, sources)


def made_again(reasons: Iterable[str]) -> tuple[str, ...]:
    """Return a line for each reason why runs were made again, with their number."""
    return tuple(
        f"{count} run{'' if count == 1 else 's'} made again: {reason}" for reason, count in Counter(reasons).items()
    )


def together(notes: Iterable[str]) -> list[str]:
    """Return the notes of several rounds of runs, each once; those on runs that were made again with their sum."""
    others, again = dict[str, None](), Counter[str]()
    for note in notes:
        count = AGAIN.fullmatch(note)
        if count is None:
            others[note] = None
        else:
            again[count[2]] += int(count[1])
    return [*others, *made_again(again.elements())]


def changed(stored: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Return what makes the numbers of a run and has changed since it was made; None where nothing has."""
    before, after = stored.get("plugins", {}), now["plugins"]
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            return f"plug-in {name} has changed"
    if stored.get("trace") != now["trace"]:
        return f"trace {now['trace']['name']} is another file by now"
    if stored.get("recording_sha256") != now["recording_sha256"]:
        return "the recorded acceptance is another file by now"
    if stored.get("code_sha256") != now["code_sha256"]:
        return f"specsim's own code has changed{_version(stored)}"
    return None


def _version(stored: Mapping[str, Any]) -> str:
    before, now = (each.get(PACKAGES[0]) for each in (stored.get("versions", {}), versions()))
    return f", version {before} to {now}" if before != now else ""


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
    ready = [planned[index] if alone else planned[index].but(experiment=None) for index in left]
    ending = closing(on_workers(partial(_made, root), ready, partial(_lost, root), jobs, executor))
    with progress_bar(len(planned), progress) as bar, ending as ended:
        for each in made.values():
            bar.add(each.worst, stood=True)
        for place, each in ended:
            made[left[place]] = each
            bar.add(each.worst, stood=each.stood)
    runs = [made[index].run for index in range(len(planned))]
    if root is not None:
        rows = [each if isinstance(each, Summary | Failure) else None for each in runs]
        settle(root, {each.key: row for each, row in zip(planned, rows, strict=True)})
    failures = [each for each in runs if isinstance(each, Failure)]
    again += [made[index].again for index in left if made[index].again]
    stored = [each for each in runs if not isinstance(each, Failure)]
    return Sweep(stored, [*notes, *made_again(again)], failures=failures)


def _summaries(planned: Sequence[PlannedRun], root: Path | None) -> tuple[dict[int, Outcome], list[str], Sequence[str]]:
    """Return the summaries below `root` that still stand, by place; why others are made again; notes on damage."""
    if root is None:
        return {}, [], ()
    rows, made, again = read_rows(root), dict[int, Outcome](), list[str]()
    for place, each in enumerate(planned):
        summary = rows.runs.get(each.key) if each.folder is None else None
        if summary is None:
            continue
        reason = changed(summary.provenance, each.sources)
        if reason is None:
            made[place] = Outcome(summary, worst_of(summary.metrics), stood=True)
        else:
            again.append(reason)
    return made, again, rows.notes


def standing(planned: Sequence[PlannedRun], root: Path) -> list[PlannedRun]:
    """Return the runs of a sweep that are stored below `root`, in folders or as summaries."""
    kept = read_rows(root).runs
    return [each for each in planned if (each.key in kept if each.folder is None else is_run(each.folder))]


def in_order(points: Sequence[Configured], made: Sweep) -> list[AnyRun | Failure]:
    """Return what came of each of the points that a sweep was made of."""
    failed = {identity(settings_of(each.config)): each for each in made.failures}
    runs = iter(made)
    return [failed.get(each.key) or next(runs) for each in points]


class Outcome(NamedTuple):
    """The outcome of a point.

    Attributes
    ----------
    run : its run or summary, or where it is stored, or its failure. worst : its worst class, None where it failed.
    again : why it was made again, if it was. stood : whether its folder held it already.
    """

    run: Run | Summary | Path | Failure
    worst: Worst | None
    again: str = ""
    stood: bool = False


def _made(root: Path | None, planned: PlannedRun) -> Outcome:
    """Return what comes of a point; its summary or failure is stored below `root`."""
    try:
        return guarded(_executed, root, planned)
    except Unwritable:
        raise
    except Exception as error:
        return _failed(root, planned, error)


def _lost(root: Path | None, planned: PlannedRun, how: str) -> Outcome:
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


def _executed(root: Path | None, planned: PlannedRun) -> Outcome:
    """Return the run, where it has a folder as that: nothing of it stays in memory."""
    folder = _made_meanwhile(planned) or planned.folder
    if folder is None:
        run = execute(planned.prepared(), None)
        if not planned.summary:
            return Outcome(run, worst_of(run.metrics))
        summary = run.summary(planned.key, planned.name)
        if root is not None:
            append_row(root, summary)
        return Outcome(summary, worst_of(run.metrics))
    reason = why_again(folder, planned.sources) if check_same_run(folder, planned) else ""
    if reason is None:
        return _standing(folder)
    run = execute(planned.prepared(), folder)
    return Outcome(folder, worst_of(run.metrics), reason)


def _made_meanwhile(planned: PlannedRun) -> Path | None:
    """Return where another sweep has stored the same run under another name since this one was planned."""
    folder = planned.folder
    if folder is None or is_run(folder):
        return None
    return next(filter(is_run, sorted(folder.parent.glob(f"*-{planned.key}"))), None)


def _standing(folder: Path) -> Outcome:
    """Return a run that its folder holds, undamaged."""
    return Outcome(folder, worst_of(json.loads((folder / METRICS_FILE).read_bytes())), stood=True)


def _failed(root: Path | None, planned: PlannedRun, error: Exception) -> Outcome:
    """Keep what a run failed of, in place of an older run; a run that another process has made meanwhile stays."""
    folder = planned.folder
    if folder is not None:
        with suppress(SpecsimError):
            if check_same_run(folder, planned):
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
    failure = Failure(planned.stored, dict(planned.label), line, name, told)
    if root is not None:
        append_row(root, failure)
    return Outcome(failure, None)
