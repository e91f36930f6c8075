"""How far LAPS-SD could come: its order with every acceptance rate known, and the order of the true times.

Paper: none; bounds for LAPS-SD (Semi-Clairvoyant Scheduling of Speculative Decoding Requests).
Idea: on one seat the shortest true rest first has the least mean latency, if switching is free. What this gains over
the shortest predicted output first is all that knowledge of acceptance can gain.
Deviations: the true times are rounds foreseen of chains of `num_speculative_tokens` x a round's believed time now. A
round's slow growth with the context is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from specsim.pass_shape import PassShapes
from specsim.replica.protocols import Foresight, View
from specsim.replica.request import Floats, Ids
from specsim.schedulers.laps_sd import round_s
from specsim.schedulers.parts.parameters import draft_length
from specsim.schedulers.parts.protocols import Batching, Rows
from specsim.schedulers.parts.queues import Seats, live, ranked
from specsim.schedulers.perception import AcceptanceMonitor


@dataclass(slots=True)
class ToldAcceptance(AcceptanceMonitor):
    """Know each request's mean acceptance rate from the start, for chains of `num_speculative_tokens`, at least 1.

    The luck of its positions is not known. `totals` begin with a round that was not run.
    """

    window: int = field(init=False, default=1)
    spread: float = field(init=False, default=0.0)
    num_speculative_tokens: int
    _foresight: Foresight | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        # Not super(): a dataclass with slots is another class than the one that it was defined as.
        AcceptanceMonitor.__post_init__(self)
        draft_length(1, num_speculative_tokens=self.num_speculative_tokens)

    def foresee(self, foresight: Foresight) -> None:
        """Take the foresight that knows how often the drafter is right."""
        self._foresight = foresight

    def begin(self, requests: int) -> None:
        """Allocate for N requests, all of which are perceptible; see `AcceptanceMonitor.begin`."""
        AcceptanceMonitor.begin(self, requests)
        if self._foresight is None:
            raise ValueError("acceptance rates are told by foresight: use a clairvoyant scheduler")
        most = self.num_speculative_tokens
        self.totals[:] = np.array([1.0, most, most, 0.0])[:, None]
        right = self._foresight.agreement(np.arange(requests))
        self.rate[:] = (right[:, None] ** np.arange(1, most + 1)).mean(axis=1)


@dataclass(slots=True)
class ShortestRemaining(Batching):
    """A batching part, SRPT: the shortest true rest first, for chains of `num_speculative_tokens`, at least 1."""

    seats: Seats
    num_speculative_tokens: int
    _foresight: Foresight | None = field(init=False, default=None)
    _rounds: Floats = field(init=False, repr=False)
    _at: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        draft_length(1, num_speculative_tokens=self.num_speculative_tokens)

    def foresee(self, foresight: Foresight) -> None:
        """Take the foresight that knows the rounds left."""
        self._foresight = foresight

    def begin(self, requests: int) -> None:
        """Make the state of so many requests."""
        self._rounds, self._at = np.full((2, requests), -1.0)

    def rows(self, view: View, drafting: bool, draft_tokens: int = 0) -> Rows:
        """Return the requests whose rest is shortest."""
        ids = live(view)
        keys = self.rest_s(view, ids), np.arange(len(ids))
        order = ranked(view, ids, keys, self.seats.max_num_seqs)
        return self.seats.rows(view, order, drafting)

    def rest_s(self, view: View, ids: Ids) -> Floats:
        """Return the seconds that each request still needs alone on the server, its prompt included, (n,)."""
        if self._foresight is None:
            raise ValueError("true times are foreseen: use a clairvoyant scheduler")
        most = np.full(len(ids), float(self.num_speculative_tokens))
        moved = ids[self._at[ids] != view.emitted_tokens[ids]]
        if len(moved):
            self._rounds[moved] = self._foresight.rounds_left(moved, self.num_speculative_tokens)
            self._at[moved] = view.emitted_tokens[moved]
        unread = np.where(view.emitted_tokens[ids] > 0, 0, view.pending(ids))
        prompt_s = PassShapes.each(view.target_cached[ids], unread).seconds(view.belief.target)
        rest_s: Floats = self._rounds[ids] * round_s(view, ids, most, most) + prompt_s
        return rest_s
