"""Plays the engine and the backend by hand, against a real ledger, one exchange at a time."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from specsim.core.passes import DraftPass, Emitted, Pass, TargetPass
from specsim.core.protocols import Beginning, Scheduler
from specsim.core.request import Requests
from specsim.server.kv_cache import Memory
from specsim.server.planning import owned
from tests.layers import grow
from tests.levels import one_by_one
from tests.made import ledger_and_view


class Hand:
    """One replica at which all of `told` have arrived; every pass takes 0.01 s.

    `work` is what the scheduler asks for now, None once its step is over; draft passes come one by one.
    """

    def __init__(self, scheduler: Scheduler, told: Requests, pool: Memory | None = None) -> None:
        self.ledger, self.view = ledger_and_view(told, pool)
        self.scheduler = scheduler
        if isinstance(scheduler, Beginning):
            scheduler.begin(len(told))
        self.work: Any = None
        self._step: Any = None

    def begin(self) -> Pass:
        """Start a step; return its first pass, already checked by the ledger."""
        assert self.work is None, "the last step is not over"
        self._step = one_by_one(self.scheduler.step(self.view))
        return self._ask(None)

    def propose(self, *sure: float) -> Any:
        """Answer a draft: ranks 0, 1, ... behind every leaf, with these confidences."""
        work = self.work
        assert isinstance(work, DraftPass), work
        parents = np.repeat(work.leaves, work.width)
        tokens = np.tile(np.arange(work.width), len(work.leaves))
        confidence = np.array(sure)[tokens] if work.width else np.zeros(0)
        path = confidence * work.forest.path_probability[parents]
        kept = beam_of(work.forest.row[parents], path, work.beam)
        grown = work.forest
        if len(kept):
            grown = grow(grown, parents[kept], tokens[kept], confidence[kept], path[kept], np.zeros_like(kept))
        self.ledger.commit_draft(work, grown, self.view.now_s)
        return self._ask(grown)

    def emit(self, tokens: Sequence[int], matched: Sequence[int] | None = None, ends: Sequence[int] = ()) -> Any:
        """Answer a verification: what each row emits, and how much of its tree was right; rows `ends` finish."""
        work = self.work
        assert isinstance(work, TargetPass), work
        right = np.array([0] * len(tokens) if matched is None else matched)
        finished = np.isin(np.arange(len(tokens)), ends)
        answer = Emitted(np.array(tokens), np.minimum(right, tokens), right, finished)
        self.ledger.commit_verify(work, answer, self.view.now_s, self.view.now_s + 0.01)
        return self._ask(answer)

    def _ask(self, answer: Any) -> Any:
        if answer is not None:
            self.view.now_s += 0.01
            self.view.forward_s += 0.01
        try:
            self.work = owned(self._step.send(answer))
            self.ledger.reserve(self.work)
        except StopIteration:
            self.work = None
            self.ledger.end_step()
        return self.work


def beam_of(rows: Any, path: Any, beam: int | None) -> Any:
    """Return which entries are among their row's `beam` highest, the earlier first where equal, in order of entry."""
    places = np.arange(len(path))
    better = [
        (rows == rows[each]) & ((path > path[each]) | ((path == path[each]) & (places < each))) for each in places
    ]
    return np.array([each for each in places if beam is None or better[each].sum() < beam], dtype=np.int64)


def sizes(work: TargetPass) -> list[int]:
    tokens: list[int] = work.forest.tree_tokens().tolist()
    return tokens
