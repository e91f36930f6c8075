"""Schedulers that other packages bring: entry points of one group."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

GROUP = "specsim.schedulers"


def installed() -> dict[str, EntryPoint]:
    """Return the schedulers that other packages bring, by the names of their entry points."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}
