"""A trace: arrivals and lengths of requests, as columns; and the protocol of what reads one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, nan
from typing import ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from specsim.core.request import LONGEST_S, Prefixes
from specsim.errors import SpecsimError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Origin = Literal["real", "surrogate", "toy", "synthetic", "file", "object"]


@dataclass(frozen=True, slots=True)
class TraceSource:
    """The origin of a trace, which a run prints and keeps in its provenance.

    `holds` is the number of requests of a recording, whatever part of it a run takes; None: not known, or endless.
    `timed` says whether arrivals are known; where they are not, all are 0. `cut` says whether a window was taken of it.
    `unit_asked` is the line that asks for the unit of arrivals where it is not known: then only the ratios of gaps are
    right.
    """

    name: str
    origin: Origin
    file: str | None = None
    sha256: str | None = None
    note: str | None = None
    licence: str | None = None
    holds: int | None = None
    timed: bool = True
    cut: bool = False
    unit_asked: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests in order of arrival, one entry of every column each.

    Attributes
    ----------
    arrival_s : (N,) float64, seconds, the first 0, never falling
    prompt_tokens, output_tokens : (N,) int64, at least 1
    row : (N,) int64, row number in the source from 0; every draw for a request depends on it
    source : TraceSource
    slo_class : (N,) int64 codes into ``slo_names``, or None
    slo_names : names of the classes
    tpot_slo_s : (N,) float64 seconds, NaN where none or a ratio is given, or None
    tpot_slo_ratio : (N,) float64 multiples of the baseline latency, NaN where none or seconds are, or None
    ttft_slo_s : (N,) float64 seconds, NaN where none is given, or None
    cached_tokens : (N,) int64, of the prompt's beginning that is cached at arrival, 0 to ``prompt_tokens``, or None
    session : (N,) int64, equal for turns of one conversation, or None where the trace names none
    prefixes : hashes of the prompts' blocks, of N prompts, or None
    delay_s : (N,) float64, seconds from the answer to the turn before it in its session to this one, NaN where a
        request arrives by itself, or None where sessions are no turns; a turn stands behind the one before it, at the
        same ``arrival_s``
    drawn_row : (N,) int64, row number in the source of requests that were numbered anew, or None
    """

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    row: Ints
    source: TraceSource
    slo_class: Ints | None = None
    slo_names: tuple[str, ...] = ()
    tpot_slo_s: Floats | None = None
    tpot_slo_ratio: Floats | None = None
    ttft_slo_s: Floats | None = None
    cached_tokens: Ints | None = None
    session: Ints | None = None
    prefixes: Prefixes | None = None
    delay_s: Floats | None = None
    drawn_row: Ints | None = None

    def __post_init__(self) -> None:
        count = len(self.arrival_s)
        if count == 0:
            raise SpecsimError(f"trace {self.source.name!r} holds no request")
        columns = (self.prompt_tokens, self.output_tokens, self.row, *self.optional().values())
        if any(column is not None and len(column) != count for column in columns):
            raise SpecsimError(f"trace {self.source.name!r}: its columns differ in length")
        if self.arrival_s[0] != 0 or not np.all(np.diff(self.arrival_s) >= 0):
            raise SpecsimError(f"trace {self.source.name!r}: arrival_s must start at 0 and never fall")
        check_span(float(self.arrival_s[-1]), f"trace {self.source.name!r}")
        if min(self.prompt_tokens.min(), self.output_tokens.min()) < 1:
            raise SpecsimError(f"trace {self.source.name!r}: prompts and outputs hold at least 1 token")
        cached = self.cached_tokens
        if cached is not None and not np.all((cached >= 0) & (cached <= self.prompt_tokens)):
            raise SpecsimError(f"trace {self.source.name!r}: cached_tokens must lie between 0 and prompt_tokens")

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def waits(self) -> NDArray[np.bool_]:
        """The turns among the requests that arrive a delay after an answer, as truth values, (N,)."""
        return np.zeros(len(self), np.bool_) if self.delay_s is None else ~np.isnan(self.delay_s)

    @property
    def before(self) -> Ints:
        """The request (N,) before each in its session, -1 for none; all -1 where sessions are no turns."""
        found = np.full(len(self), -1, dtype=np.int64)
        if self.session is not None and self.delay_s is not None:
            order = np.argsort(self.session, kind="stable")
            same = np.diff(self.session[order]) == 0
            found[order[1:][same]] = order[:-1][same]
        return found

    @property
    def joined(self) -> dict[str, Ints]:
        """Columns (N,) by which a row of the source is found: its row, and its session where there are any."""
        row = {"trace_row": self.row if self.drawn_row is None else self.drawn_row}
        drawn = self.source.origin == "synthetic"
        return ({} if drawn else row) | ({} if self.session is None else {"session": self.session})

    @property
    def rate_per_s(self) -> float:
        """Mean rate (N - 1) / (last - first arrival), requests per second; NaN without a span."""
        span_s = float(self.arrival_s[-1])
        return (len(self) - 1) / span_s if span_s > 0 else nan

    def head(self, n: int) -> Trace:
        """Return the first ``n`` requests.

        Raises
        ------
        SpecsimError
            When the trace holds fewer, or ``n`` is below 1.
        """
        if not 1 <= n <= len(self):
            raise SpecsimError(f"requests={n}: {self._called} holds {len(self)} requests; expected 1..{len(self)}")
        return self if n == len(self) else self._select(slice(0, n))

    def tail(self, n: int) -> Trace:
        """Return the last ``n`` requests, of 1 to all, with the first arrival moved to 0."""
        return self._select(slice(len(self) - n, len(self)))

    def window(self, start_s: float, stop_s: float = inf) -> Trace:
        """Return the requests that arrive in [start_s, stop_s), with the first arrival moved to 0.

        Raises
        ------
        SpecsimError
            When the window is empty or negative, or no request arrives in it.
        """
        shown = f"trace.window=[{start_s:g}, {stop_s:g}]"
        if not 0 <= start_s < stop_s:
            raise SpecsimError(f"{shown}: expected [start_s, stop_s] with 0 <= start_s < stop_s, in seconds")
        first, last = np.searchsorted(self.arrival_s, (start_s, stop_s), side="left")
        if first == last:
            span_s = float(self.arrival_s[-1])
            raise SpecsimError(f"{shown}: nothing arrives in it; {self._called} spans 0 to {span_s:g} s")
        return self._select(slice(int(first), int(last)))

    def at_rate(self, rps: float) -> Trace:
        """Return the trace with time stretched so that ``rate_per_s`` is ``rps``.

        Raises
        ------
        SpecsimError
            When ``rps`` is not above 0 or is too small, or the trace has no span to stretch.
        """
        if not (rps > 0 and isfinite(rps)):
            raise SpecsimError(f"rps={rps:g}: expected a rate above 0 requests/s")
        span_s = float(self.arrival_s[-1])
        if span_s <= 0:
            raise SpecsimError(f"rps={rps:g}: {self._called} has no span in time that could be stretched")
        check_span((len(self) - 1) / rps, f"rps={rps:g}")
        # Dividing first keeps the last arrival at exactly (N - 1) / rps.
        return replace(self, arrival_s=self.arrival_s / span_s * ((len(self) - 1) / rps))

    def redrawn(self, rows: Ints, arrival_s: Floats, block: Ints) -> Trace:
        """Return the requests at indices `rows` (M,), which may repeat, at rising times `arrival_s`, the first at 0.

        They are numbered anew, so that a request drawn twice has two different texts. A session is that of its `block`
        (M,): drawn in two of them, it is two sessions.
        """
        taken = self._taken(rows, arrival_s - arrival_s[0], np.arange(len(rows), dtype=np.int64))
        session = None if self.session is None else block * (self.session.max() + 1) + taken.session
        return replace(taken, prefixes=None, session=session, drawn_row=self.row[rows])

    def of_clients(self) -> Trace:
        """Return the trace for clients that wait: a stamped turn follows the answer before it, too, without a delay."""
        if self.delay_s is None:
            return self
        stamped = (self.before >= 0) & ~self.waits
        said = "clients send a stamped turn when the one before it is answered" if stamped.any() else None
        return replace(self, delay_s=np.where(stamped, 0.0, self.delay_s)).noted(said)

    def noted(self, note: str | None) -> Trace:
        """Return the trace with a note for the user before the reader's."""
        notes = [part for part in (note, self.source.note) if part]
        return replace(self, source=replace(self.source, note="; ".join(notes) or None))

    @property
    def _called(self) -> str:
        shipped = f" (the shipped {self.source.origin})" if self.source.origin in ("surrogate", "toy") else ""
        return f"trace {self.source.name!r}{shipped}"

    def columns(self) -> dict[str, Ints | Floats]:
        """Return the columns that the trace has, by name."""
        always = {name: getattr(self, name) for name in ("arrival_s", "prompt_tokens", "output_tokens", "row")}
        return always | {name: column for name, column in self.optional().items() if column is not None}

    def optional(self) -> dict[str, Ints | Floats | None]:
        """Return the optional columns; None: not there."""
        names = ("slo_class", "tpot_slo_s", "tpot_slo_ratio", "ttft_slo_s", "cached_tokens", "session", "delay_s")
        return {name: getattr(self, name) for name in names}

    def _select(self, rows: slice) -> Trace:
        return self._taken(rows, self.arrival_s[rows] - self.arrival_s[rows.start], self.row[rows])

    def _taken(self, rows: slice | Ints, arrival_s: Floats, row: Ints) -> Trace:
        optional = {name: None if column is None else column[rows] for name, column in self.optional().items()}
        return replace(
            self,
            arrival_s=arrival_s,
            prompt_tokens=self.prompt_tokens[rows],
            output_tokens=self.output_tokens[rows],
            row=row,
            prefixes=None if self.prefixes is None else self.prefixes.taken(rows),
            drawn_row=None if self.drawn_row is None else self.drawn_row[rows],
            **optional,  # type: ignore[arg-type]
        )


def check_span(span_s: float, what: str) -> None:
    """Refuse arrivals over more seconds than a float64 clock resolves to a microsecond; `what` asked for them.

    Raises
    ------
    SpecsimError
        One line that begins with `what`.
    """
    if not span_s <= LONGEST_S:
        raise SpecsimError(
            f"{what}: arrivals span {span_s:.3g} s; expected at most {LONGEST_S:.3g} s, "
            f"up to which a clock of float64 holds a microsecond"
        )


class TraceReader(Protocol):
    """A kind of trace, by the keys of its file.

    `drawn` names what the seed draws anew, of ``arrivals``, ``lengths`` and ``classes``. It is empty for a recording.
    """

    @property
    def drawn(self) -> Sequence[str]: ...  # noqa: D102

    def read(self, seed: int, requests: int | None) -> Trace:
        """Return the whole trace; a reader that can stop early may return only the first `requests`.

        The same seed gives the same trace. A shorter trace is the beginning of a longer one.
        """
        ...


@dataclass(frozen=True, slots=True)
class HeldTrace:
    """A reader of a trace in memory."""

    drawn: ClassVar[tuple[str, ...]] = ()
    held: Trace

    def read(self, seed: int, requests: int | None) -> Trace:
        """Return the trace, whatever the seed."""
        return self.held
