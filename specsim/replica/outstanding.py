"""What a replica has been sent and has not ended: the face of it that a router sees."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from specsim.replica.ledger import Ledger
from specsim.replica.passes import NOBODY
from specsim.replica.request import Bools, Floats, Ids, Ints


class Sent(NamedTuple):
    """What is told of the requests that were sent, (N,) each; empty rows until then: a router reaches no later ones.

    Attributes
    ----------
    due_s : seconds by which each is due, infinite for none.
    most_tokens : of the prompt and of the longest output. cached_tokens : of the prompt, at arrival.
    """

    due_s: Floats
    most_tokens: Ints
    cached_tokens: Ints


class Outstanding:
    """A replica as a `Server`.

    Parameters
    ----------
    ledger : of the replica. told : of the requests sent to any replica.
    """

    def __init__(self, ledger: Ledger, told: Sent) -> None:
        self._ledger, self._told = ledger, told
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
        unseen = self._unseen(ids)
        cached = np.where(unseen, self._told.cached_tokens[ids], self._ledger.progress.target_cached[ids])
        return int(np.add.reduce(self._told.most_tokens[ids] - cached))

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
