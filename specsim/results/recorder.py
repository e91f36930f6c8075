"""Rows as they happen: one per pass on request, running totals always; nothing is aggregated further here."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from specsim.replica.ledger import Gaps
from specsim.results.pauses import Pauses
from specsim.results.schema import DRAFT_PASS, PASS_COLUMNS, VERIFY_PASS, RunTotals
from specsim.results.window import Window
from specsim.replica.protocols import Belief, PassShape
from specsim.replica.passes import DraftPass, Pass

WATCHED_EVERY = 64
CODES = {"float64": "d", "int8": "b", "int32": "i", "int64": "q"}


def _columns() -> dict[str, array[Any]]:
    return {name: array(CODES[kind]) for name, kind in PASS_COLUMNS.items()}


class Recorder:
    """Keeps what happened in every pass; hand `book` to the engine. `watch` is called every so many iterations.

    Parameters
    ----------
    keep_passes : keep one row per pass for `passes.parquet`.
    truth : the latency model, asked which passes lie outside its range.
    queued : returns how many requests wait at a replica.
    pauses : takes the gaps between emissions.
    """

    def __init__(self, keep_passes: bool, truth: Belief, queued: Callable[[int], int], pauses: Pauses) -> None:
        self._passes = _columns() if keep_passes else None
        self._models = (truth.draft, truth.target)
        self._queued = queued
        self._pauses = pauses
        self._out_of_range = 0
        self.watch: Callable[[], None] | None = None
        self.iterations = 0
        self.draft_passes = 0
        self._prefill_s = self._selection_s = 0.0
        self._model_s = [0.0, 0.0]

    def book(
        self,
        replica: int,
        start_s: float,
        seconds: float,
        thinking_s: float,
        work: Pass,
        shape: PassShape,
        answer: Any,
        gaps: Gaps | None,
    ) -> None:
        """Record one pass; see `specsim.replica.engine.Booking`."""
        kind = DRAFT_PASS if gaps is None else VERIFY_PASS
        if shape.prefill_tokens:
            prefill_s = seconds * shape.prefill_tokens / shape.batched_tokens
            self._prefill_s += prefill_s
            self._model_s[kind] += seconds - prefill_s
        else:
            self._model_s[kind] += seconds
        self._selection_s += thinking_s
        self._out_of_range += self._models[kind].extrapolates(shape.context_tokens, shape.batched_tokens)
        if gaps is None:
            self.draft_passes += 1
        else:
            self.iterations += 1
            if self.watch is not None and self.iterations % WATCHED_EVERY == 0:
                self.watch()
            self._pauses.add(gaps.requests, gaps.seconds)
        if self._passes is not None:
            self._keep(replica, start_s, thinking_s + seconds, kind, work, shape, answer)

    def _keep(
        self,
        replica: int,
        start_s: float,
        seconds: float,
        kind: int,
        work: Pass,
        shape: PassShape,
        answer: Any,
    ) -> None:
        forest = answer if isinstance(work, DraftPass) else work.forest
        row = (
            start_s,
            seconds,
            kind,
            replica,
            len(work.requests),
            shape.batched_tokens,
            shape.context_tokens,
            shape.prefill_tokens,
            forest.draft_nodes,
            int(forest.depth.max()),
            int(answer.tokens.sum()) if kind else 0,
            self._queued(replica),
        )
        assert self._passes is not None
        for column, value in zip(self._passes.values(), row, strict=True):
            column.append(value)

    def totals(self, duration_s: float, replicas: int, window: Window | None) -> RunTotals:
        """Return the totals of a run that lasted `duration_s` on so many replicas, its latencies those of `window`."""
        draft_s, verify_s = self._model_s
        busy_s = self._prefill_s + self._selection_s + draft_s + verify_s
        return RunTotals(
            iterations=self.iterations,
            draft_passes=self.draft_passes,
            prefill_s=self._prefill_s,
            draft_s=draft_s,
            selection_s=self._selection_s,
            verify_s=verify_s,
            idle_s=max(duration_s * replicas - busy_s, 0.0),
            itl_s=self._pauses.latencies_s,
            out_of_range_passes=self._out_of_range,
            itl_window=window,
        )

    def passes(self) -> dict[str, npt.NDArray[Any]] | None:
        """Return one array per column of `passes.parquet`, None when they were not kept."""
        if self._passes is None:
            return None
        return {name: np.array(column) for name, column in self._passes.items()}
