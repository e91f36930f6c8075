"""How far a sweep is, from its folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from specsim.errors import SpecsimError
from specsim.files.staging import in_one_step
from specsim.store.runs import METRICS_FILE, PLANNED_FILE, ROUNDS, damage, key_of, planned_in, run_folders
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
    errors : by name, the error lines of runs that failed. notes : on what is damaged, and on rounds.
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


def write_planned(root: Path, keys: Iterable[str], *, in_rounds: bool = False) -> None:
    """Note which points a sweep has, as it begins, or has up to this of its rounds.

    Raises
    ------
    SpecsimError
        When it cannot be written.
    """
    with in_one_step(root / PLANNED_FILE) as partial:
        noted = {ROUNDS: list(keys)} if in_rounds else list(keys)
        partial.write_text(json.dumps(noted) + "\n", encoding="utf-8")


def sweep_status(root: Path, now_s: float) -> SweepStatus:
    """Return how far the last sweep in a folder is at `now_s`.

    Raises
    ------
    SpecsimError
        When the folder holds no sweep, or its note is damaged.
    """
    keys, began_s, in_rounds = planned_in(root)
    if keys is None and not holds_runs(root):
        raise SpecsimError(f"{str(root)!r} holds no sweep; expected the out= of `specsim run -m` or `specsim sweep`")
    rows, known = read_rows(root), set(keys or ())
    named = {each: each.name.rpartition("-")[2] for each in run_folders(root)}
    # A run that was made alone or renamed has another name.
    runs = {(key if key in known else key_of(each) or key): each for each, key in named.items()}
    asked = {*rows.runs, *rows.failures, *runs} if keys is None else known
    damaged = {key: found for key in asked & set(runs) if (found := damage(runs[key])) is not None}
    # A damaged run is made again by the next sweep.
    classes = {key: None if key in damaged else _worst_in(runs[key]) for key in asked & set(runs)}
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
        notes=(*rows.notes, *_notes({runs[key].name: said for key, said in damaged.items()}, in_rounds=in_rounds)),
    )


def _notes(damaged: Mapping[str, str], *, in_rounds: bool) -> Iterator[str]:
    """Yield a note on damaged runs, by name what is, and one on rounds."""
    if damaged:
        name = min(damaged)
        yield f"damaged, to be made again by the same command: {len(damaged)} of the runs, as {name} ({damaged[name]})"
    if in_rounds:
        yield "these are the rounds so far: a search, as a sweep with --until, adds runs until it has its answer"


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
    except OSError:
        return 0.0
