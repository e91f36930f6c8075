"""The rows of a run as arrays by column, for what counts and averages them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pandas import DataFrame, Series


FEW = 10_000
"""Rows whose columns are all made at once, since each is asked for several times; those of more are made each time."""


class Rows:
    """Requests as arrays by column, (N,) each: a table of pandas takes longer to ask than a short run to simulate.

    Those `kept` (all: None) of a column are copied when it is asked for: a copy of all is the most that a run holds.
    """

    def __init__(self, columns: Mapping[str, NDArray[Any]], kept: NDArray[np.bool_] | None = None):
        self.columns, self._kept = columns, kept

    @classmethod
    def of(cls, table: DataFrame | Mapping[str, NDArray[Any]]) -> Rows:
        """Return the rows of a table, or of columns by name."""
        if isinstance(table, Mapping):
            few = len(table["request_id"]) <= FEW
            return cls(dict(table) if few else table)
        return cls({str(name): _array(table[name]) for name in table.columns})

    def __getitem__(self, name: str) -> NDArray[Any]:
        column = self.columns[name]
        return column if self._kept is None else column[self._kept]

    def __len__(self) -> int:
        return len(self.columns["request_id"]) if self._kept is None else int(np.count_nonzero(self._kept))

    @property
    def cancelled_s(self) -> NDArray[np.float64] | None:
        """When each request was cancelled, (N,), NaN if it was not; None where no client gives up."""
        return self["cancelled_s"] if "cancelled_s" in self.columns else None

    @property
    def left_s(self) -> NDArray[np.float64]:
        """When each request finished or was cancelled, (N,); NaN if it was refused at its arrival."""
        finish_s: NDArray[np.float64] = self["finish_s"]
        return finish_s if self.cancelled_s is None else np.fmax(finish_s, self.cancelled_s)

    def where(self, kept: NDArray[np.bool_]) -> Rows:
        """Return those of the rows where `kept` is true."""
        if kept.all():
            return self
        whole = kept
        if self._kept is not None:
            whole = self._kept.copy()
            whole[whole] = kept
        return Rows(self.columns, whole)


def _array(column: Series[Any]) -> NDArray[Any]:
    """Return a column; of words, equal ones are one object."""
    if column.dtype.kind != "O":
        return column.to_numpy()
    codes, words = column.factorize(use_na_sentinel=False)
    found: NDArray[Any] = np.asarray(words, dtype=object)[codes]
    return found
