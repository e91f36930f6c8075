"""The recorder of a run: passes, pauses, and the record that is stored."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from struct import Struct
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from specsim.core.passes import Drafted, DraftPass, Rounds, by_pass
from specsim.core.protocols import CostModel, PassCosts
from specsim.core.request import Bools, Floats, Ids, Ints, Requests
from specsim.metrics.requests import DRAFT_PASS, PASS_COLUMNS, VERIFY_PASS, RequestTable, RunTotals, Window, reasons
from specsim.metrics.statistics import BLOCK, Distribution, Sketched
from specsim.pass_shape import PassShape
from specsim.server.events import DecodeSteps, SpeculativeSteps, Verification, in_turn
from specsim.server.state import Moves, Progress


@dataclass(slots=True)
class _Heard:
    """Pauses of one replica: those not yet looked at, with the requests they belong to, and all others."""

    seconds: array[float] = field(default_factory=lambda: array("d"))
    owners: array[int] = field(default_factory=lambda: array("q"))
    settled: Distribution = field(default_factory=Distribution)


class Pauses:
    """Collect the pauses of every pass in blocks, each replica's by itself: replicas may report in any order.

    Parameters
    ----------
    requests : number of request ids, N.
    counted : (N,) whether a request's pauses count as inter-token latencies; None: all count.
    """

    def __init__(self, requests: int, counted: Bools | None) -> None:
        self._counted = counted
        self._heard: defaultdict[int, _Heard] = defaultdict(_Heard)
        self._longest_s = np.full(requests, -np.inf)

    def add(self, replica: int, requests: Ids, seconds: Floats) -> None:
        """Add the pauses of one pass, (m,) each: requests that emitted, and seconds since their previous emission.

        Of several passes, (passes, m) each or flat.
        """
        heard = self._heard[replica]
        heard.owners.frombytes(requests.tobytes())
        heard.seconds.frombytes(seconds.tobytes())
        if len(heard.seconds) >= BLOCK:
            self._settle(heard)

    def add_passes(self, replica: int, requests: Ids, seconds: Floats) -> None:
        """Add passes in which each of these requests (m,) emitted, these seconds (passes,) behind the pass before."""
        rows = len(requests)
        while len(seconds):
            passes = -(-(BLOCK - len(self._heard[replica].seconds)) // rows)
            some, seconds = seconds[:passes], seconds[passes:]
            self.add(replica, np.tile(requests, len(some)), some.repeat(rows))

    @property
    def latencies_s(self) -> Floats | Sketched:
        """The inter-token latencies, replica by replica in the order of passes; see `Distribution.result`."""
        every = Distribution()
        for replica in sorted(self._heard):
            self._settle(self._heard[replica])
            every.merge(self._heard[replica].settled)
        return every.result

    @property
    def longest_s(self) -> Floats:
        """The longest pause of each request, (N,) seconds; NaN with fewer than two emissions."""
        for heard in self._heard.values():
            self._settle(heard)
        return np.where(self._longest_s >= 0, self._longest_s, np.nan)

    def _settle(self, heard: _Heard) -> None:
        seconds, owners = np.array(heard.seconds, dtype=np.float64), np.array(heard.owners, dtype=np.int64)
        heard.seconds, heard.owners = array("d"), array("q")
        np.maximum.at(self._longest_s, owners, seconds)
        heard.settled.add(seconds if self._counted is None else seconds[self._counted[owners]])


@dataclass(frozen=True, slots=True)
class Record:
    """The record of a run: a row per request, totals, on request a row per pass.

    Attributes
    ----------
    requests, progress : what was told of each request, and what has happened to it, (N,) each.
    longest_pause_s : (N,) seconds between two emissions, NaN where there was one at most.
    spent_s : (2, N) as `Recorder.spent_s`.
    moving_s : (N,) seconds in which the request's cache went to the host or came back from there.
    noted : what the scheduler noted of each request, (N,) by name.
    replica_of : (N,) index of the replica that each request was sent to, last. moves : between the pools of a split.
    rejected : why, by request id.
    cancelled_s : when, by request id, of those that were cancelled; None where no client gives up.
    cache_bytes : the most cache that each replica held. eager_s : seconds of decodes that no captured graph held.
    beyond_range : the most context and batched tokens of passes outside their model's range, by replica and kind.
    """

    requests: Requests
    progress: Progress
    longest_pause_s: Floats
    spent_s: Floats
    moving_s: Floats
    noted: Mapping[str, Floats]
    replica_of: Ints
    moves: Moves | None
    rejected: Mapping[int, str]
    cancelled_s: Mapping[int, float] | None
    totals: RunTotals
    passes: dict[str, npt.NDArray[Any]] | None
    cache_bytes: Sequence[int]
    beyond_range: Mapping[tuple[int, int], tuple[float, float]]
    eager_s: float = 0.0

    def table(self, joined: Mapping[str, Ints] = MappingProxyType({})) -> RequestTable:
        """Return the columns of ``requests.parquet``; `joined` (N,) are those of `JOINED_COLUMNS` that there are."""
        happened = self.requests, self.progress, self.longest_pause_s, self.spent_s, self.moving_s
        why, cancelled_s = reasons(len(self.requests), self.rejected), None
        if self.cancelled_s is not None:
            cancelled_s = np.full(len(self.requests), np.nan)
            cancelled_s[list(self.cancelled_s)] = list(self.cancelled_s.values())
        right = np.flatnonzero(self.progress.accepted_at.any(axis=0))
        rest = self.moves, cancelled_s, 0, int(right[-1]) + 1 if len(right) else 0, joined
        return RequestTable(*happened, self.noted, self.replica_of, why, *rest)


WATCHED_EVERY = 64
CODES = {"float64": "d", "int8": "b", "int32": "i", "int64": "q"}
MARK = Struct("3d")


@dataclass(slots=True)
class Busy:
    """Seconds of one replica: prefill, the scheduler's selection, and passes of the draft and the target model.

    `marks` holds, of each verification behind which they differ, its end and the seconds so far of prefill and of
    drafts with selection, one behind the other.
    """

    prefill_s: float = 0.0
    selection_s: float = 0.0
    model_s: list[float] = field(default_factory=lambda: [0.0, 0.0])
    marks: array[float] = field(default_factory=lambda: array("d", (-np.inf, 0.0, 0.0)))

    def mark(self, end_s: float) -> None:
        """Keep the seconds so far if they differ from those at the last verification."""
        marks, drafting_s = self.marks, self.model_s[DRAFT_PASS] + self.selection_s
        if marks[-1] != drafting_s or marks[-2] != self.prefill_s:
            marks.frombytes(MARK.pack(end_s, self.prefill_s, drafting_s))  # Half the time of `extend`.


class Recorder:
    """The engines' `EventLog`: records every pass. `watch` is called every so many iterations.

    Parameters
    ----------
    keep_passes : whether one row per pass is kept for `passes.parquet`.
    truths : the latency model of each replica; tells which passes are outside its range.
    queued : returns how many requests wait at a replica at a time not before its last verification began.
    pauses : records the pauses between emissions.
    emitted : returns the tokens that each request has emitted so far, (N,), at a replica.
    requests : number of request ids, N.
    """

    def __init__(
        self,
        keep_passes: bool,
        truths: Sequence[CostModel],
        queued: Callable[[int, float], int],
        pauses: Pauses,
        emitted: Callable[[int], Ints],
        requests: int,
    ) -> None:
        self._passes: dict[str, array[Any]] | None = None
        if keep_passes:
            self._passes = {name: array(CODES[kind]) for name, kind in PASS_COLUMNS.items()}
        self._models = [(truth.draft, truth.target) for truth in truths]
        self._captured = [float(getattr(truth.target, "eager_above", np.inf)) for truth in truths]
        self.eager_s = 0.0
        self._queued = queued
        self._pauses = pauses
        self._emitted = emitted
        self._evicts, self._again_s = False, np.zeros(requests)
        self._out_of_range = 0
        self.beyond_range: dict[tuple[int, int], tuple[float, float]] = {}
        self.watch: Callable[[], None] | None = None
        self.iterations = 0
        self.draft_passes = 0
        self._busy: defaultdict[int, Busy] = defaultdict(Busy)

    def draft(self, replica: int, start_s: float, seconds: Sequence[float], work: DraftPass, drafted: Drafted) -> None:
        """Record the passes of a draft; see `specsim.server.events.EventLog`."""
        for (shape, _, _), each in zip(drafted.levels, seconds, strict=True):
            self._spend(replica, DRAFT_PASS, shape, each)
        self.draft_passes += len(seconds)
        self._evicts = self._evicts or len(work.evict) > 0
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
                accepted_tokens=0,
                queued=self._queued(replica, start_s + each),
            )
            start_s += each

    def verify(self, replica: int, verified: Verification) -> None:
        """Record a verification; see `specsim.server.events.EventLog`."""
        start_s, thinking_s, seconds, work, shape, answer, gaps = verified
        busy = self._spend(replica, VERIFY_PASS, shape, seconds)
        busy.selection_s += thinking_s
        if shape.batched_tokens > self._captured[replica] and not shape.prefill_tokens:
            self.eager_s += seconds
        busy.mark(start_s + (thinking_s + seconds))
        self._evicts = self._evicts or len(work.evict) > 0
        if self._evicts and shape.prefill_tokens:
            begun = self._emitted(replica)[work.requests] > answer.tokens
            again = np.where(begun & (work.scheduled_tokens > 1), work.scheduled_tokens, 0)
            self._again_s[work.requests] += again * (seconds / shape.batched_tokens)
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
                accepted_tokens=int(answer.accepted.sum()),
                queued=self._queued(replica, start_s + (thinking_s + seconds)),
            )

    def decode_steps(self, replica: int, steps: DecodeSteps) -> None:
        """Record passes of decoding rows; see `specsim.server.events.EventLog`."""
        starts_s, decodes, gaps = steps
        seconds, context, rows, _ = decodes
        model_s = self._busy[replica].model_s
        model_s[VERIFY_PASS] = float(in_turn(model_s[VERIFY_PASS], seconds)[-1])
        self._run_eagerly(replica, rows, seconds)
        outside = decodes_outside(self._models[replica][VERIFY_PASS], context, rows)
        self._stray(replica, VERIFY_PASS, outside, context, rows)
        self._iterate(len(decodes))
        self._pauses.add(replica, *gaps)
        between_s = starts_s[2:] - starts_s[1:-1]
        for those, first, end in decodes.stretches():
            self._pauses.add_passes(replica, gaps.requests[those], between_s[max(first - 1, 0) : end - 1])
        if self._passes is not None:
            columns: dict[str, Any] = {"start_s": starts_s[:-1], "seconds": seconds, "kind": VERIFY_PASS}
            columns |= dict.fromkeys(("requests", "batched_tokens", "emitted_tokens"), rows)
            columns |= {"context_tokens": context, "queued": self._queues(replica, starts_s[1:])}
            self._keep_all(seconds.shape, columns | {"replica": replica})

    def speculative_steps(self, replica: int, steps: SpeculativeSteps) -> None:
        """Record rounds of chains; see `specsim.server.events.EventLog`."""
        starts_s, rounds, gaps = steps
        depth, model_s = rounds.depth, self._busy[replica].model_s
        model_s[DRAFT_PASS] = float(in_turn(model_s[DRAFT_PASS], rounds.seconds[:, :depth].ravel())[-1])
        model_s[VERIFY_PASS] = float(in_turn(model_s[VERIFY_PASS], rounds.seconds[:, depth])[-1])
        self._busy[replica].mark(float(starts_s[-1]))
        self._run_eagerly(replica, rounds.verify.batched_tokens, rounds.seconds[:, depth])
        drafts, verifications = rounds_outside(*self._models[replica], rounds)
        self._stray(replica, DRAFT_PASS, drafts, rounds.draft.context_tokens, rounds.draft.batched_tokens)
        self._stray(replica, VERIFY_PASS, verifications, rounds.verify.context_tokens, rounds.verify.batched_tokens)
        self.draft_passes += depth * len(rounds)
        self._iterate(len(rounds))
        self._pauses.add(replica, *gaps)
        self._pauses.add_passes(replica, gaps.requests, np.diff(starts_s[depth + 1 :: depth + 1]))
        if self._passes is not None:
            queued = self._queues(replica, starts_s[1:]).reshape(rounds.seconds.shape)
            self._keep_all(rounds.seconds.shape, _columns_of(steps) | {"replica": replica, "queued": queued})

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

    def _spend(self, replica: int, kind: int, shape: PassShape, seconds: float) -> Busy:
        busy = self._busy[replica]
        if shape.prefill_tokens:
            prefill_s = seconds * shape.prefill_tokens / shape.batched_tokens
            busy.prefill_s += prefill_s
            seconds -= prefill_s
        busy.model_s[kind] += seconds
        if self._models[replica][kind].extrapolates(shape):
            self._stray(replica, kind, 1, shape.context_tokens, shape.batched_tokens)
        return busy

    def _run_eagerly(self, replica: int, batched_tokens: Any, seconds: Floats) -> None:
        """Count the seconds (passes,) of those decodes that no captured graph held."""
        if self._captured[replica] < np.inf:
            self.eager_s += float(np.where(batched_tokens > self._captured[replica], seconds, 0.0).sum())

    def _stray(self, replica: int, kind: int, count: int, context_tokens: Any, batched_tokens: Any) -> None:
        """Count passes outside the range of their model, and keep the largest counts of those that were told of."""
        if count:
            self._out_of_range += count
            most = float(np.max(context_tokens)), float(np.max(batched_tokens))
            before = self.beyond_range.get((replica, kind), most)
            self.beyond_range[replica, kind] = max(most[0], before[0]), max(most[1], before[1])

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

    def spent_s(self, replica_of: Ints, since_s: Floats, until_s: Floats) -> Floats:
        """Return what the replica of each request spent between two emissions, (N,) each, on what, (2, N) seconds.

        They are those of prefill, less the target's passes over its own tokens, and of drafts with selection, in the
        passes that end within; NaN without an end.
        """
        found: Floats = np.where(np.isnan(until_s), np.nan, np.zeros((2, len(until_s))))
        for replica, busy in self._busy.items():
            here = np.flatnonzero((replica_of == replica) & ~np.isnan(until_s))
            ends_s, *sums_s = np.array(busy.marks).reshape(-1, 3).T
            first, last = (ends_s.searchsorted(each[here], side="right") - 1 for each in (since_s, until_s))
            found[:, here] = [sum_s[last] - sum_s[first] for sum_s in sums_s]
        found[0] -= self._again_s
        return found

    def passes(self) -> dict[str, npt.NDArray[Any]] | None:
        """Return one array per column of `passes.parquet`, in the order of the passes' ends; None if not kept."""
        if self._passes is None:
            return None
        columns = {name: np.array(column) for name, column in self._passes.items()}
        order = np.lexsort((columns["replica"], columns["start_s"] + columns["seconds"]))
        return {name: column[order] for name, column in columns.items()}


def _columns_of(steps: SpeculativeSteps) -> dict[str, Any]:
    """Return columns of `PASS_COLUMNS` by name, (rounds, depth + 1) or what broadcasts to it."""
    starts_s, rounds, gaps = steps
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
        "accepted_tokens": by_pass(0, np.minimum(rounds.matched, rounds.tokens).sum(axis=1), len(rounds), depth),
    }


def decodes_outside(target: PassCosts, context_tokens: Ints, rows: Ints | int) -> int:
    """Return how many passes that decode so many rows each, (passes,) or a number for all, lie outside."""
    if _inside(target, _range(context_tokens), _range(rows)):
        return 0
    return _outside(target, context_tokens, np.broadcast_to(rows, context_tokens.shape))


def rounds_outside(draft: PassCosts, target: PassCosts, rounds: Rounds) -> tuple[int, int]:
    """Return how many drafts and verifications lie outside the range of their model; contexts rise by round."""
    depth, drafts, read = rounds.depth, rounds.draft.context_tokens, rounds.verify.context_tokens
    drafted = rounds.draft.requests, rounds.draft.batched_tokens.max()
    queries = rounds.verify.batched_tokens
    if _inside(draft, (drafts[0, 0], drafts[1, -1]), drafted) and _inside(target, read[[0, -1]], (queries, queries)):
        return 0, 0
    context, batched = counts_of(rounds, "context_tokens"), counts_of(rounds, "batched_tokens")
    drafts = _outside(draft, context[:, :depth], batched[:, :depth])
    return drafts, _outside(target, context[:, depth], batched[:, depth])


def counts_of(rounds: Rounds, name: str) -> Ints:
    """Return a count of the shape of each pass, (rounds, depth + 1), by its name in `PassShapes`."""
    counts: Ints = by_pass(getattr(rounds.draft, name), getattr(rounds.verify, name), len(rounds), rounds.depth)
    return counts


def _inside(model: PassCosts, context_tokens: Any, batched_tokens: Any) -> bool:
    """Return whether passes surely lie inside, by their least and their greatest counts, (2,) each."""
    least, most = map(_counts, context_tokens, batched_tokens)
    return not (model.extrapolates(least) or model.extrapolates(most))


def _outside(model: PassCosts, context_tokens: Ints, batched_tokens: Ints) -> int:
    corners = zip(context_tokens.ravel().tolist(), batched_tokens.ravel().tolist(), strict=True)
    return sum(model.extrapolates(_counts(*each)) for each in corners)


def _counts(context_tokens: float, batched_tokens: float) -> PassShape:
    return PassShape(context_tokens, batched_tokens, 0, 0, 0, 0)


def _range(counts: Ints | int) -> tuple[int, int]:
    return (counts, counts) if isinstance(counts, int) else (int(counts.min()), int(counts.max()))
