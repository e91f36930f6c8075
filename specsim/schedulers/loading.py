"""Schedulers from YAML: built from the `_target_`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from specsim.core.protocols import CostModel, Scheduler, UsesOracle
from specsim.core.user_code import complaint, own_place
from specsim.errors import SpecsimError, passes_through
from specsim.registry import Scope, build
from specsim.schedulers.parts.due_chunk import TILE_TOKENS, DueChunk, filled_tokens
from specsim.schedulers.parts.tree_shape import BatchBudget, profiled_budget

OWN_PACKAGE = "specsim.schedulers"
EXTRA_KEYS = {"description", "oracle", "suggests", "family", "served_by", "tune"}
"""Keys of a scheduler's file that are no arguments of its class."""


MAX_NUM_SEQS, TOKENS = "max_num_seqs", "max_num_batched_tokens"
"""The key of the batch slots: the engine's where it is null."""
PROPERTIES = ("step", "use_oracle", "begin", "noted", "drafts", "max_width", "by_table", "captured_drafts")
"""Of schedulers, which a run reads."""
AS_ENGINE = "engine"
"""The `batching` that follows the run's engine."""
MOST_SEQS = 256
"""Requests of the largest batch that is profiled, where a scheduler states none."""
BUDGET, CHUNK, AUTO = "verify_tokens", "prefill_tokens", "auto"
"""The keys of a verification budget and of a prompt chunk, and what they say where they follow profile and batch."""
BY_ORDER = {
    "prompts_first": "specsim.schedulers.continuous.PrefillFirst",
    "mixed": "specsim.schedulers.sarathi.TokenBudget",
}


class EngineBatching(NamedTuple):
    """How the run's engine batches, and its limits: see `specsim.latency.engine.Batches`."""

    order: str = "mixed"
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    lookahead: bool = False
    chunked_prefill: bool = False
    reserves: str = "prompt"


MAKERS = {"vllm": ("vLLM", "mixed"), "sglang": ("SGLang", "prompts_first"), "trtllm": ("TensorRT-LLM", "mixed")}
"""By the first word of their files, the engines that ship policies, and the order in which those read prompts."""
BY_PREFILL = {"mixed": "mixed", "first": "prompts_first"}


class Serving(NamedTuple):
    """The engine that a scheduler needs, as its file states it; an object of one's own needs none.

    Attributes
    ----------
    as_engine : whether it batches as the run's engine.
    maker : the engine that ships it, a key of `MAKERS`, or None.
    order : the order in which its engine reads prompts, as in `EngineBatching`; None: any.
    reserves : what has cache at admission, a key of `specsim.schedulers.parts.batching.RESERVES`.
    verify_tokens : its constant verification budget; None: it has none, or one that follows profile and batch.
    limits : those of a batch by their keys, the engine's included; without those that it does not state.
    """

    as_engine: bool = False
    maker: str | None = None
    order: str | None = None
    reserves: str = "prompt"
    verify_tokens: float | None = None
    limits: Mapping[str, int] = {}


NEEDS_NONE = Serving()


@dataclass(frozen=True, slots=True)
class SchedulerFactory:
    """Make a new scheduler for each replica when called; `example` is one of them, for their common properties."""

    make: Callable[[], Scheduler]
    example: Scheduler
    serving: Serving = NEEDS_NONE

    def __call__(self) -> Scheduler:
        """Return a new scheduler."""
        return self.make()


def scheduler_factory(
    mapping: Mapping[str, Any],
    source: str,
    plugins: Mapping[str, ModuleType] | None = None,
    engine: EngineBatching | None = None,
    cost_model: CostModel | None = None,
) -> SchedulerFactory:
    """Return a factory of schedulers; a scheduler is made at once, so that mistakes show before a run.

    `_target_` may name a class of `specsim.schedulers`, an entry point of the group of that name, or a class of a
    module of `plugins`. Nothing else is imported.
    Keys are handed down to the parts that take them (`build`).
    ``verify_tokens: auto`` is what `tree_shape.profiled_budget` finds by the `cost_model`; without one, three a
    request. ``prefill_tokens: auto`` is a `due_chunk.DueChunk` of the cost model and the engine.
    ``batching: engine`` stands for the part that batches as `engine` does. Its limits hold where a key is null. The
    engine's batch slots hold in every scheduler where ``max_num_seqs`` is null, no further than a constant
    ``verify_tokens``.

    Raises
    ------
    SpecsimError
        One line naming `source` and the key.
    """
    scope = Scope("scheduler", OWN_PACKAGE, frozenset({__name__}), plugins or {})
    given = {key: value for key, value in mapping.items() if key not in EXTRA_KEYS}
    limits = engine or EngineBatching()
    arguments = _with_profiled(_as_engine(given, limits), limits, cost_model)

    def make() -> Scheduler:
        scheduler: Scheduler = build(arguments, source, scope)
        check_properties(scheduler, source)
        if not callable(getattr(scheduler, "step", None)):
            raise SpecsimError(f"{source}: _target_: {mapping.get('_target_')!r} has no step(view) method")
        if isinstance(scheduler, UsesOracle) != (mapping.get("oracle", False) is True):
            raise SpecsimError(f"{source}: oracle: expected true exactly where the scheduler has a use_oracle method")
        return scheduler

    example = make()
    stated = {key: each for key in (MAX_NUM_SEQS, TOKENS) if type(each := arguments.get(key)) is int}
    serving = _serving(mapping, source)
    serving = serving._replace(reserves=limits.reserves) if serving.as_engine else serving
    return SchedulerFactory(make, example, serving._replace(limits=stated))


def check_properties(scheduler: object, source: str) -> None:
    """Refuse a scheduler that fails at a property which a run reads."""
    try:
        for name in PROPERTIES:
            if hasattr(type(scheduler), name):
                getattr(scheduler, name)
    except BaseException as error:
        if passes_through(error):
            raise
        raise SpecsimError(f"{source}: {name}: {complaint(error)}{own_place(error)}") from error


def _serving(mapping: Mapping[str, Any], source: str) -> Serving:
    """Return the engine that a scheduler's keys need.

    Raises
    ------
    SpecsimError
        Where the verification budget does not hold a root of everybody it admits (AdaServe: n <= B), or the engine is
        not known.
    """
    budget, slots = (each if type(each := mapping.get(key)) in (int, float) else None for key in (BUDGET, MAX_NUM_SEQS))
    if budget is not None and slots is not None and slots > budget:
        raise SpecsimError(f"{source}: {MAX_NUM_SEQS}={slots} exceeds {BUDGET}={budget}; expected room for a root each")
    served_by = str(mapping.get("served_by") or BY_PREFILL.get(str(mapping.get("prefill")), ""))
    known = (*MAKERS, *BY_ORDER)
    if served_by and served_by not in known:
        raise SpecsimError(f"{source}: served_by: {served_by!r}: expected one of {', '.join(known)}")
    return Serving(
        as_engine=mapping.get("batching") == AS_ENGINE,
        maker=served_by if served_by in MAKERS else None,
        order=MAKERS[served_by][1] if served_by in MAKERS else served_by or None,
        verify_tokens=budget,
    )


def _as_engine(mapping: dict[str, Any], engine: EngineBatching) -> dict[str, Any]:
    """Return a scheduler's keys with the engine's limits and, where it is asked for, the part that batches so."""
    as_engine, budget = mapping.get("batching") == AS_ENGINE, mapping.get(BUDGET)
    keys = (MAX_NUM_SEQS, TOKENS) if as_engine else (MAX_NUM_SEQS,)
    limits = {key: getattr(engine, key) for key in keys if mapping.get(key, 0) is None}
    if MAX_NUM_SEQS in limits and type(budget) is int:
        limits[MAX_NUM_SEQS] = min(limits[MAX_NUM_SEQS], max(budget, 1))
    own = "lookahead" if engine.order == "mixed" else "chunked_prefill"
    own_keys = {own: getattr(engine, own), "reserves": engine.reserves}
    told = {key: each for key, each in own_keys.items() if each != EngineBatching._field_defaults[key]}
    part = {"_target_": BY_ORDER[engine.order], **told}
    return {**mapping, **limits, **({"batching": part} if as_engine else {})}


def _with_profiled(mapping: Mapping[str, Any], engine: EngineBatching, cost_model: CostModel | None) -> dict[str, Any]:
    """Return a scheduler's keys with what follows profile and batch in the place of each ``auto`` of both keys."""

    @cache
    def budget() -> BatchBudget:
        if cost_model is None:
            return BatchBudget()
        slots = mapping.get(MAX_NUM_SEQS)
        return profiled_budget(cost_model, slots if type(slots) is int else MOST_SEQS)

    def place(key: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: place(name, each) for name, each in value.items()}
        if value != AUTO or key not in (BUDGET, CHUNK):
            return value
        if key == BUDGET:
            return budget()
        most = engine.max_num_batched_tokens
        return DueChunk(TILE_TOKENS if cost_model is None else filled_tokens(cost_model.target, most), most)

    return {key: place(key, value) for key, value in mapping.items()}
