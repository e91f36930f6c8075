"""Sweeps executed and resumed, and given seeds until an answer is known."""

from __future__ import annotations

import csv
import json
import os
import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from math import ceil, inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from specsim.config.configured import NONE_HANDED, Configured, Described, from_point
from specsim.core.user_code import complaint
from specsim.errors import SpecsimError, represented
from specsim.files.staging import Unwritable, in_one_step, remove_stale
from specsim.metrics.any_run import AnyRun
from specsim.metrics.capacity import LEAST_SEEDS, mean_interval
from specsim.runs.execute import Run, execute, guarded
from specsim.runs.executors import LOCAL, on_workers
from specsim.runs.objects import NO_OBJECTS, Objects
from specsim.runs.plan import PlannedRun, checked, plan
from specsim.runs.processes import Worst, progress_bar, worst_of
from specsim.runs.provenance import PACKAGES, versions
from specsim.store.runs import METRICS_FILE, StoredRun, check_same_run, damage, is_run, remove_run
from specsim.store.status import write_planned
from specsim.store.summaries import Failure, Summary, append_row, read_rows, settle
from specsim.store.sweeps import Sweep, load_sweep

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
        if name in after and after[name] is None:
            return f"the code of {name} lies in no file, and may have changed"
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
    beside: Sequence[str] | None = None,
) -> Sweep:
    """Execute runs with so many workers of an executor; those whose folder holds them already are not run again.

    A stored run is made anew where it is damaged, or where the code or a file behind it is another one by now; a note
    says so. A run that fails is among the `failures`, and the rest runs. The order is that of `planned`.

    Parameters
    ----------
    root : folder of the summaries, where only summaries are kept; None: they stay in memory.
    beside : keys of points of earlier rounds, which `specsim sweep status` counts, too; None: there is one round.

    Raises
    ------
    Unwritable
        When a run cannot be stored: none of the rest could.
    SpecsimError
        When the executor fails; ended runs are kept.
    """
    for folder in {each.folder.parent for each in planned if each.folder is not None} | ({root} if root else set()):
        remove_stale(folder, time.time())
    made, again, notes = _summaries(planned, root)
    if root is not None:
        write_planned(root, [*(beside or ()), *(each.key for each in planned)], in_rounds=beside is not None)
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
    failed = {each.key: each for each in made.failures}
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


SEED, SCHEDULER = "seed", "scheduler"
MOST_SEEDS = 100
"""Seeds after which a point gets no more."""
GROWTH = 2
"""The most by which the seeds of a point multiply at once: a few of them tell little of how many it takes."""
WORDS = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*points?\s*")

PointKey = tuple[str, ...]
Say = Callable[[str], None]


def check_until(until: object) -> float:
    """Return the half width of an attainment, as a share, that words such as "2 points" ask for; None: any.

    Raises
    ------
    SpecsimError
        When they are no number of points above 0 and up to 50.
    """
    if until is None:
        return inf
    found = WORDS.fullmatch(until) if isinstance(until, str) else None
    if found is None or not 0 < float(found[1]) <= 50:
        said = 'half the width of an interval, above 0 up to 50, such as "2 points"'
        raise SpecsimError(f"until={represented(until)}: expected {said}")
    return float(found[1]) / 100


def run_points(
    ready: Sequence[PlannedRun],
    root: Path | None,
    until: str | None = None,
    objects: Objects = NO_OBJECTS,
    *,
    keep: str,
    jobs: int = 1,
    executor: str = LOCAL,
    progress: bool = False,
    say: Say = lambda _: None,
) -> tuple[list[PlannedRun], Sweep]:
    """Return the runs of a sweep as they were planned, and what came of them; the arguments are those of `run_all`.

    `objects` are those that the points name.

    With `until`, as "2 points", each point gets seeds until half the 95% interval of its attainment over them is no
    wider, or it has `MOST_SEEDS`. Points that differ in their scheduler alone get the same seeds, and stay paired. The
    next seeds follow from what has ended, so a sweep that was stopped goes on where it was. `say` is told how many runs
    are added; a note of the sweep says what was reached.
    """
    run = partial(_run, root=root, progress=progress, jobs=jobs, executor=executor)
    if until is None:
        planned = plan(ready, root, keep=keep, progress=progress)
        return planned, run(planned, planned)
    seeds, notes = _Seeds(ready, check_until(until)), list[str]()
    ended: dict[str, AnyRun | Path | Failure] = {}
    while True:
        if more := seeds.more(objects.described):
            say(f"until {until}: {len(more)} runs with further seeds")
            seeds.add(checked(more, objects, jobs=jobs, executor=executor, idle=False, progress=progress))
        elif ended:
            break
        points = seeds.points()
        planned = plan(points, root, keep=keep, progress=progress, begun=bool(ended))
        new = [(point, each) for point, each in zip(points, planned, strict=True) if each.key not in ended]
        made = run([each for _, each in new], planned)
        notes += made.whole_notes
        for (point, each), one in zip(new, in_order([each for _, each in new], made), strict=True):
            seeds.ended(point, None if isinstance(one, Failure) else one.slo_attainment)
            ended[each.key] = one if isinstance(one, Failure) else one.folder or one
    of = [ended[each.key] for each in planned]
    failures = [each for each in of if isinstance(each, Failure)]
    notes = [*together(notes), f"until {until}: {seeds.reached()}"]
    return planned, Sweep([each for each in of if not isinstance(each, Failure)], notes, failures=failures)


def _run(new: Sequence[PlannedRun], planned: Sequence[PlannedRun], root: Path | None, **how: Any) -> Sweep:
    """Execute the new ones among the planned runs; an early end of the sweep says how many of all are kept."""
    keys = {each.key for each in new}
    beside = None if new is planned else [each.key for each in planned if each.key not in keys]
    try:
        return run_all(new, root, beside=beside, **how)
    except (KeyboardInterrupt, SpecsimError) as stop:
        kept = 0 if root is None else len(standing(planned, root))
        if root is None or not (kept or isinstance(stop, KeyboardInterrupt | Unwritable)):
            raise
        on = kept < len(planned)
        further = f"the same command with out={root} goes on" if on else f"specsim plot {root} --out DIR draws them"
        said = f"{kept} of {len(planned)} runs are kept; {further}"
        raise type(stop)(f"{stop}; {said}" if str(stop) else said) from stop.__cause__


class _Seeds:
    """The seeds of each point of a sweep, and what was attained with them."""

    def __init__(self, ready: Sequence[PlannedRun], half_width: float):
        self._asked = half_width
        self._points: dict[PointKey, dict[int, PlannedRun]] = {}
        self._paired: dict[PointKey, list[PointKey]] = {}
        self._attained: dict[PointKey, dict[int, float | None]] = {}
        self.add(ready)

    def add(self, ready: Sequence[PlannedRun]) -> None:
        """Add checked points."""
        for each in ready:
            key = _without(each, SEED)
            if key not in self._points:
                self._paired.setdefault(_without(each, SEED, SCHEDULER), []).append(key)
            self._points.setdefault(key, {})[each.settings.seed] = each

    def points(self) -> list[PlannedRun]:
        """Return all points, their seeds inside."""
        return [seeds[seed] for seeds in self._points.values() for seed in sorted(seeds)]

    def ended(self, point: PlannedRun, attained: float | None) -> None:
        """Note what a run attained, None where it failed; nothing that was prepared of it is kept."""
        key, seed = _without(point, SEED), point.settings.seed
        self._attained.setdefault(key, {})[seed] = attained
        self._points[key][seed] = point.but(experiment=None)

    def more(self, described: Described = NONE_HANDED) -> list[Configured]:
        """Return the points with the seeds that are to run next; none if each is known well enough or has the most."""
        found = []
        for paired in self._paired.values():
            seeds = sorted({seed for key in paired for seed in self._points[key]})
            wanted = max(map(self._wanted, paired))
            seeds += range(seeds[-1] + 1, seeds[-1] + 1 + wanted - len(seeds))
            for key in (each for each in paired if not self._failed(each)):
                like = next(iter(self._points[key].values()))
                lacking = [seed for seed in seeds if seed not in self._points[key]]
                found += [from_point({**like.point, "seed": str(seed)}, described) for seed in lacking]
        return found

    def reached(self) -> str:
        """Return a line about the seeds of the points, and how well these are known."""
        counts = sorted({len(seeds) for seeds in self._points.values()})
        known = [half for half in map(self._half_width, self._points) if isfinite(half)]
        said = [f"{' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} seeds a point"]
        if known:
            said.append(f"the widest interval is \u00b1 {100 * max(known):.2g} points")
        failed = sum(map(self._failed, self._points))
        wide = sum(self._half_width(key) > self._asked and not self._failed(key) for key in self._points)
        if wide:
            most = f"with {MOST_SEEDS} seeds, the most; longer runs narrow it (requests=)"
            said.append(f"{wide} of {len(self._points)} points stay wider {most}")
        if failed:
            said.append(f"{failed} of {len(self._points)} points have a run that failed, and get no more seeds")
        return "; ".join(said)

    def _wanted(self, key: PointKey) -> int:
        """Return how many seeds a point should have."""
        count = len(self._points[key])
        if self._failed(key):
            return count
        if count < LEAST_SEEDS:
            return LEAST_SEEDS
        half = self._half_width(key)
        if key not in self._attained or half <= self._asked or count >= MOST_SEEDS:
            return count
        needed = ceil(count * (half / self._asked) ** 2)
        return min(MOST_SEEDS, GROWTH * count, max(count + 1, needed))

    def _half_width(self, key: PointKey) -> float:
        ended = [each for each in self._attained.get(key, {}).values() if each is not None]
        return mean_interval(np.array(ended))[1] if ended else float("inf")

    def _failed(self, key: PointKey) -> bool:
        return None in self._attained.get(key, {}).values()


def _without(each: PlannedRun, *keys: str) -> PointKey:
    """Return what tells a point from others: its settings but some."""
    return tuple(f"{key}={value}" for key, value in each.point.items() if key not in keys)
