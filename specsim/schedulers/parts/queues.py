"""From an order of requests to the rows of a pass: seats, cache and preemption.

Paper: none of its own; vLLM's preemption by recompute (Kwon et al., SOSP 2023), any order of requests before it.
Idea: the first in the order run; who lies further back pauses, and gives up its cache, the last first, where the others
could not run otherwise. The first one can always run: it fits the cache alone, or it would have been rejected.
Deviations: the host's memory has no end. A prompt once begun is read to its end whatever the order says, so that every
admission brings at least a token: two requests that evict each other half-read would never end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from specsim.replica.passes import NOBODY
from specsim.replica.protocols import View
from specsim.replica.request import Bools, Floats, Ids, Ints
from specsim.schedulers.parts.batching import decoding
from specsim.schedulers.parts.parameters import at_least, share
from specsim.schedulers.parts.protocols import Rows, rows_of
from specsim.schedulers.sarathi import chunk_sizes


class Seated(NamedTuple):
    """The requests that have a seat, in order.

    Attributes
    ----------
    requests, chunks : (n,) as in `TargetPass`, but a chunk may be 0: such a request keeps its seat and does not run.
    evicted : (m,) requests that give up their cache.
    """

    requests: Ids
    chunks: Ints
    evicted: Ids


@dataclass(frozen=True, slots=True)
class Seats:
    """The batch, and what becomes of the cache of a request that loses its seat.

    Parameters
    ----------
    max_num_seqs : most requests of a batch. prefill_tokens : most prompt tokens of a pass, cut to fit.
    prefill : "mixed" puts prompts beside the decodes, "first" lets them run alone first.
    watermark : share of the cache left free on admission, unless no other request would run.
    switching : "keep" leaves a paused request its cache while memory lasts and then recomputes it, "recompute" always
        does, "transfer" always moves it to the host and back.
    """

    max_num_seqs: int
    prefill_tokens: int
    prefill: Literal["mixed", "first"]
    watermark: float
    switching: Literal["keep", "recompute", "transfer"]

    def __post_init__(self) -> None:
        at_least(1, max_num_seqs=self.max_num_seqs, prefill_tokens=self.prefill_tokens)
        share(watermark=self.watermark)

    def rows(self, view: View, order: Ids, drafting: bool) -> Rows:
        """Return the rows of those in `order` (live requests, all residents among them) who get a seat."""
        return self.running(view, self.seat(view, order, drafting))

    def running(self, view: View, seated: Seated) -> Rows:
        """Return the rows of the seated that have something to run."""
        run = seated.chunks > 0
        rows = rows_of(view, seated.requests[run], seated.chunks[run], seated.evicted, first=self.prefill == "first")
        return rows._replace(transfer=self.switching == "transfer")

    def seat(self, view: View, order: Ids, drafting: bool) -> Seated:
        """Return the longest head of `order` that seats and cache allow, and who is evicted for it."""
        order = begun_first(view, order)
        head = order[: self.max_num_seqs]
        decodes = decoding(view, head)
        # In most steps all requests decode and surely fit: no request yields.
        n, lacking = len(order), int(np.add.reduce(view.draft_pending(head))) if drafting else 0
        if n == len(head) and decodes.all() and view.surely_fits(n, n, lacking):
            return Seated(head, np.ones(n, dtype=np.int64), NOBODY)
        budget = int(np.count_nonzero(decodes)) + self.prefill_tokens
        sizes = whole_endings(view, head, chunk_sizes(view.pending(head), decodes, budget))
        held = view.held_bytes(order)
        growth = growth_bytes(view, head, sizes, decodes, drafting)
        margin = self.watermark * view.capacity_bytes * ((held[: len(head)] == 0) & (sizes > 0))
        count, lacking = fitting_head(growth, held, view.free_bytes, margin)
        rest, kept = order[count:], held[count:]
        if self.switching != "keep":
            evicted = rest[kept > 0]
        else:
            evicted = rest[last_to_yield(kept, lacking)] if lacking > 0 else NOBODY
        return Seated(head[:count], sizes[:count], evicted)


def whole_endings(view: View, ids: Ids, sizes: Ints) -> Ints:
    """Return `sizes` (n,) of chunks, one more where a recomputed prompt would lack only its last token behind it.

    Such a request would count as decoding before it has emitted anything since it came back, and could lose its seat.
    """
    ends = (sizes > 0) & (view.pending(ids) - sizes == 1) & (view.emitted_tokens[ids] > 0)
    whole: Ints = sizes + ends
    return whole


def live(view: View) -> Ids:
    """Return all live requests: those that hold cache in order of admission, then the waiting line, (n,)."""
    waiting = view.waiting
    if not len(waiting):
        return view.running
    return np.concatenate((view.running, np.fromiter(waiting, dtype=np.int64, count=len(waiting))))


def within_reach(ids: Ids, fresh: Bools, most: int) -> Ints:
    """Return `ids` (n,) without those of the `fresh` (n,), equals in order of arrival, whom `most` of them precede."""
    return ids[~fresh | (np.cumsum(fresh) <= most)]


def begun_first(view: View, order: Ids) -> Ids:
    """Return `order` (n,) with those in front whose prompts are half read, in order of admission."""
    resident = view.running
    begun = resident[~decoding(view, resident)]
    if not len(begun):
        return order
    return np.concatenate((begun, order[~np.isin(order, begun)]))


def growth_bytes(view: View, ids: Ids, sizes: Ints, decodes: Bools, drafting: bool) -> Ints:
    """Return the further bytes that each request needs when it feeds `sizes` (n,) tokens, none for 0, (n,).

    As in `batching.Admission`, whoever holds nothing yet needs room for all that is pending and the next token.
    """
    cached, drafted = view.target_cached[ids], view.draft_cached[ids]
    fed = np.where(decodes, view.draft_pending(ids), np.minimum(view.draft_pending(ids), sizes))
    new = cached == 0
    target = np.where(new, view.pending(ids) + 1, cached + sizes)
    draft = np.where(new, view.draft_pending(ids) + 1, drafted + fed) if drafting else drafted
    growth: Ints = view.growth_bytes(ids, target, draft) * (sizes > 0)
    return growth


def fitting_head(growth: Ints, held: Ints, free_bytes: int, margin: Floats) -> tuple[int, int]:
    """Return how many of the first in order fit when all behind them may be evicted, and the bytes to be had so.

    Parameters
    ----------
    growth, margin : (n,) bytes that each of the head needs, and bytes to be left free beside it; the first one's
        margin does not count, and it always fits.
    held : (m,) bytes that each in the whole order holds, m >= n.
    """
    needed = np.cumsum(growth)
    behind = held.sum() - np.cumsum(held[: len(growth)])
    over = needed + margin > free_bytes + behind
    over[0] = False
    count = int(np.argmax(over)) if over.any() else len(growth)
    return count, max(int(needed[count - 1]) - free_bytes, 0)


def last_to_yield(held: Ints, lacking: int) -> Ints:
    """Return the places, the last first, of those who yield `lacking` bytes; `held` (n,) is what each would yield."""
    backwards = np.flatnonzero(held)[::-1]
    enough = int(np.searchsorted(np.cumsum(held[backwards]), lacking)) + 1
    return backwards[:enough]


def queue_limits(queues: int, first_limit: float, limit_ratio: float) -> Floats:
    """Return the upper limits S_j = M^(j-1) S_1 of all queues but the last, which has none, (queues - 1,)."""
    limits: Floats = first_limit * limit_ratio ** np.arange(queues - 1, dtype=np.float64)
    return limits


def with_rows(array: Floats, view: View, empty: float = 0.0) -> Floats:
    """Return `array` (N,), or N rows of `empty` where it has none yet: a scheduler learns N from its first view."""
    return array if len(array) else np.full(len(view.arrival_s), empty)
