"""A run with somebody watching: what every replica's scheduler asked and was answered, and what its pool held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

import specsim.simulation
from specsim.backend.simulated import GroundTruth, SimulatedBackend
from specsim.core.passes import NOBODY, Drafted, DraftPass, Emitted, Pass, TargetPass
from specsim.core.protocols import Scheduler, Step, View
from specsim.core.request import Ids
from specsim.core.trees import Forest
from specsim.metrics.recorder import Record
from specsim.pass_shape import PassShape
from specsim.server.view import LedgerView
from specsim.simulation import Simulation


class Heard(NamedTuple):
    """One exchange: when the scheduler asked, what for, and the answer."""

    asked_s: float
    work: Pass
    answer: Forest | Emitted


class Listener:
    """A scheduler that passes on what another one says, and keeps it in `heard`."""

    def __init__(self, inner: Scheduler, spy: Callable[[View], None]) -> None:
        self.inner, self._spy = inner, spy
        self.heard: list[Heard] = []

    def __getattr__(self, name: str) -> Any:
        """Offer `use_oracle` and `begin` exactly where the scheduler does."""
        if name in ("use_oracle", "begin"):
            return getattr(self.inner, name)
        raise AttributeError(name)

    def step(self, view: View) -> Step:
        step = self.inner.step(view)
        answer: Any = None
        while True:
            self._spy(view)
            asked_s = view.now_s
            try:
                work = step.send(answer)
            except StopIteration:
                return
            answer = yield work
            self.heard.append(Heard(asked_s, work, answer))


class Watched(NamedTuple):
    """A record, and per replica what was heard and the view that its scheduler had."""

    record: Record
    heard: list[list[Heard]]
    views: list[LedgerView]


Spy = Callable[[View], None]
Inspect = Callable[[LedgerView, Pass, Ids], None]
"""Called when the slots of a pass are taken and nothing of it is booked; with the requests of those nodes, one each,
that draft passes before it extended without being asked again."""


def nothing(*seen: Any) -> None:
    pass


def watched(simulation: Simulation, spy: Spy = nothing, inspect: Inspect = nothing) -> Watched:
    """Run with every scheduler wrapped; `spy` sees each view before each decision."""
    listeners: list[Listener] = []
    views: list[LedgerView] = []

    def scheduler() -> Scheduler:
        listeners.append(Listener(simulation.scheduler(), spy))
        return listeners[-1]

    class Inspected(SimulatedBackend):
        def __init__(self, ground_truth: GroundTruth, truth: Any, view: Any, host_bytes_per_s: float) -> None:
            super().__init__(ground_truth, truth, view, host_bytes_per_s)
            views.append(view)
            self._seen = view
            self._deeper: list[Ids] = []

        def _inspect(self, work: Pass) -> None:
            deeper, self._deeper = np.concatenate([NOBODY, *self._deeper]), []
            inspect(self._seen, work, deeper)

        def draft(self, work: DraftPass, shape: PassShape) -> Drafted:
            self._inspect(work)
            drafted = super().draft(work, shape)
            self._deeper.append(work.requests[drafted.forest.row[drafted.extended]])
            return drafted

        def verify(self, work: TargetPass, shape: PassShape) -> tuple[Emitted, float]:
            self._inspect(work)
            return super().verify(work, shape)

    with patch.object(specsim.simulation, "SimulatedBackend", Inspected):
        record = specsim.simulation.run(replace(simulation, scheduler=scheduler, multi_step=False))
    return Watched(record, [each.heard for each in listeners], views)


TREE = ("row", "parent", "depth", "token", "probability", "path_probability")
"""What a forest says; `slot` is the backend's own mark."""


def same(one: Any, other: Any) -> bool:
    """Return whether two passes, or two answers, say exactly the same."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Forest):
        return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in TREE)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(np.array_equal(one, other))
