"""Draft passes that carry several levels, asked for one by one."""

from collections.abc import Generator
from math import inf
from typing import Any

import numpy as np

from specsim.core.passes import NOBODY, DraftPass
from specsim.core.protocols import Scheduler, Step, View
from specsim.core.trees import Forest


def one_by_one(step: Step) -> Step:
    """Yield what `step` does, each draft pass in passes of depth 1."""
    answer: Any = None
    while True:
        try:
            work = step.send(answer)
        except StopIteration:
            return
        answer = (yield from levels(work)) if isinstance(work, DraftPass) else (yield work)


def levels(work: DraftPass) -> Generator[DraftPass, Forest, Forest]:
    before = len(work.forest)
    forest = yield work._replace(depth=1, max_depth=None, stationary_until_s=-inf)
    for _ in range(work.depth - 1):
        leaves = np.arange(before, len(forest))
        if work.max_depth is not None:
            leaves = leaves[forest.depth[leaves] < work.max_depth[forest.row[leaves]]]
        if not len(leaves):
            break
        before = len(forest)
        forest = yield DraftPass(work.requests, NOBODY, forest, leaves, work.width, work.beam)
    return forest


class OneByOne:
    """A scheduler that asks for what another one asks, one draft pass after the other."""

    def __init__(self, inner: Scheduler) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        """Offer `use_oracle` and `begin` exactly where the scheduler does."""
        if name in ("use_oracle", "begin"):
            return getattr(self._inner, name)
        raise AttributeError(name)

    def step(self, view: View) -> Step:
        return one_by_one(self._inner.step(view))
