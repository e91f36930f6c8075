"""How far a sweep is, from its folder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from specsim.errors import SpecsimError
from specsim.files.staging import in_one_step
from specsim.store.runs import METRICS_FILE, PLANNED_FILE, is_run, key_of, planned_in, run_folders
from specsim.store.summaries import read_rows
from specsim.store.sweeps import holds_runs


@dataclass(frozen=True, slots=True)
class SweepStatus:
    """How far a sweep is.

    Attributes
    ----------
    total : points of the last sweep; None if an older version ran it. done, failed : of these, or of all in the folder.
    made, spent_s : runs that were stored since the sweep (of a search: its last rates) began, and seconds from then to
        the last of them.
    idle_s : seconds since that one. worst : the worst class of all runs and its attainment.
    errors : by name, the error lines of runs that failed. notes : on damaged summaries, which are left out.
    """

    total: int | None
    done: int
    failed: int
    made: int
    spent_s: float
    idle_s: float | None
    worst: tuple[str, float] | None
    errors: dict[str, str]
    notes: tuple[str, ...] = ()

    @property
    def left(self) -> int:
        """Points that are neither done nor failed."""
        return 0 if self.total is None else self.total - self.done - self.failed


def write_planned(root: Path, keys: Iterable[str]) -> None:
    """Note which points a sweep has, as it begins.

    Raises
    ------
    SpecsimError
        When it cannot be written.
    """
    with in_one_step(root / PLANNED_FILE) as partial:
        partial.write_text(json.dumps(list(keys)) + "\n", encoding="utf-8")


def sweep_status(root: Path, now_s: float) -> SweepStatus:
    """Return how far the last sweep in a folder is at `now_s`.

    Raises
    ------
    SpecsimError
        When the folder holds no sweep, or its note is damaged.
    """
    keys, began_s = planned_in(root)
    if keys is None and not holds_runs(root):
        raise SpecsimError(f"{str(root)!r} holds no sweep; expected the out= of `specsim run -m` or `specsim sweep`")
    rows, known = read_rows(root), set(keys or ())
    named = {each: each.name.rpartition("-")[2] for each in run_folders(root) if is_run(each)}
    # A run that was made alone or renamed has another name.
    runs = {(key if key in known else key_of(each) or key): each for each, key in named.items()}
    asked = {*rows.runs, *rows.failures, *runs} if keys is None else known
    classes = {key: _worst_in(runs[key]) for key in asked & set(runs)}
    # A run whose metrics are damaged is made again by the next sweep.
    classes |= {key: _worst(rows.runs[key].metrics) for key in asked & set(rows.runs) if not classes.get(key)}
    done = {key for key, worst in classes.items() if worst is not None}
    errors = {each.name: each.error for key, each in rows.failures.items() if key in asked - done}
    stored = [(_time_of(runs[key] / METRICS_FILE), 1) for key in asked & set(runs)]
    stored += [(_time_of(file), count) for file, count in rows.files.items()]
    since = [(at_s, count) for at_s, count in stored if at_s >= began_s]
    last_s = max((at_s for at_s, _ in stored), default=None)
    return SweepStatus(
        total=None if keys is None else len(asked),
        done=len(done),
        failed=len(errors),
        made=sum(count for _, count in since),
        spent_s=max((at_s for at_s, _ in since), default=began_s) - began_s,
        idle_s=None if last_s is None else max(0.0, now_s - last_s),
        worst=min(filter(None, classes.values()), key=lambda each: (each[1], each[0]), default=None),
        errors=errors,
        notes=rows.notes,
    )


def _worst_in(folder: Path) -> tuple[str, float] | None:
    """Return the worst class of a stored run; None where its metrics are damaged."""
    try:
        return _worst(json.loads((folder / METRICS_FILE).read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _worst(metrics: dict[str, dict[str, str]]) -> tuple[str, float]:
    block = metrics["specsim"]
    return block["worst_class"], float(block["worst_class_attainment"])


def _time_of(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return 0.0
