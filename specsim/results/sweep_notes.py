"""The notes of many runs as few lines: what several runs share once, verdicts on load and extrapolation counted."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

COLUMNS = {
    "OVERLOADED": ("load.overloaded",),
    "too short": ("load.too_short", "load.attainment_half_width"),
    "near saturation": ("load.saturated",),
    "not steady": ("load.steady",),
}
"""The kinds of a note on the load (`specsim.results.load_notes`), and the columns of a table that tell which runs."""
EXTRAPOLATED = re.compile(r"(\d+) of (\d+) passes lie outside the range")

Names = Callable[[int], str]
"""Returns the name of a run by its place; an empty one where it needs none."""


def extrapolated(outside: int, passes: int) -> str:
    """Return the note of a run with passes outside the range of its profile."""
    return f"{outside} of {passes} passes lie outside the range the profile was fitted on: extrapolated"


def in_short(notes: Sequence[Sequence[str]], name: Names) -> list[str]:
    """Return the notes of several runs, each once; a kind in `COLUMNS`, or extrapolation, as a number of runs.

    A kind that one run has is said in full, with the `name` of the run.
    """
    every = dict.fromkeys(note for each in notes for note in each)
    plain = [note for note in every if _kind(note) is None and not EXTRAPOLATED.match(note)]
    return [*plain, *_outside(notes, name), *(line for kind in COLUMNS for line in _of_kind(kind, notes, name))]


def _kind(note: str) -> str | None:
    kind = note.partition(":")[0]
    return kind if kind in COLUMNS else None


def _of_kind(kind: str, notes: Sequence[Sequence[str]], name: Names) -> list[str]:
    found = [(place, note) for place, each in enumerate(notes) for note in each if _kind(note) == kind]
    if not found:
        return []
    if len(found) == 1:
        ((place, note),) = found
        return [f"{kind}: {_before(name(place))}{note.removeprefix(kind).removeprefix(': ')}"]
    columns = COLUMNS[kind]
    tell = f"column {columns[0]} tells" if len(columns) == 1 else f"columns {' and '.join(columns)} tell"
    count = f"{len(found)} of {len(notes)} runs"
    return [f"{kind}: {count}; the table's {tell} which, the notes in each run's provenance why"]


def _outside(notes: Sequence[Sequence[str]], name: Names) -> list[str]:
    found = [(EXTRAPOLATED.match(note), place, note) for place, each in enumerate(notes) for note in each]
    passes = [(int(each[1]), int(each[2]), place, note) for each, place, note in found if each]
    if len(passes) == 1:
        ((_, _, place, note),) = passes
        return [f"{_before(name(place))}{note}"]
    if not passes:
        return []
    outside, of, place, _ = max(passes, key=lambda each: each[0] / each[1])
    most = f"{outside} of {of} passes ({100 * outside / of:.2g}%)"
    runs = f"{len(passes)} of {len(notes)} runs"
    return [f"extrapolated: {runs} have passes outside the range of their profile, at most {most} in {name(place)}"]


def _before(name: str) -> str:
    return f"{name}: " if name else ""
