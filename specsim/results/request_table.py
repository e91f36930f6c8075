"""The rows of ``requests.parquet``: facts, progress and met objectives of each request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from specsim.replica.request import Bools, Facts, Floats, Ints, Requests
from specsim.replica.state import Moves, Progress
from specsim.results.schema import NOTED, REQUEST_COLUMNS, SPLIT_COLUMNS, TIMEOUT_COLUMNS

if TYPE_CHECKING:
    from pandas import DataFrame

# Latencies are differences of clock readings: one that should equal its SLO may differ in the last bits.
SLO_RELATIVE_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class RequestTable(Mapping[str, npt.NDArray[Any]]):
    """The columns of `REQUEST_COLUMNS`, those of a split run and of one with time-outs, and what was noted.

    A column, (N,), is derived when it is asked for: all of them would be the largest thing in memory of a long run.
    What was told and what has happened are the run's own arrays, not to be written to; `frame` has copies.

    ``slo_ok`` means that every objective is met: TTFT, and TPOT as vLLM measures it. ``decode_tpot_ok`` is AdaServe's
    measure: decode latency per token alone.

    Attributes
    ----------
    told, done : facts known at arrival, and progress, (N,) each.
    longest_pause_s, moving_s : (N,) seconds. noted : (N,) by name. replica_of : (N,) indices.
    reason : (N,) why each was rejected, ``""`` for those that were not. moves : between the pools of a split.
    cancelled_s : (N,) when each was cancelled, NaN if it was not; None where no client gives up.
    first_id : id of the first row.
    """

    told: Requests
    done: Progress
    longest_pause_s: Floats
    moving_s: Floats
    noted: Mapping[str, Floats]
    replica_of: Ints
    reason: npt.NDArray[Any]
    moves: Moves | None = None
    cancelled_s: Floats | None = None
    first_id: int = 0

    @cached_property
    def types(self) -> dict[str, str]:
        """Name and type of each column, in order."""
        split = {} if self.moves is None else SPLIT_COLUMNS
        timeout = {} if self.cancelled_s is None else TIMEOUT_COLUMNS
        return REQUEST_COLUMNS | split | timeout | {f"{NOTED}{name}": "float64" for name in self.noted}

    @property
    def rows(self) -> int:
        """Number of requests, N."""
        return len(self.told)

    def __iter__(self) -> Iterator[str]:
        return iter(self.types)

    def __len__(self) -> int:
        return len(self.types)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name in _MADE:
            column: npt.NDArray[Any] = _MADE[name](self)
        elif name in SPLIT_COLUMNS and self.moves is not None:
            column = self.moves[list(SPLIT_COLUMNS).index(name)]
        elif name in TIMEOUT_COLUMNS and self.cancelled_s is not None:
            column = self.cancelled_s
        elif name.startswith(NOTED):
            column = self.noted[name.removeprefix(NOTED)]
        elif name in self.types:
            column = getattr(self.told if hasattr(self.told, name) else self.done, name)
        else:
            raise KeyError(name)
        return column

    def apart(self) -> RequestTable:
        """Return the table with copies of what was told: a caller's trace may be written to after the run."""
        return replace(self, told=_each(self.told, np.copy))

    def parts(self, rows: int) -> Iterator[RequestTable]:
        """Yield the table in parts of so many rows, which hold no copies."""
        for first in range(0, self.rows, rows):
            yield self._part(slice(first, first + rows))

    def _part(self, those: slice) -> RequestTable:
        moves = self.moves
        if moves is not None:
            moves = Moves(moves.prefill_of[those], moves.moved_bytes[those], moves.moving_s[those])
        return RequestTable(
            _each(self.told, lambda column: column[those]),
            _each(self.done, lambda column: column[those]),
            self.longest_pause_s[those],
            self.moving_s[those],
            {name: column[those] for name, column in self.noted.items()},
            self.replica_of[those],
            self.reason[those],
            moves,
            None if self.cancelled_s is None else self.cancelled_s[those],
            self.first_id + those.start,
        )

    def frame(self) -> DataFrame:
        """Return the table with columns of its own."""
        import pandas as pd

        return pd.DataFrame({name: column.copy() for name, column in self.items()}, copy=False)

    @property
    def _completed(self) -> Bools:
        completed: Bools = self.reason == ""
        return completed

    @property
    def _ttft_s(self) -> Floats:
        return self.done.first_token_s - self.told.arrival_s

    @property
    def _tpot_s(self) -> Floats:
        return _divide(self.done.finish_s - self.done.first_token_s, self.done.emitted_tokens - 1)

    @property
    def _decode_tpot_s(self) -> Floats:
        return _divide(self.done.finish_s - self.done.first_decode_s, self.done.decoded_tokens)

    @property
    def _ttft_ok(self) -> Bools:
        return self._completed & _meets(self._ttft_s, self.told.ttft_slo_s)

    def _paced(self, tpot_s: Floats) -> Bools:
        """Return which requests were served at their pace: a single token has none to keep."""
        return self._completed & (_meets(tpot_s, self.told.tpot_slo_s) | (self.done.emitted_tokens <= 1))


_MADE: dict[str, Callable[[RequestTable], npt.NDArray[Any]]] = {
    "request_id": lambda table: np.arange(table.first_id, table.first_id + table.rows),
    "slo_class": lambda table: np.array(table.told.class_names, dtype=object)[table.told.slo_class],
    "output_tokens": lambda table: table.done.emitted_tokens,
    "longest_pause_s": lambda table: table.longest_pause_s,
    "moving_s": lambda table: table.moving_s,
    "replica": lambda table: table.replica_of,
    "ttft_s": lambda table: table._ttft_s,
    "tpot_s": lambda table: table._tpot_s,
    "decode_tpot_s": lambda table: table._decode_tpot_s,
    "e2el_s": lambda table: table.done.finish_s - table.told.arrival_s,
    "slo_tpot_s": lambda table: table.told.tpot_slo_s,
    "slo_ttft_s": lambda table: table.told.ttft_slo_s,
    "ttft_ok": lambda table: table._ttft_ok,
    "tpot_ok": lambda table: table._paced(table._tpot_s),
    "slo_ok": lambda table: table._ttft_ok & table._paced(table._tpot_s),
    "decode_tpot_ok": lambda table: table._paced(table._decode_tpot_s),
    "rejected_reason": lambda table: table.reason,
}
"""Columns that are no field of what was told or done under their name."""


def reasons(requests: int, rejected: Mapping[int, str]) -> npt.NDArray[Any]:
    """Return why each request was rejected, (N,) objects; ``""`` for those that were not."""
    reason = np.full(requests, "", dtype=object)
    reason[list(rejected)] = list(rejected.values())
    return reason


def _each(rows: Any, changed: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Any:
    """Return rows whose columns, those of `Facts` or `Progress`, are changed."""
    columns = [field.name for field in fields(Facts if isinstance(rows, Facts) else Progress)]
    return replace(rows, **{name: changed(getattr(rows, name)) for name in columns})


def _meets(latency_s: Floats, slo_s: Floats) -> Bools:
    return np.isnan(slo_s) | (latency_s <= slo_s * (1 + SLO_RELATIVE_TOLERANCE))


def _divide(span_s: Floats, tokens: Ints) -> Floats:
    quotient = np.full(len(span_s), np.nan)
    np.divide(span_s, tokens, out=quotient, where=tokens > 0)
    return quotient
