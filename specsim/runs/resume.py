"""Whether a stored run still stands: undamaged, and made by the code and from the files that are there now."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from specsim.runs.provenance import PACKAGES, versions
from specsim.store.run_folder import damage
from specsim.store.runs import StoredRun

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
