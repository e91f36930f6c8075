"""Prefill and decode on replicas of their own: between two visits a request's cache goes over a link.

Splitwise (Patel et al., ISCA 2024), DistServe (Zhong et al., OSDI 2024), Mooncake (Qin et al., FAST 2025).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import simpy

from specsim.cluster.clients import Arrival
from specsim.cluster.dispatch import Dispatch
from specsim.cluster.routing import Router
from specsim.core.request import Begun, Bools, Ids, Ints, Requests
from specsim.server.admission import CONTEXT_LENGTH
from specsim.server.engine import Replica
from specsim.server.kv_cache import KV_CAPACITY
from specsim.server.state import Moves


class Splitting(NamedTuple):
    """How the replicas of a run are split.

    Attributes
    ----------
    prefill : the first so many replicas read prompts; the others decode, and send the first token with the others.
    link_bytes_per_s : of the link that each prefill replica sends by, one cache after the other.
    link_latency_s : seconds from the last byte that is sent to the request's place in the queue of its second replica.
    """

    prefill: int
    link_bytes_per_s: float
    link_latency_s: float = 0.0


class SplitDispatch:
    """Requests on their way through both pools, in the place of a `Dispatch`.

    All that the prompt left in both caches moves. It does so when the prefill pass has ended, and the blocks are
    free from then on: a cache that waits for the link, or for a place on the decode replica, lies in host memory. The
    client is answered by the decode replica, which sends the first token when it admits the request, as in SGLang.

    Parameters
    ----------
    env : simpy environment. replicas : of both pools. served : the processes of those that read prompts.
    splitting : which they are, and their links. router : makes a fresh router for each pool.
    requests, output_tokens : of the run, and how many tokens each emits in all, (N,); a request of one token ends where
        its prompt was read. sessions : (N,) what requests of one conversation share.
    too_long : (N,) which requests are refused, since they exceed the target's context; None: none.

    Attributes
    ----------
    replica_of : (N,) index of the replica that each request was sent to last, -1 until it is sent.
    """

    def __init__(
        self,
        env: simpy.Environment,
        replicas: Sequence[Replica],
        served: Sequence[simpy.Process],
        splitting: Splitting,
        router: Callable[[], Router],
        requests: Requests,
        output_tokens: Ints,
        sessions: Ints,
        too_long: Bools | None = None,
    ) -> None:
        self.replicas, self.requests = replicas, requests
        self._env, self._served, self._splitting = env, served, splitting
        n, first = len(requests), splitting.prefill
        rows = {name: getattr(requests, name) for name in Requests.__dataclass_fields__}
        rows["cached_tokens"] = requests.prompt_tokens
        self._begun = Begun(**rows, draft_kv_tokens=np.zeros(n, dtype=np.int64))
        one_token = replace(requests, max_tokens=np.ones(n, dtype=np.int64))
        # Nothing is reserved for what is emitted elsewhere; the drafter reads the prompt where a second token follows.
        self._read = replace(requests, max_tokens=np.minimum(requests.max_tokens, 2))
        self._reading = Dispatch(replicas[:first], router(), one_token, sessions)
        self._decoding = Dispatch(replicas[first:], router(), self._begun, sessions)
        self.replica_of: Ints = np.full(n, -1, dtype=np.int64)
        self.moves = Moves(self._reading.replica_of, np.zeros(n, dtype=np.int64), *np.full((2, n), np.nan))
        self._goes_on: Bools = output_tokens > 1
        memories = {each.ledger.pool.memory for each in replicas[first:]}
        self._fits: Bools = np.all([each.holds(requests) for each in memories], axis=0)
        self._too_long = too_long
        self._free_s = [0.0] * first
        self._travelling = 0
        self._arrived: simpy.Event | None = None
        for place, replica in enumerate(self._reading.replicas):
            replica.onward = self._onward(place)

    def deliver(self, request: int) -> None:
        """Let a request arrive at the prefill replica that the router chooses.

        A request that is too long, or does not fit every decode replica, is rejected there, before any work is done.

        Raises
        ------
        RouterFault
            When the router fails, or names no replica.
        """
        place = self._reading.place_of(request)
        self.replica_of[request] = place
        if self._too_long is not None and self._too_long[request]:
            self.replicas[place].refuse(request, self.requests, CONTEXT_LENGTH)
        elif self._fits[request]:
            self.replicas[place].arrive(request, self._read)
        else:
            self.replicas[place].refuse(request, self.requests, KV_CAPACITY)

    def expect(self, arrival_s: float) -> None:
        """Tell the prefill replicas when the next request arrives; the others take it from the clock's next event."""
        self._reading.expect(arrival_s)

    def close(self) -> None:
        """Say that no request will arrive any more: the decode replicas are told when the last cache has arrived."""
        self._reading.close()
        self._env.process(self._closing())

    def _closing(self) -> Generator[simpy.Event, Any, None]:
        yield self._env.all_of(self._served)
        if self._travelling:
            self._arrived = self._env.event()
            yield self._arrived
        self._decoding.close()

    def _onward(self, place: int) -> Callable[[Ids, Ints], Ids]:
        """Return what sends requests on whose first visit, on the replica at `place`, has just ended."""

        def onward(ids: Ids, draft_kv_tokens: Ints) -> Ids:
            going = self._goes_on[ids]
            for request, tokens in zip(ids[going].tolist(), draft_kv_tokens[going].tolist(), strict=True):
                self._send(request, tokens, place)
            return ids[going]

        return onward

    def _send(self, request: int, draft_kv_tokens: int, place: int) -> None:
        """Begin to move a request's cache: its prompt in the target's, and so many tokens in the drafter's."""
        now_s, memory = self._env.now, self.replicas[place].ledger.pool.memory
        self._begun.draft_kv_tokens[request] = draft_kv_tokens
        moved_bytes = int(self.requests.prompt_tokens[request]) * memory.target_token_bytes
        moved_bytes += draft_kv_tokens * memory.draft_token_bytes
        sent_s = max(now_s, self._free_s[place]) + moved_bytes / self._splitting.link_bytes_per_s
        self._free_s[place] = sent_s
        arrival_s = sent_s + self._splitting.link_latency_s
        self.moves.moved_bytes[request], self.moves.moving_s[request] = moved_bytes, arrival_s - now_s
        self.moves.arrived_s[request] = arrival_s
        then = self._decoding.place_of(request)
        self.replica_of[request] = self._splitting.prefill + then
        self._travelling += 1
        self._env.process(self._travel(request, self._decoding.replicas[then], arrival_s))

    def _travel(self, request: int, replica: Replica, arrival_s: float) -> Generator[simpy.Event, Any, None]:
        while arrival_s > self._env.now:
            yield Arrival(self._env, arrival_s)
        replica.arrive(request, self._begun)
        self._travelling -= 1
        if not self._travelling and self._arrived is not None:
            self._arrived.succeed()


Sending = Dispatch | SplitDispatch
"""Brings requests to replicas, of one pool or of two."""
