"""Records of a run as it happens: running totals, and on request one row per pass."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Any

import numpy as np
import numpy.typing as npt

from specsim.pass_shape import PassShape
from specsim.replica.booking import Repeated, Speculated, Verification, in_turn
from specsim.replica.passes import Drafted, DraftPass, by_pass
from specsim.replica.protocols import Belief
from specsim.replica.request import Floats, Ints
from specsim.results.fitted_range import counts_of, decodes_outside, rounds_outside
from specsim.results.pauses import Pauses
from specsim.results.schema import DRAFT_PASS, PASS_COLUMNS, VERIFY_PASS, RunTotals
from specsim.results.window import Window

WATCHED_EVERY = 64
CODES = {"float64": "d", "int8": "b", "int32": "i", "int64": "q"}


@dataclass(slots=True)
class Busy:
    """Seconds of one replica: prefill, the scheduler's selection, and passes of the draft and the target model."""

    prefill_s: float = 0.0
    selection_s: float = 0.0
    model_s: list[float] = field(default_factory=lambda: [0.0, 0.0])


def _columns() -> dict[str, array[Any]]:
    return {name: array(CODES[kind]) for name, kind in PASS_COLUMNS.items()}


class Recorder:
    """The engines' `Booking`: records every pass. `watch` is called every so many iterations.

    Parameters
    ----------
    keep_passes : whether one row per pass is kept for `passes.parquet`.
    truths : the latency model of each replica; tells which passes are outside its range.
    queued : returns how many requests wait at a replica at a time not before its last verification began.
    pauses : records the pauses between emissions.
    """

    def __init__(
        self, keep_passes: bool, truths: Sequence[Belief], queued: Callable[[int, float], int], pauses: Pauses
    ) -> None:
        self._passes = _columns() if keep_passes else None
        self._models = [(truth.draft, truth.target) for truth in truths]
        self._queued = queued
        self._pauses = pauses
        self._out_of_range = 0
        self.watch: Callable[[], None] | None = None
        self.iterations = 0
        self.draft_passes = 0
        self._busy: defaultdict[int, Busy] = defaultdict(Busy)

    def draft(self, replica: int, start_s: float, seconds: Sequence[float], work: DraftPass, drafted: Drafted) -> None:
        """Record the passes of a draft; see `specsim.replica.booking.Booking`."""
        for (shape, _, _), each in zip(drafted.levels, seconds, strict=True):
            self._spend(replica, DRAFT_PASS, shape, each)
        self.draft_passes += len(seconds)
        if self._passes is None:
            return
        rows, depth = drafted.forest.rows, drafted.forest.depth
        for (shape, _, nodes), each in zip(drafted.levels, seconds, strict=True):
            self._keep(
                shape,
                replica=replica,
                start_s=start_s,
                seconds=each,
                kind=DRAFT_PASS,
                requests=len(work.requests),
                draft_tokens=nodes,
                depth=int(depth[: rows + nodes].max()),
                emitted_tokens=0,
                queued=self._queued(replica, start_s + each),
            )
            start_s += each

    def verify(self, replica: int, verified: Verification) -> None:
        """Record a verification; see `specsim.replica.booking.Booking`."""
        start_s, thinking_s, seconds, work, shape, answer, gaps = verified
        self._spend(replica, VERIFY_PASS, shape, seconds)
        self._busy[replica].selection_s += thinking_s
        self.iterations += 1
        if self.watch is not None and self.iterations % WATCHED_EVERY == 0:
            self.watch()
        self._pauses.add(replica, gaps.requests, gaps.seconds)
        if self._passes is not None:
            self._keep(
                shape,
                replica=replica,
                start_s=start_s,
                seconds=thinking_s + seconds,
                kind=VERIFY_PASS,
                requests=len(work.requests),
                draft_tokens=work.forest.draft_nodes,
                depth=int(work.forest.depth.max()),
                emitted_tokens=int(answer.tokens.sum()),
                queued=self._queued(replica, start_s + (thinking_s + seconds)),
            )

    def repeated(self, replica: int, repeated: Repeated) -> None:
        """Record passes of decoding rows; see `specsim.replica.booking.Booking`."""
        starts_s, decodes, gaps = repeated
        seconds, context, rows, _ = decodes
        model_s = self._busy[replica].model_s
        model_s[VERIFY_PASS] = in_turn(model_s[VERIFY_PASS], seconds)
        self._out_of_range += decodes_outside(self._models[replica][VERIFY_PASS], context, rows)
        self._iterate(len(decodes))
        self._pauses.add(replica, *gaps)
        between_s = starts_s[2:] - starts_s[1:-1]
        for those, first, end in decodes.stretches():
            self._pauses.repeat(replica, gaps.requests[those], between_s[max(first - 1, 0) : end - 1])
        if self._passes is not None:
            columns: dict[str, Any] = {"start_s": starts_s[:-1], "seconds": seconds, "kind": VERIFY_PASS}
            columns |= dict.fromkeys(("requests", "batched_tokens", "emitted_tokens"), rows)
            columns |= {"context_tokens": context, "queued": self._queues(replica, starts_s[1:])}
            self._keep_all(seconds.shape, columns | {"replica": replica})

    def speculated(self, replica: int, speculated: Speculated) -> None:
        """Record rounds of chains; see `specsim.replica.booking.Booking`."""
        starts_s, rounds, gaps = speculated
        depth, model_s = rounds.depth, self._busy[replica].model_s
        model_s[DRAFT_PASS] = in_turn(model_s[DRAFT_PASS], rounds.seconds[:, :depth].ravel())
        model_s[VERIFY_PASS] = in_turn(model_s[VERIFY_PASS], rounds.seconds[:, depth])
        self._out_of_range += rounds_outside(*self._models[replica], rounds)
        self.draft_passes += depth * len(rounds)
        self._iterate(len(rounds))
        self._pauses.add(replica, *gaps)
        self._pauses.repeat(replica, gaps.requests, np.diff(starts_s[depth + 1 :: depth + 1]))
        if self._passes is not None:
            queued = self._queues(replica, starts_s[1:]).reshape(rounds.seconds.shape)
            self._keep_all(rounds.seconds.shape, _columns_of(speculated) | {"replica": replica, "queued": queued})

    def _iterate(self, count: int) -> None:
        """Count so many iterations."""
        looked = self.iterations // WATCHED_EVERY
        self.iterations += count
        if self.watch is not None and self.iterations // WATCHED_EVERY > looked:
            self.watch()

    def _queues(self, replica: int, ends_s: Floats) -> Ints:
        """Return how many requests wait at each of these times, (n,), the first of which begin before anybody came."""
        last = self._queued(replica, float(ends_s[-1]))
        if last == self._queued(replica, float(ends_s[0])):
            return np.full(len(ends_s), last)
        return np.array([self._queued(replica, end_s) for end_s in ends_s.tolist()])

    def _keep_all(self, shape: tuple[int, ...], rows: dict[str, Any]) -> None:
        """Keep as many rows of `PASS_COLUMNS` as the shape holds; columns broadcast to it, those not given are 0."""
        assert self._passes is not None
        for name, column in self._passes.items():
            values = np.asarray(rows.get(name, 0)).astype(PASS_COLUMNS[name])
            column.frombytes(np.broadcast_to(values, shape).tobytes())

    def _spend(self, replica: int, kind: int, shape: PassShape, seconds: float) -> None:
        busy = self._busy[replica]
        if shape.prefill_tokens:
            prefill_s = seconds * shape.prefill_tokens / shape.batched_tokens
            busy.prefill_s += prefill_s
            seconds -= prefill_s
        busy.model_s[kind] += seconds
        self._out_of_range += self._models[replica][kind].extrapolates(shape)

    def _keep(self, shape: PassShape, **row: float) -> None:
        """Keep a row of `PASS_COLUMNS`: the counts of the shape, and the other columns as given."""
        assert self._passes is not None
        for name, column in self._passes.items():
            column.append(row[name] if name in row else getattr(shape, name))

    def totals(self, duration_s: float, replicas: int, window: Window | None, clients: int | None = None) -> RunTotals:
        """Return the totals of a run of `duration_s` on `replicas`, with the inter-token latencies of `window`."""
        # Summed in the order of replicas, so that a sum does not depend on the order of passes.
        each = [self._busy[replica] for replica in sorted(self._busy)]
        prefill_s, selection_s = fsum(busy.prefill_s for busy in each), fsum(busy.selection_s for busy in each)
        draft_s, verify_s = (fsum(busy.model_s[kind] for busy in each) for kind in (DRAFT_PASS, VERIFY_PASS))
        busy_s = prefill_s + selection_s + draft_s + verify_s
        return RunTotals(
            iterations=self.iterations,
            draft_passes=self.draft_passes,
            prefill_s=prefill_s,
            draft_s=draft_s,
            selection_s=selection_s,
            verify_s=verify_s,
            idle_s=max(duration_s * replicas - busy_s, 0.0),
            itl_s=self._pauses.latencies_s,
            out_of_range_passes=self._out_of_range,
            itl_window=window,
            clients=clients,
            replicas=replicas,
        )

    def passes(self) -> dict[str, npt.NDArray[Any]] | None:
        """Return one array per column of `passes.parquet`, in the order of the passes' ends; None if not kept."""
        if self._passes is None:
            return None
        columns = {name: np.array(column) for name, column in self._passes.items()}
        order = np.lexsort((columns["replica"], columns["start_s"] + columns["seconds"]))
        return {name: column[order] for name, column in columns.items()}


def _columns_of(speculated: Speculated) -> dict[str, Any]:
    """Return columns of `PASS_COLUMNS` by name, (rounds, depth + 1) or what broadcasts to it."""
    starts_s, rounds, gaps = speculated
    depth = rounds.depth
    levels = np.minimum(np.arange(1, depth + 2), depth)
    return {
        "start_s": starts_s[:-1].reshape(rounds.seconds.shape),
        "seconds": rounds.seconds,
        "context_tokens": counts_of(rounds, "context_tokens"),
        "batched_tokens": counts_of(rounds, "batched_tokens"),
        "kind": np.where(np.arange(depth + 1) < depth, DRAFT_PASS, VERIFY_PASS),
        "requests": len(gaps.requests),
        "draft_tokens": len(gaps.requests) * levels,
        "depth": levels,
        "emitted_tokens": by_pass(0, rounds.tokens.sum(axis=1), len(rounds), depth),
    }
