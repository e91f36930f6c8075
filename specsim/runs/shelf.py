"""The summaries of a sweep while it runs: those that still stand, and those that end, written every second."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from specsim.errors import SpecsimError
from specsim.runs.plan import PlannedRun
from specsim.runs.resume import changed
from specsim.store.failure import Failure
from specsim.store.parts import merge_parts, read_parts, write_part
from specsim.store.summaries import Summary

PART_S = 1.0
"""Seconds after which what has ended is written: a killed sweep loses no more, beside the points that were running."""


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
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._writer = threading.Thread(target=self._keep_writing, daemon=True)
        self._broken: Exception | None = None
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
        """Keep a summary, or the failure of a run without a folder; all else has its own place.

        It is written within `PART_S`, even if no other ends. What cannot be written fails at the next one.
        """
        if self._root is None or not (isinstance(one, Summary) or (isinstance(one, Failure) and one.folder is None)):
            return
        if self._broken is not None:
            raise self._broken
        with self._lock:
            self._rows.append(one)

    def merge(self) -> None:
        """Write all that the folder keeps anew, so that its files depend on its rows alone."""
        if self._root is not None:
            merge_parts(self._root)

    def __enter__(self) -> Shelf:
        if self._root is not None:
            self._writer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._root is not None:
            self._ended.set()
            self._writer.join()
            self._write(self._root)

    def _keep_writing(self) -> None:
        assert self._root is not None
        while not self._ended.wait(PART_S):
            try:
                self._write(self._root)
            except (OSError, SpecsimError) as error:
                self._broken = error
                return

    def _write(self, root: Path) -> None:
        with self._lock:
            if self._rows:
                write_part(root, self._rows)
                self._rows.clear()
