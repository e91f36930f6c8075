"""Routers from YAML: built from the `_target_`, a fresh one for each run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from specsim.errors import SpecsimError, first_line
from specsim.kinds.build import Scope, build
from specsim.replica.routing import Planning, Router

OWN_PACKAGE = "specsim.routers"
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

    One is made for each pool, and shares its servers out.

    `_target_` may name a class of `specsim.routers`, an entry point of the group of that name, or a class of a module
    of `plugins`.

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
