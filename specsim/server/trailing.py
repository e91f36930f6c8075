"""Verifications that a request is in behind its last token: those decided before its end was known."""

from __future__ import annotations

import numpy as np

from specsim.core.request import Ints
from specsim.pass_shape import PassShape


class Trailing:
    """Rows of requests that have ended, in so many further verifications beside the rows that go on.

    An engine that decides steps ahead finds an end when the next step is under way. The row's tokens and drafts take
    their time in it, and nothing of it is kept. An idle engine runs no such step here.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._rows: list[tuple[int, PassShape]] = []

    def __bool__(self) -> bool:
        return bool(self._rows)

    def leave(self, cached: Ints, nodes: Ints) -> None:
        """Keep rows that have ended with so many tokens in the cache, (n,), and as many drafts a step as `nodes`."""
        if len(cached):
            self._rows.append((self._steps, PassShape.of(cached, np.ones_like(cached), nodes)))

    def idle(self) -> None:
        """Drop the rows: the engine runs nothing."""
        self._rows = []

    def joined(self, shape: PassShape) -> PassShape:
        """Return the shape of a verification with the rows that are still in it, each once more."""
        for _, row in self._rows:
            shape = shape.plus(row)
        self._rows = [(steps - 1, row) for steps, row in self._rows if steps > 1]
        return shape
