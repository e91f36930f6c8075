"""Schedulers from YAML: built from the `_target_`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from specsim.core.protocols import Belief, Clairvoyant, Scheduler
from specsim.errors import SpecsimError
from specsim.registry.build import Scope, build
from specsim.schedulers.parts.tree_shape import BatchBudget, profiled_budget

OWN_PACKAGE = "specsim.schedulers"
EXTRA_KEYS = {"description", "clairvoyant", "suggests", "family", "served_by"}
"""Keys of a scheduler's file that are no arguments of its class."""


AS_ENGINE = "engine"
"""The `batching` that follows the run's engine."""
MOST_SEATS = 256
"""Requests of the largest batch that is profiled, where a scheduler states none."""
BUDGET, AUTO = "verify_tokens", "auto"
"""The key of a verification budget, and what it says where it follows the profile and the batch."""
BY_ORDER = {
    "prompts_first": "specsim.schedulers.continuous.PrefillFirst",
    "mixed": "specsim.schedulers.sarathi.TokenBudget",
}


class EngineBatching(NamedTuple):
    """How the run's engine batches, and its limits: see `specsim.latency.engine.Batches`."""

    order: str = "mixed"
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048


@dataclass(frozen=True, slots=True)
class SchedulerFactory:
    """Make a new scheduler for each replica when called; `example` is one of them, for their common properties."""

    make: Callable[[], Scheduler]
    example: Scheduler

    def __call__(self) -> Scheduler:
        """Return a new scheduler."""
        return self.make()


def scheduler_factory(
    mapping: Mapping[str, Any],
    source: str,
    plugins: Mapping[str, ModuleType] | None = None,
    engine: EngineBatching | None = None,
    belief: Belief | None = None,
) -> SchedulerFactory:
    """Return a factory of schedulers; one is made at once, so that mistakes show before a run.

    `_target_` may name a class of `specsim.schedulers`, an entry point of the group of that name, or a class of a
    module of `plugins`. Nothing else is imported.
    Keys are handed down to the parts that take them (`build`).
    ``verify_tokens: auto`` is what `tree_shape.profiled_budget` finds by the `belief`; without one, four a request.
    ``batching: engine`` stands for the part that batches as `engine` does; its limits hold where a key is null.

    Raises
    ------
    SpecsimError
        One line naming `source` and the key.
    """
    scope = Scope("scheduler", OWN_PACKAGE, frozenset({__name__}), plugins or {})
    given = {key: value for key, value in mapping.items() if key not in EXTRA_KEYS}
    arguments = _with_budget(_as_engine(given, engine or EngineBatching()), belief)

    def make() -> Scheduler:
        scheduler: Scheduler = build(arguments, source, scope)
        if not callable(getattr(scheduler, "step", None)):
            raise SpecsimError(f"{source}: _target_: {mapping.get('_target_')!r} has no step(view) method")
        if isinstance(scheduler, Clairvoyant) != (mapping.get("clairvoyant", False) is True):
            raise SpecsimError(f"{source}: clairvoyant: expected true exactly where the scheduler has a foresee method")
        return scheduler

    return SchedulerFactory(make, make())


def _as_engine(mapping: dict[str, Any], engine: EngineBatching) -> dict[str, Any]:
    """Return a scheduler's keys with the part that batches as the engine does, where `batching` says so."""
    if mapping.get("batching") != AS_ENGINE:
        return mapping
    limits = {key: value for key, value in engine._asdict().items() if mapping.get(key, 0) is None}
    return {**mapping, **limits, "batching": {"_target_": BY_ORDER[engine.order]}}


def _with_budget(mapping: Mapping[str, Any], belief: Belief | None) -> dict[str, Any]:
    """Return a scheduler's keys with a budget that follows the batch in the place of each ``verify_tokens: auto``."""

    @cache
    def budget() -> BatchBudget:
        seats = mapping.get("max_num_seqs")
        return BatchBudget() if belief is None else profiled_budget(belief, seats if type(seats) is int else MOST_SEATS)

    def place(key: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: place(name, each) for name, each in value.items()}
        return budget() if key == BUDGET and value == AUTO else value

    return {key: place(key, value) for key, value in mapping.items()}
