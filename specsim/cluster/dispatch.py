"""Requests on their way to replicas, and what each replica still has to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf, isnan
from typing import NamedTuple

import numpy as np

from specsim.cluster.routing import Coming, Planning, Router
from specsim.core.passes import NOBODY
from specsim.core.protocols import CostModel
from specsim.core.request import Bools, Floats, Ids, Ints, Requests
from specsim.core.user_code import complaint, own_line
from specsim.errors import RouterFault, passes_through, represented
from specsim.pass_shape import PassShape
from specsim.server.admission import CONTEXT_LENGTH
from specsim.server.engine import Replica
from specsim.server.ledger import Ledger
from specsim.server.prefix_cache import Prompts


class Sent(NamedTuple):
    """Facts of the requests that were sent, (N,) each; empty rows until then: a router reaches no later ones.

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
    ledger : of the replica. cost_model : of its scheduler. told : of the requests sent to any replica.
    """

    def __init__(self, ledger: Ledger, cost_model: CostModel, told: Sent) -> None:
        self._ledger, self._told = ledger, told
        self.cost_model = cost_model
        self._ids: Ids = NOBODY
        self._sent: list[int] = []
        self._prompts: Prompts | None = None

    def _send(self, request: int) -> None:
        """Note a request that is sent to this replica."""
        self._sent.append(request)

    @property
    def requests(self) -> int:
        """Requests that wait, run, or are not seen by the scheduler yet."""
        return len(self._here())

    @property
    def running(self) -> int:
        """Requests that hold cache."""
        return len(self._ledger.queues.running)

    @property
    def active_tokens(self) -> int:
        """Tokens that running requests hold in the target's cache."""
        return int(np.add.reduce(self._ledger.progress.target_cached[self._ledger.queues.running]))

    @property
    def unread_tokens(self) -> int:
        """Tokens of texts that are still to be read."""
        return int(np.add.reduce(self._unread(self._here())))

    @property
    def free_bytes(self) -> int:
        """Bytes of cache that no request holds."""
        return self._ledger.pool.free_bytes

    @property
    def capacity_bytes(self) -> int:
        """Bytes of cache in all."""
        return self._ledger.pool.capacity_bytes

    def cached_tokens(self, coming: Coming) -> int:
        """Return the tokens of a request's prompt that are cached here."""
        prefix = self._ledger.caches.prefix
        return coming.cached_tokens if prefix is None else prefix.found(coming.request, coming.prompt_tokens)

    def potential_tokens(self, coming: Coming) -> int:
        """Return the tokens of the prompts of all requests here and of a coming one; see `Server`."""
        here = self._here()
        if self._prompts is None:  # Counted from the first question on: most routers ask none.
            self._prompts = Prompts(self._ledger.caches.prefix)
            self._count(self._prompts.add, here.tolist())
        return self._prompts.tokens + self._prompts.further(coming.request, coming.prompt_tokens)

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
        """Return the seconds that the outstanding tokens take by the cost model; see `Server`.

        A request whose text is read decodes behind all of it.
        """
        ids = self._here()
        if not len(ids):
            return 0.0
        target, text, unread = self.cost_model.target, self._text(ids), self._unread(ids)
        reads, reading_s = unread > 0, 0.0
        if reads.any():
            scheduled = unread[reads]
            tokens = int(np.add.reduce(scheduled))
            reading_s = target.seconds(PassShape.of(self._cached(ids[reads]), scheduled, prefill_tokens=tokens))
        left = int(np.add.reduce(self._told.most_tokens[ids] - text))
        return reading_s + target.seconds(PassShape.of_decoding(text)) * left / len(ids)

    def _text(self, ids: Ids) -> Ints:
        """Return the tokens of each request that exist, (n,)."""
        return np.where(self._unseen(ids), self._told.prompt_tokens[ids], self._ledger.known(ids))

    def _unread(self, ids: Ids) -> Ints:
        """Return what each request is still to read, (n,): one that decodes lacks its last token, and reads nothing."""
        lacks = self._text(ids) - self._cached(ids)
        unread: Ints = np.where((self._ledger.progress.emitted_tokens[ids] == 0) | (lacks > 1), lacks, 0)
        return unread

    def _cached(self, ids: Ids) -> Ints:
        """Return what the target's cache holds of each text, (n,)."""
        cached = self._ledger.progress.target_cached[ids]
        return np.where(self._unseen(ids), self._told.cached_tokens[ids], cached)

    def _here(self) -> Ids:
        """Return the requests sent here that have not ended; ended ones are forgotten."""
        ids = np.concatenate((self._ids, np.array(self._sent, dtype=np.int64)))
        stays = self._ledger.queues.here(ids) | self._unseen(ids)
        if self._prompts is not None:
            self._count(self._prompts.add, self._sent)
            self._count(self._prompts.remove, ids[~stays].tolist())
        self._sent.clear()
        self._ids = ids[stays]
        return self._ids

    def _count(self, change: Callable[[int, int], None], those: Iterable[int]) -> None:
        for request in those:
            change(request, int(self._told.prompt_tokens[request]))

    def _unseen(self, ids: Ids) -> Bools:
        """Return who has not been let in by an engine that decides ahead, (n,)."""
        unseen: Bools = self._ledger.facts.prompt_tokens[ids] == 0
        return unseen


class Dispatch:
    """Sends each request of a run to a replica when it reaches the queue of the engines.

    Parameters
    ----------
    replicas : servers. router : asked only where there are several.
    requests : of the run. sessions : (N,) what requests of one conversation share.
    too_long : (N,) which requests are refused where they are sent, since they exceed the target's context; None: none.

    Attributes
    ----------
    replica_of : (N,) index of each request's replica, -1 until it is sent.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        router: Router,
        requests: Requests,
        sessions: Ints,
        too_long: Bools | None = None,
    ) -> None:
        self.replicas, self.requests, self._too_long = replicas, requests, too_long
        self.replica_of: Ints = np.full(len(requests), -1, dtype=np.int64)
        self._router, self._sessions = router, sessions
        n = len(requests)
        self._told = Sent(np.full(n, inf), *(np.zeros(n, dtype=np.int64) for _ in Sent._fields[1:]))
        self._servers = [Outstanding(each.ledger, each.view.cost_model, self._told) for each in replicas]
        replicas[0].alone = len(replicas) == 1
        if isinstance(router, Planning) and len(replicas) > 1:
            try:
                router.plan(requests.class_names, len(replicas))
            except BaseException as error:
                if passes_through(error):
                    raise
                raise RouterFault(
                    f"router {type(router).__name__}: {complaint(error)}{own_line(error.__traceback__, router)}"
                ) from error

    def deliver(self, request: int) -> None:
        """Let a request arrive at the replica that the router chooses; see `place_of`."""
        replica = self.replicas[self.place_of(request)]
        if self._too_long is not None and self._too_long[request]:
            replica.refuse(request, self.requests, CONTEXT_LENGTH)
        else:
            replica.arrive(request, self.requests)

    def place_of(self, request: int) -> int:
        """Return the place of the replica that the router chooses, and note that the request is sent there.

        Raises
        ------
        RouterFault
            When the router fails, or names no replica: one line with its name and the simulated time.
        """
        place = 0
        if len(self.replicas) > 1:
            coming, told = self._coming(request), self._told
            place = self._asked(coming)
            told.due_s[request], told.cached_tokens[request] = coming.due_s, self._servers[place].cached_tokens(coming)
            told.prompt_tokens[request] = coming.prompt_tokens
            told.most_tokens[request] = coming.prompt_tokens + coming.max_tokens
            self._servers[place]._send(request)
        self.replica_of[request] = place
        return place

    def expect(self, arrival_s: float) -> None:
        """Tell every replica when the next request arrives at any of them."""
        for replica in self.replicas:
            replica.next_arrival_s = arrival_s

    def close(self) -> None:
        """Say that no request will arrive any more."""
        for replica in self.replicas:
            replica.close()

    def _coming(self, request: int) -> Coming:
        told = self.requests
        ttft_slo_s, tpot_slo_s = float(told.ttft_slo_s[request]), float(told.tpot_slo_s[request])
        max_tokens = int(told.max_tokens[request])
        return Coming(
            request=request,
            session=int(self._sessions[request]),
            slo_class=told.class_names[told.slo_class[request]],
            prompt_tokens=int(told.prompt_tokens[request]),
            max_tokens=max_tokens,
            cached_tokens=int(told.cached_tokens[request]),
            ttft_slo_s=ttft_slo_s,
            tpot_slo_s=tpot_slo_s,
            due_s=float(told.arrival_s[request]) + due_after_s(ttft_slo_s, tpot_slo_s, max_tokens),
        )

    def _asked(self, coming: Coming) -> int:
        router, count = self._router, len(self._servers)
        where = f"router {type(router).__name__} at {self.replicas[0].env.now:g} s: "
        try:
            place = router.route(coming, self._servers)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise RouterFault(f"{where}{complaint(error)}{own_line(error.__traceback__, router)}") from error
        if not isinstance(place, int | np.integer) or isinstance(place, bool) or not 0 <= place < count:
            raise RouterFault(f"{where}route returned {represented(place)}; expected a replica, 0 to {count - 1}")
        return int(place)


def due_after_s(ttft_slo_s: float, tpot_slo_s: float, max_tokens: int) -> float:
    """Return the seconds after its arrival in which a request is due: TTFT + TPOT x (max_tokens - 1).

    An objective that it does not have (NaN) adds nothing; a request with none is never due.
    """
    if isnan(ttft_slo_s) and isnan(tpot_slo_s):
        return inf
    return (0.0 if isnan(ttft_slo_s) else ttft_slo_s) + (0.0 if isnan(tpot_slo_s) else tpot_slo_s * (max_tokens - 1))
