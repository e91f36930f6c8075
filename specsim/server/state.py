"""State of one server: its running and waiting queues, and what the ledger keeps of each request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from sortedcontainers import SortedKeyList, SortedList

from specsim.core.protocols import CostModel
from specsim.core.request import Bools, Facts, Floats, Ids, Ints, Observed, Places
from specsim.errors import IllegalPass
from specsim.kernels.ledger import POSITIONS
from specsim.server.kv_cache import Memory


class Hardware(NamedTuple):
    """The hardware of one replica.

    Attributes
    ----------
    truth, cost_model : the latency that passes take, and the latency that its scheduler plans with.
    memory : its key-value pool.
    host_bytes_per_s : how fast its cache moves to the host and back, where a scheduler preempts by transfer.
    """

    truth: CostModel
    cost_model: CostModel
    memory: Memory
    host_bytes_per_s: float = float("inf")


SPARSE = 64
"""How many places of an array are looked at in the time in which one request is taken from a sorted list."""


class RequestQueues:
    """Request ids of one replica that have arrived and not ended.

    Parameters
    ----------
    at, admitted, row, reached_s : (N,) as in `specsim.server.state.SharedRows`. place : index of this replica.

    Attributes
    ----------
    ended : number of requests that have ended here.
    waiting : in order of arrival here, at one time in that of ids.
    """

    def __init__(self, at: Places, admitted: Bools, row: Ids, reached_s: Floats, place: int) -> None:
        self.ended = 0
        self.waiting: SortedList[int] = SortedList()
        self._reached_s, self._last = reached_s, -1
        self._in_order = True
        self._running: dict[int, None] = {}
        self._running_ids: Ids | None = None
        self._at, self._place = at, place
        self._admitted, self._row = admitted, row
        self._checked = b""

    @property
    def running(self) -> Ids:
        """Requests that hold cache, in order of admission; the array must not be written to."""
        if self._running_ids is None:
            self._running_ids = np.fromiter(self._running, dtype=np.int64, count=len(self._running))
            self._running_ids.flags.writeable = False
        return self._running_ids

    @property
    def waiting_ids(self) -> Ids:
        """Requests without cache, in order of arrival."""
        count = len(self.waiting)
        if not count:
            return np.zeros(0, dtype=np.int64)
        first, end = self.waiting[0], self.waiting[-1] + 1
        if not self._in_order or end - first > SPARSE * count:
            return np.fromiter(self.waiting, dtype=np.int64, count=count)
        ids: Ids = first + np.flatnonzero(self.waits(slice(first, end)))
        return ids

    @property
    def ids(self) -> Ids:
        """Requests that wait or run."""
        return np.concatenate((self.waiting_ids, self.running))

    @property
    def live(self) -> int:
        """Number of requests that wait or run."""
        return len(self.waiting) + len(self._running)

    def enter(self, request: int, now_s: float) -> None:
        """Let a request wait that arrives now; turns of sessions, and caches over a link, come in any order of ids."""
        self._at[request], self._reached_s[request] = self._place, now_s
        if self._in_order and request < self._last:
            self._in_order = False
            self.waiting = SortedKeyList(self.waiting, key=lambda each: (self._reached_s[each], each))
        self._last = request
        self.waiting.add(request)

    def queued(self, at_s: float) -> int:
        """Return how many of the waiting requests were here by `at_s`."""
        count = len(self.waiting)
        while count and self._reached_s[self.waiting[count - 1]] > at_s:
            count -= 1
        return count

    def admit(self, ids: Ids) -> None:
        """Make residents of those among `ids` (n,) that wait."""
        new = ids[~self._admitted[ids]]
        if len(new):
            self._admitted[new] = True
            self._running_ids = None
            for request in new.tolist():
                self.waiting.remove(request)
                self._running[request] = None

    def end(self, ids: Ids) -> None:
        """Strike residents off for good."""
        self._leave(ids)
        self._at[ids] = -1
        self.ended += len(ids)

    def strike(self, request: int) -> None:
        """Strike somebody off for good who waits or runs."""
        if self._admitted[request]:
            self._leave(np.array([request]))
        else:
            self.waiting.remove(request)
        self._at[request] = -1

    def evict(self, ids: Ids, running: Ids) -> None:
        """Send residents that are not `running` back to the waiting.

        Raises
        ------
        IllegalPass
            When an id is unknown, doubled, running or not resident.
        """
        stays = self._why_not_evicted(ids, running)
        if stays:
            raise IllegalPass(f"only a request that holds cache and does not run in the pass can be evicted: {stays}")
        self._leave(ids)
        self.waiting.update(ids.tolist())

    def check(self, ids: Ids) -> None:
        """Refuse rows of a pass that are doubled or have no request.

        Raises
        ------
        IllegalPass
            One line that names the first such request.
        """
        rows = ids.tobytes()
        if rows == self._checked:
            return  # Most passes have the rows of the one before.
        if ids.min() < 0 or ids.max() >= len(self._at):
            raise IllegalPass(f"a pass names request {_outside(ids, len(self._at))}, which does not exist")
        rows_here = np.arange(len(ids))
        self._row[ids] = rows_here
        doubled = self._row[ids] != rows_here
        if np.count_nonzero(doubled):
            raise IllegalPass(f"a pass names request {ids[doubled][0]} twice")
        self._checked = rows

    def here(self, ids: Ids) -> Bools:
        """Return which of `ids` (n,) have arrived and not ended."""
        here: Bools = self._at[ids] == self._place
        return here

    def waits(self, ids: Ids | slice) -> Bools:
        """Return which of `ids` (n,) are here and hold no cache."""
        waits: Bools = (self._at[ids] == self._place) & ~self._admitted[ids]
        return waits

    def _why_not_evicted(self, ids: Ids, running: Ids) -> str:
        """Return which request stands in the way, and how; empty where none does."""
        if ids.min() < 0 or ids.max() >= len(self._at):
            return f"there is no request {_outside(ids, len(self._at))}"
        names, counts = np.unique(ids, return_counts=True)
        for wrong, what in (
            (names[counts > 1], "is named twice"),
            (names[~(self.here(names) & self._admitted[names])], "holds none"),
            (names[np.isin(names, running)], "runs in it"),
        ):
            if len(wrong):
                return f"request {wrong[0]} {what}"
        return ""

    def _leave(self, ids: Ids) -> None:
        for request in ids.tolist():
            del self._running[request]
        self._running_ids = None
        self._admitted[ids] = False


def _outside(ids: Ids, size: int) -> int:
    """Return the first of `ids` that is no index below `size`."""
    return int(ids[(ids < 0) | (ids >= size)][0])


_Rows = TypeVar("_Rows", Facts, "Progress")


@dataclass(frozen=True, slots=True, eq=False)
class Progress(Observed):
    """Progress of each request, (N,) each, beyond what a scheduler sees; all of it at the end of a run.

    Attributes
    ----------
    last_token_s, finish_s : seconds of the latest token and of the last one, NaN until then, and for the rejected.
    decoded_tokens : emitted in decoding passes: all but the first.
    draft_tokens : nodes that were submitted to the target. accepted_tokens : those of them that were emitted.
    accepted_at : (N, POSITIONS) int32, verifications in which the draft at this position was right, whether there was
        room to emit it or not.
    verifications : decoding target passes. speculations : those with a draft token.
    preemptions : times that the cache was given up.
    moved_bytes : of its cache, to the host and back.
    """

    last_token_s: Floats
    finish_s: Floats
    decoded_tokens: Ints
    draft_tokens: Ints
    accepted_tokens: Ints
    accepted_at: npt.NDArray[np.int32]
    verifications: Ints
    speculations: Ints
    preemptions: Ints
    moved_bytes: Ints


class Moves(NamedTuple):
    """Moves of each request from a prefill to a decode replica, (N,) each.

    Attributes
    ----------
    prefill_of : index of the replica that it was sent to first.
    moved_bytes : of its cache, over the link; 0 where it did not go on.
    moving_s : seconds from its prompt's last pass to its place in the second queue; NaN where it did not go on.
    arrived_s : when it has that place; NaN where it did not go on.
    """

    prefill_of: Ints
    moved_bytes: Ints
    moving_s: Floats
    arrived_s: Floats


class PrefixRows(NamedTuple):
    """Blocks of prompts, kept by its replica, that each request uses.

    Attributes
    ----------
    used : (2, N) blocks, by model. begun : (N,) whether it has run.
    hit_tokens : (N,) found in the target's cache when it began, and whenever it began again.
    """

    used: Ints
    begun: Bools
    hit_tokens: Ints


class SharedRows(NamedTuple):
    """All that is written down of each request, for the replicas of one pool: a request is at one of them, once.

    Attributes
    ----------
    facts, progress : (N,) each.
    blocks, lent, drafted : (2, N) as in `specsim.kernels.ledger.Books`, by model, and nodes and depth of drafts.
    reached_s : (N,) seconds at which each came to its replica.
    at : (N,) index of the replica at which each is alive, -1 elsewhere. admitted : (N,) whether it holds cache there.
    row : (N,) for a pass to find doubled rows by. prefix : None where no blocks of prompts are kept.
    """

    facts: Facts
    progress: Progress
    blocks: Ints
    lent: Ints
    drafted: Ints
    reached_s: Floats
    at: Places
    admitted: Bools
    row: Ints
    prefix: PrefixRows | None

    @classmethod
    def of(cls, n: int, keeps_prefixes: bool = False) -> SharedRows:
        """Return rows of `n` requests of which nothing is known yet."""
        blocks, lent, drafted = (np.zeros((2, n), dtype=np.int64) for _ in range(3))
        at, admitted, row = np.full(n, -1, dtype=np.int32), np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.int64)
        told = empty_rows(Facts, n), empty_rows(Progress, n)
        prefix = PrefixRows(np.zeros((2, n), dtype=np.int64), np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.int64))
        kept = prefix if keeps_prefixes else None
        return cls(*told, blocks, lent, drafted, np.full(n, np.nan), at, admitted, row, kept)


def over_pools(first: Progress, second: Progress, is_second: Bools) -> Progress:
    """Return what has happened to each request, in the first or the second of two pools (N,); counts of moves add."""

    def merged(name: str) -> Any:
        before, after = getattr(first, name), getattr(second, name)
        if name in ("preemptions", "moved_bytes"):
            return before + after
        return np.where(is_second[:, None] if before.ndim > 1 else is_second, after, before)

    return Progress(**{name: merged(name) for name in Progress.__dataclass_fields__})


def empty_rows(kind: type[_Rows], n: int) -> _Rows:
    """Return rows of `n` requests of which nothing is known yet: times are NaN, tokens and counts 0."""
    rows: dict[str, Any] = {
        name: np.full(n, np.nan) if name.endswith("_s") else np.zeros(n, dtype=np.int64)
        for name in kind.__dataclass_fields__
    }
    if "accepted_at" in rows:
        rows["accepted_at"] = np.zeros((n, POSITIONS), dtype=np.int32)
    return kind(**rows)
