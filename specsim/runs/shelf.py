"""The summaries of a sweep while it runs: those that still stand, and those that end, written every second."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from specsim.results.failure import Failure
from specsim.results.parts import merge_parts, read_parts, write_part
from specsim.results.summaries import Summary
from specsim.runs.plan import PlannedRun
from specsim.runs.resume import changed

PART_S = 1.0
"""Seconds of work that a killed sweep loses at most, beside the points that were running."""


class Shelf:
    """What the parts in a folder keep of a sweep; a shelf without a folder keeps nothing.

    Attributes
    ----------
    standing : by place in the sweep, the summaries that are there and stand. again : why others are made again.
    notes : lines about parts that are damaged.
    """

    def __init__(self, root: Path | None, planned: Sequence[PlannedRun]):
        self.standing: dict[int, Summary] = {}
        self.again: list[str] = []
        self.notes: tuple[str, ...] = ()
        self._root = root
        self._rows: list[Summary | Failure] = []
        self._written_s = time.monotonic()
        if root is None:
            return
        found = read_parts(root)
        self.notes = found.notes
        for place, each in enumerate(planned):
            summary = found.runs.get(each.key) if each.folder is None else None
            if summary is None:
                continue
            reason = changed(summary.provenance, each.sources)
            if reason is None:
                self.standing[place] = summary
            else:
                self.again.append(reason)
        kept = {each.key for each in self.standing.values()}
        there = {*found.runs, *found.failures} - kept
        outdated = [each.key for each in planned if each.folder is None and each.key in there]
        if outdated or found.notes:
            merge_parts(root, without=outdated)

    def put(self, one: Any) -> None:
        """Keep a summary, or the failure of a run without a folder; all else has its own place."""
        if self._root is None or not (isinstance(one, Summary) or (isinstance(one, Failure) and one.folder is None)):
            return
        self._rows.append(one)
        if time.monotonic() - self._written_s >= PART_S:
            self._write(self._root)

    def merge(self) -> None:
        """Write all that the folder keeps anew, so that its files depend on its rows alone."""
        if self._root is not None:
            merge_parts(self._root)

    def __enter__(self) -> Shelf:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._root is not None:
            self._write(self._root)

    def _write(self, root: Path) -> None:
        if self._rows:
            write_part(root, self._rows)
            self._rows.clear()
        self._written_s = time.monotonic()
