"""What a replica has been sent and has not ended: the face of it that a router sees."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from specsim.pass_shape import PassShape
from specsim.replica.ledger import Ledger
from specsim.replica.passes import NOBODY
from specsim.replica.protocols import Belief
from specsim.replica.request import Bools, Floats, Ids, Ints


class Sent(NamedTuple):
    """What is told of the requests that were sent, (N,) each; empty rows until then: a router reaches no later ones.

    Attributes
    ----------
    due_s : seconds by which each is due, infinite for none.
    prompt_tokens : of the prompt. most_tokens : of it and of the longest output. cached_tokens : of it, at arrival.
    """

    due_s: Floats
    prompt_tokens: Ints
    most_tokens: Ints
    cached_tokens: Ints


class Outstanding:
    """A replica as a `Server`.

    Parameters
    ----------
    ledger : of the replica. belief : of its scheduler. told : of the requests sent to any replica.
    """

    def __init__(self, ledger: Ledger, belief: Belief, told: Sent) -> None:
        self._ledger, self._told = ledger, told
        self.belief = belief
        self._ids: Ids = NOBODY
        self._sent: list[int] = []

    def send(self, request: int) -> None:
        """Note a request that is sent to this replica."""
        self._sent.append(request)

    @property
    def requests(self) -> int:
        """Requests that wait, run, or are not seen by the scheduler yet."""
        return len(self._here())

    @property
    def running(self) -> int:
        """Requests that hold cache."""
        return len(self._ledger.roster.running)

    @property
    def free_bytes(self) -> int:
        """Bytes of cache that no request holds."""
        return self._ledger.pool.free_bytes

    @property
    def capacity_bytes(self) -> int:
        """Bytes of cache in all."""
        return self._ledger.pool.memory.capacity_bytes

    def outstanding_tokens(self, due_by_s: float = inf) -> int:
        """Return the tokens that requests due by then still need, by what is told of them.

        That is what the target's cache lacks of their texts, and what they may still emit: prompt + `max_tokens` less
        what is cached, whatever was emitted. A preempted request reads its text again.
        """
        ids = self._here()
        if due_by_s < inf:
            ids = ids[self._told.due_s[ids] <= due_by_s]
        return int(np.add.reduce(self._told.most_tokens[ids] - self._cached(ids)))

    def outstanding_s(self) -> float:
        """Return the seconds that the outstanding tokens are believed to take; see `Server`.

        Whose text is read decodes behind all of it.
        """
        ids = self._here()
        if not len(ids):
            return 0.0
        target, cached = self.belief.target, self._cached(ids)
        unseen, emitted = self._unseen(ids), self._ledger.progress.emitted_tokens[ids]
        text = np.where(unseen, self._told.prompt_tokens[ids], self._ledger.known(ids))
        lacks = text - cached
        reads = (lacks > 0) & ((emitted == 0) | (lacks > 1))
        reading_s = 0.0
        if reads.any():
            chunks = lacks[reads]
            reading_s = target.seconds(PassShape.of(cached[reads], chunks, prefill_tokens=int(np.add.reduce(chunks))))
        left = int(np.add.reduce(self._told.most_tokens[ids] - text))
        return reading_s + target.seconds(PassShape.of_decoding(text)) * left / len(ids)

    def _cached(self, ids: Ids) -> Ints:
        """Return what the target's cache holds of each text, (n,)."""
        cached = self._ledger.progress.target_cached[ids]
        return np.where(self._unseen(ids), self._told.cached_tokens[ids], cached)

    def _here(self) -> Ids:
        """Return who was sent here and has not ended; whoever has is forgotten."""
        ids = np.concatenate((self._ids, np.array(self._sent, dtype=np.int64)))
        self._sent.clear()
        self._ids = ids[self._ledger.roster.here(ids) | self._unseen(ids)]
        return self._ids

    def _unseen(self, ids: Ids) -> Bools:
        """Return who has not been let in by an engine that decides ahead, (n,)."""
        unseen: Bools = self._ledger.facts.prompt_tokens[ids] == 0
        return unseen
