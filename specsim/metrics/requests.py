"""The table of requests: columns, units, measuring window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from specsim.core.request import Bools, Facts, Floats, Ints, Requests
from specsim.metrics.statistics import Sketched
from specsim.server.state import Moves, Progress

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pandas import DataFrame, Series


Window: TypeAlias = tuple[float, float]
"""First and last second of arrival, both included."""


def counts(window: Window, arrival_s: Floats) -> Bools:
    """Return which requests arrive within the window, (N,)."""
    inside: Bools = (arrival_s >= window[0]) & (arrival_s <= window[1])
    return inside


def counted(requests: DataFrame, metrics: Mapping[str, Any]) -> DataFrame:
    """Return the requests that the metrics of a run count: those that arrive within its window."""
    window = metrics["specsim"]["window"]
    return requests if window is None else requests[counts(window, requests["arrival_s"].to_numpy())]


SCHEMA_VERSION = 2

REQUEST_COLUMNS: dict[str, str] = {
    "request_id": "int64",
    "slo_class": "string",
    "arrival_s": "float64",
    "first_token_s": "float64",
    "finish_s": "float64",
    "ttft_s": "float64",
    "tpot_s": "float64",
    "decode_tpot_s": "float64",
    "e2el_s": "float64",
    "prompt_tokens": "int64",
    "output_tokens": "int64",
    "slo_tpot_s": "float64",
    "slo_ok": "bool",
    "draft_tokens": "int64",
    "accepted_tokens": "int64",
    "verifications": "int64",
    "preemptions": "int64",
    "rejected_reason": "string",
    "slo_ttft_s": "float64",
    "first_decode_s": "float64",
    "decoded_tokens": "int64",
    "speculations": "int64",
    "longest_pause_s": "float64",
    "ttft_ok": "bool",
    "tpot_ok": "bool",
    "decode_tpot_ok": "bool",
    "moving_s": "float64",
    "replica": "int64",
}
"""Columns of ``requests.parquet``, which has a row for each arrived request in the order of ids.

Times are seconds on the simulated clock; NaN if the event did not happen (rejected; nothing decoded). Objectives are in
seconds, NaN for none. ``draft_tokens`` counts the nodes that the target verified, ``verifications`` the decoding target
passes, ``speculations`` those with a draft token. ``longest_pause_s`` is the longest time between two emissions, NaN
with fewer than two. ``rejected_reason`` is ``""`` for a request that was not rejected. ``moving_s`` is the time
in which the cache moved to the host and back. ``replica`` is the index of the replica that the request was sent to, in
a split run last.
"""

SPENT_COLUMNS: dict[str, str] = {"prompts_s": "float64", "drafting_s": "float64"}
"""Columns behind those: seconds from the first token to the last by what the replica spent them on.

They are `specsim.metrics.recorder.Recorder.spent_s`. Runs of older versions lack them.
"""

SPLIT_COLUMNS: dict[str, str] = {
    "split.prefill_replica": "int64",
    "split.moved_bytes": "int64",
    "split.moving_s": "float64",
    "split.arrived_s": "float64",
}
"""Further columns of ``requests.parquet`` where prefill and decode are split (`specsim.server.state.Moves`)."""

TIMEOUT_COLUMNS: dict[str, str] = {"cancelled_s": "float64"}
"""A further column of ``requests.parquet`` where clients give up: when each was cancelled, NaN if it was not."""

JOINED_COLUMNS: dict[str, str] = {"trace_row": "int64", "session": "int64"}
"""Further columns where the trace is a recording, or names sessions (`specsim.workload.trace.Trace.joined`)."""

FURTHER_COLUMNS = SPENT_COLUMNS | SPLIT_COLUMNS | TIMEOUT_COLUMNS | JOINED_COLUMNS
"""Columns that ``requests.parquet`` has only of some runs."""

NOTED = "noted."
"""Begins the names of further columns of ``requests.parquet``, float64: what a scheduler notes of each request."""

PER_POSITION = "accepted_tokens_per_pos."
"""Begins the names of further columns, int64: verifications in which the draft at a position, from 0, was right.

They are there up to the deepest position with a right draft (vLLM's counter of that name), 16 at most.
"""

PASS_COLUMNS: dict[str, str] = {
    "start_s": "float64",
    "seconds": "float64",
    "kind": "int8",
    "replica": "int32",
    "requests": "int32",
    "batched_tokens": "int64",
    "context_tokens": "int64",
    "prefill_tokens": "int64",
    "draft_tokens": "int64",
    "depth": "int32",
    "emitted_tokens": "int64",
    "accepted_tokens": "int64",
    "queued": "int32",
}

SHED_REASONS = ("shed_waiting", "shed_ttft")
"""Reasons of requests that a replica refused since it had too much to do."""

DRAFT_PASS = 0
VERIFY_PASS = 1


@dataclass(frozen=True, slots=True, eq=False)
class RunTotals:
    """Totals of a run that are of no single request; seconds are summed over replicas.

    ``itl_s`` holds one inter-token latency per emission after a request's first, as vLLM counts, in any order; of too
    many to keep it holds statistics. ``itl_window`` is the window of the requests that they are of; None: all.
    ``clients`` is the number of clients that waited for their answers; None: requests came by themselves. ``moving_s``
    is part of the seconds of the passes behind which caches moved. ``prefix_queries`` are the prompt tokens that were
    looked up in the prefix cache, ``prefix_hits`` those that were found. ``begun_by`` (N,) is the request that
    begins the turns that each is of, where turns wait for answers and no clients do; None: each begins by itself.
    """

    iterations: int
    draft_passes: int
    prefill_s: float
    draft_s: float
    selection_s: float
    verify_s: float
    idle_s: float
    itl_s: Floats | Sketched
    out_of_range_passes: int = 0
    itl_window: Window | None = None
    clients: int | None = None
    begun_by: Ints | None = None
    moving_s: float = 0.0
    replicas: int = 1
    prefix_queries: int = 0
    prefix_hits: int = 0


FEW = 10_000
"""Rows whose columns are all made at once, since each is asked for several times; those of more are made each time."""


class RequestRows:
    """Requests as arrays by column, (N,) each: a table of pandas takes longer to ask than a short run to simulate.

    Those `kept` (all: None) of a column are copied when it is asked for: a copy of all is the most that a run holds.
    """

    def __init__(self, columns: Mapping[str, NDArray[Any]], kept: NDArray[np.bool_] | None = None):
        self.columns, self._kept = columns, kept

    @classmethod
    def of(cls, table: DataFrame | Mapping[str, NDArray[Any]]) -> RequestRows:
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

    def where(self, kept: NDArray[np.bool_]) -> RequestRows:
        """Return those of the rows where `kept` is true."""
        if kept.all():
            return self
        whole = kept
        if self._kept is not None:
            whole = self._kept.copy()
            whole[whole] = kept
        return RequestRows(self.columns, whole)


def _array(column: Series[Any]) -> NDArray[Any]:
    """Return a column; of words, equal ones are one object."""
    if column.dtype.kind != "O":
        return column.to_numpy()
    codes, words = column.factorize(use_na_sentinel=False)
    found: NDArray[Any] = np.asarray(words, dtype=object)[codes]
    return found


# Latencies are differences of clock readings: one that should equal its SLO may differ in the last bits.
SLO_RELATIVE_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class RequestTable(Mapping[str, npt.NDArray[Any]]):
    """The columns of `REQUEST_COLUMNS`, those of a split run and of one with time-outs, and what was noted.

    A column, (N,), is derived when it is asked for: all of them would be the largest thing in memory of a long run.
    Facts and progress are the run's own arrays, not to be written to; `frame` has copies.

    ``slo_ok`` means that every objective is met: TTFT, and TPOT as vLLM measures it. ``decode_tpot_ok`` is AdaServe's
    measure: decode latency per token alone.

    Attributes
    ----------
    told, done : facts known at arrival, and progress, (N,) each.
    longest_pause_s, moving_s : (N,) seconds. spent_s : (2, N), of `SPENT_COLUMNS`.
    noted : (N,) by name. replica_of : (N,) indices.
    reason : (N,) why each was rejected, ``""`` for those that were not. moves : between the pools of a split.
    cancelled_s : (N,) when each was cancelled, NaN if it was not; None where no client gives up.
    first_id : id of the first row. positions : draft positions with a column each.
    joined : (N,) by name, of `JOINED_COLUMNS`.
    """

    told: Requests
    done: Progress
    longest_pause_s: Floats
    spent_s: Floats
    moving_s: Floats
    noted: Mapping[str, Floats]
    replica_of: Ints
    reason: npt.NDArray[Any]
    moves: Moves | None = None
    cancelled_s: Floats | None = None
    first_id: int = 0
    positions: int = 0
    joined: Mapping[str, Ints] = field(default_factory=dict)

    @cached_property
    def types(self) -> dict[str, str]:
        """Name and type of each column, in order."""
        split = {} if self.moves is None else SPLIT_COLUMNS
        timeout = {} if self.cancelled_s is None else TIMEOUT_COLUMNS
        positions = {f"{PER_POSITION}{place}": "int64" for place in range(self.positions)}
        noted = {f"{NOTED}{name}": "float64" for name in self.noted}
        joined = {name: JOINED_COLUMNS[name] for name in self.joined}
        return REQUEST_COLUMNS | SPENT_COLUMNS | joined | split | timeout | positions | noted

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
        elif name in SPENT_COLUMNS:
            column = self.spent_s[list(SPENT_COLUMNS).index(name)]
        elif name in self.joined:
            column = self.joined[name]
        elif name in SPLIT_COLUMNS and self.moves is not None:
            column = self.moves[list(SPLIT_COLUMNS).index(name)]
        elif name in TIMEOUT_COLUMNS and self.cancelled_s is not None:
            column = self.cancelled_s
        elif name.startswith(PER_POSITION) and name in self.types:
            column = self.done.accepted_at[:, int(name.removeprefix(PER_POSITION))].astype(np.int64)
        elif name.startswith(NOTED):
            column = self.noted[name.removeprefix(NOTED)]
        elif name in self.types:
            column = getattr(self.told if hasattr(self.told, name) else self.done, name)
        else:
            raise KeyError(name)
        return column

    def apart(self) -> RequestTable:
        """Return the table with copies of what was told: a caller's trace may be written to after the run."""
        joined = {name: column.copy() for name, column in self.joined.items()}
        return replace(self, told=_each(self.told, np.copy), joined=joined)

    def parts(self, rows: int) -> Iterator[RequestTable]:
        """Yield the table in parts of so many rows, which hold no copies."""
        for first in range(0, self.rows, rows):
            yield self._part(slice(first, first + rows))

    def _part(self, those: slice) -> RequestTable:
        return RequestTable(
            _each(self.told, lambda column: column[those]),
            _each(self.done, lambda column: column[those]),
            self.longest_pause_s[those],
            self.spent_s[:, those],
            self.moving_s[those],
            {name: column[those] for name, column in self.noted.items()},
            self.replica_of[those],
            self.reason[those],
            None if self.moves is None else Moves._make(column[those] for column in self.moves),
            None if self.cancelled_s is None else self.cancelled_s[those],
            self.first_id + those.start,
            self.positions,
            {name: column[those] for name, column in self.joined.items()},
        )

    def frame(self) -> DataFrame:
        """Return the table with columns of its own."""
        import pandas as pd

        return pd.DataFrame({name: column.copy() for name, column in self.items()}, copy=False)

    def _paced(self, tpot_s: Floats) -> Bools:
        """Return which requests were served at their pace: a single token has none to keep."""
        served: Bools = self.reason == ""
        return served & (_meets(tpot_s, self.told.tpot_slo_s) | (self.done.emitted_tokens <= 1))


_MADE: dict[str, Callable[[RequestTable], npt.NDArray[Any]]] = {
    "request_id": lambda table: np.arange(table.first_id, table.first_id + table.rows),
    "slo_class": lambda table: np.array(table.told.class_names, dtype=object)[table.told.slo_class],
    "output_tokens": lambda table: table.done.emitted_tokens,
    "longest_pause_s": lambda table: table.longest_pause_s,
    "moving_s": lambda table: table.moving_s,
    "replica": lambda table: table.replica_of,
    "ttft_s": lambda table: table.done.first_token_s - table.told.arrival_s,
    "tpot_s": lambda table: _divide(table.done.finish_s - table.done.first_token_s, table.done.emitted_tokens - 1),
    "decode_tpot_s": lambda table: _divide(table.done.finish_s - table.done.first_decode_s, table.done.decoded_tokens),
    "e2el_s": lambda table: table.done.finish_s - table.told.arrival_s,
    "slo_tpot_s": lambda table: table.told.tpot_slo_s,
    "slo_ttft_s": lambda table: table.told.ttft_slo_s,
    "ttft_ok": lambda table: (table.reason == "") & _meets(table["ttft_s"], table.told.ttft_slo_s),
    "tpot_ok": lambda table: table._paced(table["tpot_s"]),
    "slo_ok": lambda table: table["ttft_ok"] & table["tpot_ok"],
    "decode_tpot_ok": lambda table: table._paced(table["decode_tpot_s"]),
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
