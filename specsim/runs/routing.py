"""The router of a run, and the sessions that it may look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from specsim.config.choices import Choice
from specsim.config.groups import FILE_OPTION, shipped_names
from specsim.errors import SpecsimError, represented
from specsim.files.paths import shipped
from specsim.files.yaml_file import peek_yaml
from specsim.replica.request import Ints
from specsim.replica.routing import Router
from specsim.routers.loading import router_factory
from specsim.workload.trace import Trace

POOLED, WITHIN = "specsim.routers.dedicated.Dedicated", "within"
"""A router, and its argument that is a router itself; a shipped one may be named there, as in `router=`."""
BY_SESSION, LOOKS_AT_SESSIONS = "affinity", "specsim.routers.affinity."
"""The router that looks at sessions alone, and how the name of its class begins."""


def router(
    chosen: Choice, plugins: Mapping[str, ModuleType], classes: Sequence[str], pools: Sequence[int]
) -> Callable[[], Router]:
    """Return what makes the router of each of the `pools`, by their sizes, for requests of these `classes`.

    Raises
    ------
    SpecsimError
        One line when a value is wrong, or replicas cannot be shared out.
    """
    named, mapping = str(chosen), dict(chosen.values)
    if mapping.get("_target_") == POOLED and isinstance(within := mapping.get(WITHIN), str):
        mapping[WITHIN] = _of_name(within, named)
    return router_factory(mapping, named, plugins, classes, pools)


def sessions(trace: Trace) -> Ints:
    """Return the session of each request (N,); where the trace names none, each is one of its own, its row."""
    return trace.row if trace.session is None else trace.session


def session_note(router: Choice, trace: Trace) -> str | None:
    """Return a line for the user where a router deals by sessions that the trace does not name."""
    looks = LOOKS_AT_SESSIONS in str(router.values) or router.values.get(WITHIN) == BY_SESSION
    if not looks or trace.session is not None:
        return None
    return f"{router}: trace {trace.source.name!r} names no sessions: each request is one of its own"


def _of_name(name: str, named: str) -> dict[str, Any]:
    """Return what a shipped router's file says of its class."""
    known = shipped_names("router") - {FILE_OPTION}
    if name not in known:
        raise SpecsimError(f"{named}: {WITHIN}: {represented(name)}: expected one of {', '.join(sorted(known))}")
    file = shipped("conf") / "router" / f"{name}.yaml"
    return {key: value for key, value in peek_yaml(file).items() if key != "description"}
