"""The seam of routing: what a router is told of a request and sees of each server, and what it decides."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple, Protocol, runtime_checkable

from specsim.replica.protocols import Belief


class Coming(NamedTuple):
    """A request that is to be sent to a server: what its client tells, nothing of its output.

    Attributes
    ----------
    session : what requests of one conversation share.
    slo_class : name of its class.
    prompt_tokens, max_tokens, cached_tokens, ttft_slo_s, tpot_slo_s : as in `specsim.replica.request.Facts`.
    due_s : simulated time by which its last token that may be emitted is due; infinite without an objective.
    """

    session: int
    slo_class: str
    prompt_tokens: int
    max_tokens: int
    cached_tokens: int
    ttft_slo_s: float
    tpot_slo_s: float
    due_s: float


class Server(Protocol):
    """What a router may see of a replica: counts of what was sent to it and has not ended; nothing of outputs.

    `requests` of them hold or await cache, `running` of them hold some. `free_bytes` of `capacity_bytes` of cache are
    held by nobody. `belief` is what the scheduler there believes that passes take: replicas may run on different
    hardware.
    """

    @property
    def requests(self) -> int: ...  # noqa: D102
    @property
    def running(self) -> int: ...  # noqa: D102
    @property
    def free_bytes(self) -> int: ...  # noqa: D102
    @property
    def capacity_bytes(self) -> int: ...  # noqa: D102
    @property
    def belief(self) -> Belief: ...  # noqa: D102

    def outstanding_tokens(self, due_by_s: float = inf) -> int:
        """Return the tokens that requests due by then still need: to be read, and to be emitted at most."""
        ...

    def outstanding_s(self) -> float:
        """Return the seconds that the outstanding tokens are believed to take.

        That is one target pass that reads what is unread, and, for the tokens that may still be emitted, passes that
        decode one token of each request that is here.
        """
        ...


class Router(Protocol):
    """A policy that sends each request to one server, for good, when it reaches the engine's queue."""

    def route(self, coming: Coming, servers: Sequence[Server]) -> int:
        """Return the place in `servers` of the one that serves the request."""
        ...


@runtime_checkable
class Planning(Protocol):
    """A router that shares servers out before the first request comes."""

    def plan(self, classes: Sequence[str], servers: int) -> None:
        """Hear the names of a run's classes and how many servers there are.

        Raises
        ------
        ValueError
            When the router cannot share them out.
        """
        ...
