"""A tape of somebody's own kind: held against what a tape is, before the run and at every answer of its layout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specsim.errors import SpecsimError
from specsim.kinds.table import asked
from specsim.replica.request import Bools, Ints
from specsim.world.recorded import RecordedTexts
from specsim.world.stretches import Stretches
from specsim.world.tape import Layout, Pools, Tape

OURS = (Pools, RecordedTexts, Stretches)


def guarded(tape: Tape, requests: int, source: str) -> Tape:
    """Return a tape of `requests` requests whose layout's answers are checked, unless the layout is of specsim.

    Raises
    ------
    SpecsimError
        When an array is not what `specsim.world.tape.Tape` says: one line that names it.
    """
    confidence, rank, keys = tape.confidence, tape.rank, tape.keys
    _check_array(source, "confidence", confidence, np.float64, 2)
    _check_array(source, "rank", rank, np.int64, 1)
    _check_array(source, "keys", keys, np.uint64, 1)
    rows, width = confidence.shape
    if len(keys) != requests:
        raise SpecsimError(f"{source}: its tape is of {len(keys)} requests; expected {requests}")
    if len(rank) != rows or not rows or not width:
        raise SpecsimError(f"{source}: its tape has {rows} rows of {width} confidences and {len(rank)} ranks")
    for wrong, what in (
        (~((confidence >= 0) & (confidence <= 1)).all(axis=1), "a confidence that is no probability"),
        ((np.diff(confidence, axis=1) > 0).any(axis=1), "confidences that rise"),
        ((rank < 0) | (rank > width), f"a rank that is not between 0 and {width}"),
    ):
        if wrong.any():
            raise SpecsimError(f"{source}: row {int(wrong.argmax())} of its tape has {what}")
    return tape if isinstance(tape.layout, OURS) else replace(tape, layout=Guarded(source, tape.layout, rows))


@dataclass(frozen=True, slots=True)
class Guarded:
    """A layout of somebody's own; `rows_there` is the number of rows of its tape."""

    source: str
    inner: Layout
    rows_there: int

    def rows(self, requests: Ints, keys: Any, hashed: Any, on: Bools) -> Ints:
        """Return the row that each key falls on, (n,)."""
        found: Ints = asked(self.source, self.inner.rows, np.ndarray, requests, keys, hashed, on)
        self._check("rows", found)
        if found.shape != requests.shape:
            raise SpecsimError(f"{self.source}: its layout's rows are {found.shape}; expected {requests.shape}")
        return found

    def text_rows(self, requests: Ints) -> Ints:
        """Return the rows that the texts of these requests are made of, each once."""
        found: Ints = asked(self.source, self.inner.text_rows, np.ndarray, requests)
        self._check("text_rows", found)
        return found

    def _check(self, name: str, found: Ints) -> None:
        _check_array(self.source, f"its layout's {name}", found, np.int64, 1)
        if len(found) and not (found.min() >= 0 and found.max() < self.rows_there):
            raise SpecsimError(f"{self.source}: its layout's {name} are not between 0 and {self.rows_there - 1}")


def _check_array(source: str, name: str, found: Any, kind: Any, dimensions: int) -> None:
    if not isinstance(found, np.ndarray) or found.dtype != kind or found.ndim != dimensions:
        what = f"{found.shape} of {found.dtype}" if isinstance(found, np.ndarray) else type(found).__name__
        raise SpecsimError(f"{source}: {name}: {what}; expected an array of {np.dtype(kind)}, {dimensions}-dimensional")
