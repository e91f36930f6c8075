"""Queues of waiting and running requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from specsim.core.passes import NOBODY
from specsim.core.protocols import View
from specsim.core.request import Bools, Floats, Ids, Ints
from specsim.schedulers.parts.batching import decoding
from specsim.schedulers.parts.protocols import Sequences, at_least, probability, sequences_of
from specsim.schedulers.sarathi import chunk_sizes


class Slotted(NamedTuple):
    """The requests that have a slot, in order.

    Attributes
    ----------
    requests, scheduled_tokens : (n,) as in `TargetPass`. A request with 0 tokens keeps its slot but does not run.
    evicted : (m,) requests that give up their cache.
    """

    requests: Ids
    scheduled_tokens: Ints
    evicted: Ids


@dataclass(frozen=True, slots=True)
class BatchSlots:
    """The slots of a batch, and what becomes of the cache of a request that loses its slot.

    Parameters
    ----------
    max_num_seqs : most requests of a batch. prefill_tokens : most prompt tokens of a pass; the last prompt is cut.
    prefill : "mixed" puts prompts beside the decodes, "first" lets them run alone first.
    watermark : share of the cache left free on admission, unless no other request would run.
    switching : "keep" keeps a paused request's cache while memory lasts and then recomputes it; "recompute" always
        recomputes it; "transfer" always moves it to the host and back.
    """

    max_num_seqs: int
    prefill_tokens: int
    prefill: Literal["mixed", "first"]
    watermark: float
    switching: Literal["keep", "recompute", "transfer"]

    def __post_init__(self) -> None:
        at_least(1, max_num_seqs=self.max_num_seqs, prefill_tokens=self.prefill_tokens)
        probability(watermark=self.watermark)

    def sequences(self, view: View, order: Ids, drafting: bool) -> Sequences:
        """Return the sequences that get a slot; `order` holds live requests, all running ones included."""
        return self.running(view, self.assign(view, order, drafting))

    def running(self, view: View, slotted: Slotted) -> Sequences:
        """Return the sequences of slotted requests that have something to run."""
        run = slotted.scheduled_tokens > 0
        sequences = sequences_of(
            view, slotted.requests[run], slotted.scheduled_tokens[run], slotted.evicted, first=self.prefill == "first"
        )
        return sequences._replace(transfer=self.switching == "transfer")

    def assign(self, view: View, order: Ids, drafting: bool) -> Slotted:
        """Return the longest prefix of `order` for which there are slots and cache, and the requests evicted for it."""
        order = begun_first(view, order)
        head = order[: self.max_num_seqs]
        decodes = decoding(view, head)
        # In most steps all requests decode and surely fit, so no request yields.
        n, lacking = len(order), int(np.add.reduce(view.draft_pending(head))) if drafting else 0
        if n == len(head) and decodes.all() and view.surely_fits(n, n, lacking):
            return Slotted(head, np.ones(n, dtype=np.int64), NOBODY)
        budget = int(np.count_nonzero(decodes)) + self.prefill_tokens
        sizes = whole_endings(view, head, chunk_sizes(view.pending(head), decodes, budget))
        count, evicted = fitting_head(view, order, sizes, decodes, drafting, self.watermark)
        if self.switching != "keep":
            evicted = order[count:][view.held_bytes(order[count:]) > 0]
        return Slotted(head[:count], sizes[:count], evicted)


def whole_endings(view: View, ids: Ids, sizes: Ints) -> Ints:
    """Return the scheduled tokens `sizes` (n,), one more where a recomputed prompt would lack only its last token.

    Such a request would count as decoding before it has emitted a token since its return, and could lose its slot.
    """
    ends = (sizes > 0) & (view.pending(ids) - sizes == 1) & (view.emitted_tokens[ids] > 0)
    whole: Ints = sizes + ends
    return whole


def live(view: View) -> Ids:
    """Return all live requests, (n,): running ones in order of admission, then waiting ones."""
    if not len(view.waiting):
        return view.running
    return np.concatenate((view.running, np.asarray(view.waiting, dtype=np.int64)))


def ranked(view: View, ids: Ids, keys: Sequence[Floats | Ints], most: int) -> Ids:
    """Return live requests `ids` (n,) in the order of their keys (n,) each, the first one first, the last one distinct.

    Waiting requests behind `most` others are left out: they get no slot, and hold no cache that they could yield.
    """
    inside = len(view.running)
    near = inside + nearest([key[inside:] for key in keys], most)
    kept = np.concatenate((np.arange(inside), near))
    order: Ids = ids[kept][np.lexsort([key[kept] for key in reversed(keys)])]
    return order


def nearest(keys: Sequence[Floats | Ints], most: int) -> Ints:
    """Return the places of the first `most` in the order of `keys` (n,) each, in any order; NaN is last.

    That takes time in proportion to n, where sorting takes more.
    """
    left, found = np.arange(len(keys[0])), list[Ints]()
    for key in keys:
        if len(left) <= most:
            break
        values = key[left]
        edge = np.partition(values, most - 1)[most - 1]
        nothing = values != values
        before, level = (~nothing, nothing) if edge != edge else (values < edge, values == edge)
        found.append(left[before])
        most -= len(found[-1])
        left = left[level]
    return np.concatenate((*found, left))


def within_reach(ids: Ids, fresh: Bools, most: int) -> Ints:
    """Return `ids` (n,) without `fresh` ones (n,) after the first `most`; fresh ones are equal, in order of arrival."""
    return ids[~fresh | (np.cumsum(fresh) <= most)]


def begun_first(view: View, order: Ids) -> Ids:
    """Return `order` (n,) with half-read prompts moved to the front, in order of admission."""
    resident = view.running
    begun = resident[~decoding(view, resident)]
    if not len(begun):
        return order
    return np.concatenate((begun, order[~among(order, begun)]))


def among(ids: Ids, others: Ids) -> Bools:
    """Return which of `ids` (n,) are among `others`, both not empty, (n,)."""
    marked = np.zeros(max(ids.max(), others.max()) + 1, dtype=np.bool_)
    marked[others] = True
    found: Bools = marked[ids]
    return found


def growth_bytes(view: View, ids: Ids, sizes: Ints, decodes: Bools, drafting: bool) -> Ints:
    """Return the further bytes that each request needs to feed `sizes` (n,) tokens, (n,); 0 for 0 tokens.

    As in `batching.Admission`, a request without cache needs room for all pending tokens and the next one.
    """
    cached, drafted = view.target_cached[ids], view.draft_cached[ids]
    catch_up = np.where(decodes, view.draft_pending(ids), np.minimum(view.draft_pending(ids), sizes))
    new = cached == 0
    target = np.where(new, view.pending(ids) + 1, cached + sizes)
    draft = np.where(new, view.draft_pending(ids) + 1, drafted + catch_up) if drafting else drafted
    growth: Ints = view.growth_bytes(ids, target, draft) * (sizes > 0)
    return growth


def fitting_head(
    view: View, order: Ids, sizes: Ints, decodes: Bools, drafting: bool, watermark: float
) -> tuple[int, Ids]:
    """Return how many of the first requests fit if all later ones may be evicted, and those that then yield.

    The first request always fits. The last of `order` yields first, and no more do than have to.

    Parameters
    ----------
    order : (m,) requests. sizes, decodes : (n,) tokens of the first n, and whether each decodes; see `growth_bytes`.
    watermark : share of the cache that is left free beside a newcomer that is not the first.
    """
    n, held, free_bytes = len(sizes), view.held_bytes(order), view.free_bytes
    margin = watermark * view.capacity_bytes * ((held[:n] == 0) & (sizes > 0))
    needed = np.cumsum(growth_bytes(view, order[:n], sizes, decodes, drafting))
    behind = held.sum() - np.cumsum(held[:n])
    over = needed + margin > free_bytes + behind
    over[0] = False
    count = int(np.argmax(over)) if over.any() else n
    lacking = int(needed[count - 1]) - free_bytes
    if lacking <= 0:
        return count, NOBODY
    backwards = count + np.flatnonzero(held[count:])[::-1]
    enough = int(np.searchsorted(np.cumsum(held[backwards]), lacking)) + 1
    return count, order[backwards[:enough]]
