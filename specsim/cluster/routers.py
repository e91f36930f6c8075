"""Routers: round robin, least tokens, least seconds, slack, affinity, cache-aware and dedicated replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from math import inf
from typing import NamedTuple

import numpy as np

from specsim.cluster.routing import Coming, Planning, Router, Server
from specsim.errors import nearest
from specsim.rng import mix


class RoundRobin:
    """Send the first request to the first server, the next to the next, and begin again behind the last."""

    def __init__(self) -> None:
        self._sent = 0

    def route(self, coming: Coming, servers: Sequence[Server]) -> int:
        """Return the next place in turn."""
        place = self._sent % len(servers)
        self._sent += 1
        return place


class LeastTokens:
    """Send a request where the fewest tokens are outstanding; of equals, to the first."""

    def route(self, coming: Coming, servers: Sequence[Server]) -> int:
        """Return the place of the server with the fewest outstanding tokens."""
        return min(range(len(servers)), key=lambda place: servers[place].outstanding_tokens())


class LeastSeconds:
    """Send a request where the outstanding tokens take the fewest estimated seconds.

    Of equals, to the server with the fastest decode pass (batch 1, context 512), then to the first.
    """

    def route(self, coming: Coming, servers: Sequence[Server]) -> int:
        """Return the place of the server with the fewest outstanding seconds."""

        def work(place: int) -> tuple[float, float]:
            server = servers[place]
            return server.outstanding_s(), server.cost_model.baseline_s

        return min(range(len(servers)), key=work)


class Slack:
    """Send a request where the fewest outstanding tokens are due no later than it is.

    Of equals, where the fewest are outstanding in all, then to the first. A request without an objective is never due:
    for it all tokens count.
    """

    def route(self, coming: Coming, servers: Sequence[Server]) -> int:
        """Return the place of the server with the least work that comes before the request by its deadline."""

        def work(place: int) -> tuple[int, int]:
            server = servers[place]
            return server.outstanding_tokens(coming.due_s), server.outstanding_tokens()

        return min(range(len(servers)), key=work)


class Affinity:
    """Send all requests of a session to one server, by a hash of the session: no load is looked at."""

    by_session = True

    def route(self, coming: Coming, servers: Sequence[Server]) -> int:
        """Return the place that belongs to the session."""
        return int(mix(np.array(coming.session, dtype=np.int64).astype(np.uint64)) % np.uint64(len(servers)))


class CacheAware:
    """Send a request where the fewest tokens are left to read and are of prompts, its own among both.

    A block that prompts share is of prompts once. Of equals, where the fewest were sent, then to the first. Dynamo's KV
    router at temperature 0, which knows what the caches hold at the time.

    Parameters
    ----------
    overlap_weight : of a token that is left to read, against one of prompts (Dynamo's `--kv-overlap-score-weight`).
    """

    def __init__(self, overlap_weight: float) -> None:
        if not 0 <= overlap_weight < inf:
            raise ValueError(f"overlap_weight: {overlap_weight!r} is not a number of at least 0")
        self._weight, self._sent = overlap_weight, Counter[int]()

    def route(self, coming: Coming, servers: Sequence[Server]) -> int:
        """Return the place of the server with the least to read and to hold."""

        def work(place: int) -> tuple[float, int]:
            server = servers[place]
            unread = server.unread_tokens + coming.prompt_tokens - server.cached_tokens(coming)
            return self._weight * unread + server.potential_tokens(coming), self._sent[place]

        place = min(range(len(servers)), key=work)
        self._sent[place] += 1
        return place


class _Pool(NamedTuple):
    """Servers of one class, from `first` up to `end`, and the router among them."""

    first: int
    end: int
    router: Router


class Dedicated:
    """Send a request to the pool of its class.

    Parameters
    ----------
    within : router within a pool; each pool has its own.
    pools : servers by class, in any order; None: as many for each class.
    """

    def __init__(self, within: Router, pools: Mapping[str, int] | None) -> None:
        if pools is not None and not isinstance(pools, Mapping):
            raise ValueError(f"pools: {pools!r} is no mapping; expected servers by class, or null")
        for name, count in (pools or {}).items():
            if type(count) is not int or count < 1:
                raise ValueError(f"pools: {name}: {count!r} is not a whole number of servers above 0")
        self._within, self._counts = within, pools
        self.by_session = getattr(within, "by_session", False)
        self._pools: dict[str, _Pool] = {}

    def plan(self, classes: Sequence[str], servers: int) -> None:
        """Share the servers out in the order of the classes.

        Raises
        ------
        ValueError
            When a pool is of no class, a class has no pool, or the pools do not use the servers up.
        """
        first, counts = 0, self._counts_of(classes, servers)
        for name in classes:
            pool = _Pool(first, first + counts[name], deepcopy(self._within))
            if isinstance(pool.router, Planning):
                pool.router.plan(classes, counts[name])
            self._pools[name], first = pool, pool.end

    def route(self, coming: Coming, servers: Sequence[Server]) -> int:
        """Return a place in the pool of the request's class."""
        first, end, router = self._pools[coming.slo_class]
        return first + router.route(coming, servers[first:end])

    def _counts_of(self, classes: Sequence[str], servers: int) -> Mapping[str, int]:
        if self._counts is None:
            each, rest = divmod(servers, len(classes))
            if rest or not each:
                raise ValueError(
                    f"{servers} replicas cannot be shared evenly among {len(classes)} classes "
                    f"({', '.join(classes)}); expected a multiple, or router.pools"
                )
            return dict.fromkeys(classes, each)
        for name in self._counts:
            if name not in classes:
                raise ValueError(f"pools: unknown class {name!r}{nearest(name, classes)}")
        for name in classes:
            if name not in self._counts:
                raise ValueError(f"pools: class {name!r} has no pool; expected one for each class")
        total = sum(self._counts.values())
        if total != servers:
            raise ValueError(f"pools: {total} replicas in all; expected {servers}")
        return self._counts
