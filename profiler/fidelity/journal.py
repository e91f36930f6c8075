"""Journal of a replica's backend, pass by pass: the decisions of a run, and the seconds of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from profiler.backend.backend import ORACLE
from profiler.backend.stopwatch import DRAFT, MOVE, TARGET, Stopwatch
from specsim.core.passes import Drafted, DraftPass, Emitted, Pass, TargetPass
from specsim.core.protocols import Backend, CostModel
from specsim.core.trees import Forest
from specsim.pass_shape import PassShape

Result = TypeVar("Result")
NAN = float("nan")


class Timed(NamedTuple):
    """The seconds of one piece of work: as it was measured, NaN if it was not, and as it is predicted."""

    measured_s: float
    predicted_s: float


@dataclass(frozen=True, slots=True)
class Entry:
    """One pass.

    Attributes
    ----------
    role, kind : whose pass it is, and of which kind. shape : what it costs by. time : its seconds.
    host_s : of the scheduler's own work before it, as the simulation has it; on the wall's clock all that the host did.
    requests, emitted : who is in it, and the tokens that each emits at its end: none but in a verification.
    """

    role: str
    kind: str
    shape: PassShape
    time: Timed
    host_s: float
    requests: tuple[int, ...]
    emitted: tuple[int, ...]


def kind_of(role: str, shape: PassShape) -> str:
    """Return whose pass it is, and of which kind: docs/profiling-method.md lists the kinds."""
    if shape.prefill_tokens:
        kind = "prefill" if shape.prefill_tokens == shape.batched_tokens else "mixed"
    elif role == TARGET:
        kind = "verify" if shape.batched_tokens > shape.requests else "decode"
    else:
        kind = "step" if shape.batched_tokens == shape.logit_tokens else "catch-up"
    return f"{role} {kind}"


def predicted(role: str, shape: PassShape, truth: CostModel, host_bytes_per_s: float) -> float:
    """Return the seconds of a piece of work by a latency model; caches move at so many bytes per second."""
    if role == MOVE:
        return shape.moved_bytes / host_bytes_per_s
    return {TARGET: truth.target, DRAFT: truth.draft}[role].seconds(shape)


class JournalClock:
    """A stopwatch that tells what it measures or, if `predicted`, what a latency model says; it keeps both in `kept`.

    Parameters
    ----------
    inner : measures. truth : the latency model. host_bytes_per_s : how fast caches are predicted to move.
    """

    def __init__(self, inner: Stopwatch, truth: CostModel, host_bytes_per_s: float, *, predicted: bool) -> None:
        self.kept: list[Timed] = []
        self._inner, self._truth, self._bytes_per_s = inner, truth, host_bytes_per_s
        self._predicted = predicted

    def timed(self, role: str, shape: PassShape, run: Callable[[], Result]) -> tuple[Result, float]:
        """Return the result and the seconds; see `profiler.backend.stopwatch.Stopwatch`."""
        result, measured_s = self._inner.timed(role, shape, run)
        predicted_s = predicted(role, shape, self._truth, self._bytes_per_s)
        self.kept.append(Timed(measured_s, predicted_s))
        return result, predicted_s if self._predicted else measured_s

    def untimed(self, run: Callable[[], Result]) -> Result:
        """Return the result; see `profiler.backend.stopwatch.Stopwatch`."""
        return self._inner.untimed(run)


class Journal:
    """A backend that writes down what another one is asked, in `entries`.

    Parameters
    ----------
    inner : answers. clock : times its passes; None: they are simulated, and their seconds are predictions.
    thinking : seconds of the scheduler's own work before a selection, and further seconds per candidate token.
    entries : what is appended to. lookup : whether what drafts is a lookup.
    wall : whether the clock goes with the wall's, so that the seconds of a pass hold the host's time before it.
    """

    def __init__(
        self,
        inner: Backend,
        clock: JournalClock | None,
        thinking: tuple[float, float],
        entries: list[Entry],
        *,
        lookup: bool,
        wall: bool = False,
    ) -> None:
        self._inner, self._clock, self._entries, self._wall = inner, clock, entries, wall
        self._thinking, self._lookup = thinking, lookup
        self._basis: Forest | None = None

    def __getattr__(self, name: str) -> Any:
        if name not in ORACLE:
            raise AttributeError(name)
        return getattr(self._inner, name)

    def move(self, work: Pass, shape: PassShape) -> float:
        """See `specsim.core.protocols.Backend`, here and below."""
        seconds = self._inner.move(work, shape)
        (time,) = self._times([seconds])
        self._entries.append(
            Entry(MOVE, MOVE, shape, time, self._host_s(time, seconds), tuple(work.requests.tolist()), ())
        )
        return seconds

    def draft(self, work: DraftPass, shape: PassShape) -> Drafted:
        """Return what the other backend says."""
        drafted = self._inner.draft(work, shape)
        self._basis = drafted.forest
        requests = tuple(work.requests.tolist())
        times = self._times([level.seconds for level in drafted.levels])
        for level, time in zip(drafted.levels, times, strict=True):
            kind = "draft lookup" if self._lookup else kind_of(DRAFT, level.shape)
            host_s = self._host_s(time, level.seconds)
            self._entries.append(Entry(DRAFT, kind, level.shape, time, host_s, requests, ()))
        return drafted

    def verify(self, work: TargetPass, shape: PassShape) -> tuple[Emitted, float]:
        """Return what the other backend says."""
        answer, seconds = self._inner.verify(work, shape)
        (time,) = self._times([seconds])
        requests, emitted = tuple(work.requests.tolist()), tuple(answer.tokens.tolist())
        kind = kind_of(TARGET, shape)
        host_s = self._host_s(time, seconds) if self._wall else self._thought_s(work)
        self._entries.append(Entry(TARGET, kind, shape, time, host_s, requests, emitted))
        self._basis = None
        return answer, seconds

    def _thought_s(self, work: TargetPass) -> float:
        if self._basis is None or work.forest is self._basis:
            return 0.0
        return self._thinking[0] + self._thinking[1] * self._basis.draft_nodes

    def _host_s(self, time: Timed, seconds: float) -> float:
        """Return what the host did before a pass that took so many `seconds` of the run's clock."""
        return max(seconds - time.measured_s, 0.0) if self._wall else 0.0

    def _times(self, seconds: list[float]) -> list[Timed]:
        """Return the times of passes that took so long; a pass that the clock has not timed takes none."""
        if self._clock is None:
            return [Timed(NAN, each) for each in seconds]
        kept, self._clock.kept = self._clock.kept, []
        return [*kept, *[Timed(0.0, 0.0)] * (len(seconds) - len(kept))]
