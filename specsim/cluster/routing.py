"""Routers: the protocol, and a router from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from types import ModuleType
from typing import Any, NamedTuple, Protocol, runtime_checkable

from specsim.core.protocols import CostModel
from specsim.errors import SpecsimError, first_line
from specsim.registry import Scope, build


class Coming(NamedTuple):
    """A request that is to be sent to a server: what its client tells, nothing of its output.

    Attributes
    ----------
    request : its number, by which servers know its prompt. session : what requests of one conversation share.
    slo_class : name of its class.
    prompt_tokens, max_tokens, cached_tokens, ttft_slo_s, tpot_slo_s : as in `specsim.core.request.Facts`.
    due_s : simulated time by which its last token that may be emitted is due; infinite without an objective.
    """

    request: int
    session: int
    slo_class: str
    prompt_tokens: int
    max_tokens: int
    cached_tokens: int
    ttft_slo_s: float
    tpot_slo_s: float
    due_s: float


class Server(Protocol):
    """Counts of the requests that were sent to a replica and have not ended, as a router sees it; nothing of outputs.

    `requests` of them hold or await cache, `running` of them hold some: `active_tokens` in the target's cache, a shared
    block once for each. `unread_tokens` of their texts, of waiting ones too, are still to be read. `free_bytes` of
    `capacity_bytes` of cache are not held. `cost_model` is that of the scheduler there: replicas may run on different
    hardware.
    """

    @property
    def requests(self) -> int: ...  # noqa: D102
    @property
    def running(self) -> int: ...  # noqa: D102
    @property
    def active_tokens(self) -> int: ...  # noqa: D102
    @property
    def unread_tokens(self) -> int: ...  # noqa: D102
    @property
    def free_bytes(self) -> int: ...  # noqa: D102
    @property
    def capacity_bytes(self) -> int: ...  # noqa: D102
    @property
    def cost_model(self) -> CostModel: ...  # noqa: D102

    def cached_tokens(self, coming: Coming) -> int:
        """Return the tokens of a request's prompt that are cached here, as `prefix_caching` or the trace has it."""
        ...

    def potential_tokens(self, coming: Coming) -> int:
        """Return the tokens of the prompts of all requests here, waiting ones included, and of a coming one.

        A whole block that several share counts once with `prefix_caching`, cached or not; outputs count nothing.
        """
        ...

    def outstanding_tokens(self, due_by_s: float = inf) -> int:
        """Return the tokens that requests due by then still need: to be read, and to be emitted at most."""
        ...

    def outstanding_s(self) -> float:
        """Return the seconds that the outstanding tokens take by the cost model.

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


OWN_PACKAGE = "specsim.cluster.routers"
LABELS = {"description"}
"""Keys of a router's file that are no arguments of its class."""


def router_factory(
    mapping: Mapping[str, Any],
    source: str,
    plugins: Mapping[str, ModuleType],
    classes: Sequence[str],
    pools: Sequence[int],
) -> Callable[[], Router]:
    """Return what makes a new router for each of the `pools`, servers each; mistakes show at once.

    Each pool has its own.

    `_target_` may name a class of `specsim.cluster.routers`, an entry point of the group `specsim.routers`, or a class
    of a module of `plugins`.

    Raises
    ------
    SpecsimError
        One line naming `source` and the key.
    """
    scope = Scope("router", OWN_PACKAGE, frozenset({__name__}), plugins)
    arguments = {key: value for key, value in mapping.items() if key not in LABELS}

    def make() -> Router:
        router: Router = build(arguments, source, scope)
        if not callable(getattr(router, "route", None)):
            raise SpecsimError(f"{source}: _target_: {mapping.get('_target_')!r} has no route(coming, servers) method")
        return router

    for servers in pools:
        example = make()
        if servers < 2 or not isinstance(example, Planning):
            continue
        try:
            example.plan(classes, servers)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            pool = f" (of split.prefill's pool of {servers})" if len(pools) > 1 else ""
            raise SpecsimError(f"{source}: {kind}{first_line(error)}{pool}") from None
    return make
