"""What other packages bring: entry points, one group for each kind of thing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points

ENTRY_POINTS = {
    "scheduler": "specsim.schedulers",
    "trace": "specsim.traces",
    "acceptance": "specsim.acceptance",
    "drafter": "specsim.drafters",
    "router": "specsim.routers",
}
"""Groups of settings that are open, and the group of entry points of each."""


@cache
def installed(group: str) -> Mapping[str, EntryPoint]:
    """Return what other packages bring for a group of settings, by name; nothing where the group is not open."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS[group])} if group in ENTRY_POINTS else {}
