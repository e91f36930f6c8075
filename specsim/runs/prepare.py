"""A run's settings and choices as typed parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from specsim.acceptance.curves import Acceptance, reported
from specsim.acceptance.loading import acceptance_from_mapping, pair_from_mapping
from specsim.acceptance.positions import worth
from specsim.acceptance.recorded import Recording
from specsim.acceptance.trace import AcceptanceModel, AcceptanceTrace
from specsim.cluster.routing import Router
from specsim.config.configured import Configured
from specsim.config.groups import Choice, Choices
from specsim.config.schema import Settings, Shed
from specsim.core.protocols import Drafting, Observer, Scheduler, Wide
from specsim.core.request import Bools, Ints
from specsim.errors import SpecsimError, represented
from specsim.files.checked_mapping import CheckedMapping
from specsim.latency.profile import Profile
from specsim.metrics.requests import Window
from specsim.registry import ENTRY_POINTS, OURS, TARGET, Scope, asked, below, build, load_plugins, plugin_modules
from specsim.runs.checks import (
    admission_control,
    choice_notes,
    context_note,
    guarded,
    hashes_note,
    misfit_notes,
    pair_note,
    prefixes,
    router,
    routing_notes,
    turns,
)
from specsim.runs.hardware import EngineOnProfile, Fleet, closed_loop, counted, fleet, pools, splitting
from specsim.runs.objects import NOTHING, Handed, Objects
from specsim.runs.provenance import plugins_sha256
from specsim.schedulers.loading import EngineBatching, SchedulerFactory, scheduler_factory
from specsim.server.events import Observing
from specsim.simulated_backend import GroundTruth
from specsim.simulation import Simulation
from specsim.workload import entry as keys
from specsim.workload.load import TraceRecipe, trace_recipe, varies
from specsim.workload.slo import Assigned, assign_slos, mix_from_mapping
from specsim.workload.trace import HeldTrace, Trace, TraceSource


def within_context(assigned: Assigned, served_on: Fleet) -> tuple[Assigned, Bools | None]:
    """Return requests whose `max_tokens` end with the target's context, and which are too long for it, (N,).

    A request is too long if its prompt and its output are: a client that replays a trace states the output as
    `max_tokens`, and vLLM's server refuses such a request. None: no request is. Of several contexts the least holds.
    """
    stated = [each.truth.target.max_model_len for _, each in served_on.by_name.values()]
    known = [each for each in stated if each is not None]
    if not known:
        return assigned, None
    requests, context = assigned.requests, min(known)
    too_long: Bools = requests.prompt_tokens + assigned.output_tokens > context
    left = np.where(too_long, requests.max_tokens, context - requests.prompt_tokens)
    bounded = replace(requests, max_tokens=np.minimum(requests.max_tokens, left))
    return assigned._replace(requests=bounded), too_long if too_long.any() else None


Plugins = Mapping[str, ModuleType]


@dataclass(frozen=True, slots=True)
class Experiment:
    """A simulation and what is said about it.

    Attributes
    ----------
    made_of : the settings and choices of the run. router : its choice, None where no pool has two replicas.
    gpus : of all replicas.
    simulation : ready for `specsim.simulation.run`.
    profiles : the true latency profiles, each once, that of the first replica first.
    recording_sha256 : of the recorded acceptance, None where it is drawn.
    plugins : checksum by name of each module outside specsim that the run rests on, None where no file holds its code.
    objects : by group, class and checksum of what Python handed in. varies : what changes with the seed.
    source : where the trace came from. joined : its rows, as `Trace.joined`. notes : lines for the user.
    drafting_notes : lines for the user where something is drafted: rates as typed, an acceptance of another pair.
    depth_notes : those of its scheduler's own draft tokens.
    known_drafts : the last draft position that its acceptance knows; None: it says nothing of that.
    limits : those of a batch of each replica, by key, that its scheduler states, and the engine's.
    undrafted_slots : batch slots of the engine where no scheduler speculates; None: they are the same.
    """

    made_of: Configured
    router: str | None
    gpus: int
    simulation: Simulation
    profiles: tuple[Profile, ...]
    recording_sha256: str | None
    plugins: Mapping[str, str | None]
    objects: Mapping[str, Mapping[str, Any]]
    varies: tuple[str, ...]
    source: TraceSource
    joined: Mapping[str, Ints]
    notes: tuple[str, ...]
    drafting_notes: tuple[str, ...]
    depth_notes: tuple[str, ...]
    known_drafts: int | None
    limits: Mapping[str, int]
    undrafted_slots: int | None = None


class _Load(NamedTuple):
    """The load of a run: the trace, its SLOs, the window that counts, and lines for the user.

    `too_long` are requests, (N,), beyond the target's context, None where there are none.
    """

    trace: Trace
    assigned: Assigned
    window: Window | None
    too_long: Bools | None
    varies: tuple[str, ...]
    notes: tuple[str | None, ...]


def prepare(made_of: Configured, handed: Handed = NOTHING) -> Experiment:
    """Check every value of a configuration and build the simulation.

    Parameters
    ----------
    handed : objects that stand in the place of what the configuration describes.

    Raises
    ------
    SpecsimError
        One line naming the key, the value and what was expected.
    """
    settings, chosen = made_of.settings, made_of.chosen
    plugins = load_plugins(settings.plugins)
    served_on = fleet(chosen, settings, plugins, handed.profile)
    truth, any_fit = served_on.first.truth, settings.any_fit
    model = _acceptance(chosen.acceptance, settings.acceptance_scale, plugins)
    pair = pair_from_mapping(chosen.acceptance.values, str(chosen.acceptance), model.evidence)
    refused = model.evidence == "recorded" and not any_fit
    pair_said = pair_note(pair, truth, chosen.acceptance.brought, str(chosen.profile), refused=refused)
    misfits = misfit_notes(chosen, served_on, any_fit=any_fit)
    factory = handed.scheduler or _scheduler(chosen.scheduler, plugins, served_on.first)
    observers = _observers(settings.observers, plugins, handed) if settings.observers else []
    checksums = plugins_sha256([*plugin_modules(extensible(settings, chosen), plugins), *handed.modules])
    load = _load(settings, chosen, plugins, handed, served_on)
    rates_said = _rates_said(model, load.assigned, settings.acceptance_scale)
    long_said = context_note(pair, load.trace, chosen.acceptance)
    told = reported(chosen.acceptance.values, str(chosen.acceptance))
    acceptance_trace = told.applied(_acceptance_trace(model, load, settings.seed, str(chosen.acceptance)))
    _check_width(factory.example, acceptance_trace, chosen)
    pooled = pools(settings.split, settings.replicas)
    routed = router(chosen.router, plugins, load.assigned.requests.class_names, pooled)
    said = *routing_notes(routed(), str(chosen.router), load.trace, pooled), hashes_note(load.trace, settings)
    notes = (*load.notes, *said, *choice_notes(chosen, served_on, factory, misfits), handed.note)
    depths_said = [_depth_note(chosen.scheduler, each.truth) for _, each in served_on.by_name.values()]
    scaled = settings.acceptance_scale is not None
    at_k = _at_k(model, load.assigned, _drafts_of(chosen.scheduler, truth), scaled=scaled)
    running_on = served_on.running(factory.example)
    simulated = _simulation(
        settings, load, GroundTruth(load.assigned.output_tokens, acceptance_trace), running_on, factory, routed
    )
    return Experiment(
        made_of=made_of,
        router=chosen.router.name if max(pooled) > 1 else None,
        gpus=served_on.gpus(settings.replicas),
        simulation=replace(simulated, observers=observers),
        profiles=tuple(each.truth for _, each in served_on.by_name.values()),
        recording_sha256=model.sha256,
        plugins=checksums,
        objects=handed.described,
        varies=load.varies,
        source=load.trace.source,
        joined=load.trace.joined,
        notes=tuple(filter(None, notes)),
        drafting_notes=tuple(filter(None, (pair_said, long_said, rates_said and f"{chosen.acceptance}: {rates_said}"))),
        depth_notes=tuple(filter(None, (at_k and f"{chosen.acceptance}: {at_k}", *dict.fromkeys(depths_said)))),
        known_drafts=getattr(model, "known", None),
        limits=factory.serving.limits,
        undrafted_slots=_undrafted_slots(factory, served_on.first),
    )


def _scheduler(choice: Choice, plugins: Plugins, served_on: EngineOnProfile) -> SchedulerFactory:
    """Return a factory of schedulers with their engine's limits, which may be others where they speculate."""

    def made(*, speculating: bool) -> SchedulerFactory:
        batches = EngineBatching(*served_on.engine.batches_on(served_on.truth, speculating=speculating))
        return scheduler_factory(choice.values, str(choice), plugins, batches, served_on.cost_model)

    factory = made(speculating=False)
    if served_on.engine.speculating_seqs is None or not _speculates(factory):
        return factory
    return made(speculating=True)


def _undrafted_slots(factory: SchedulerFactory, served_on: EngineOnProfile) -> int | None:
    fewer = served_on.engine.speculating_seqs
    if fewer is None or factory.serving.limits.get("max_num_seqs") != fewer or not _speculates(factory):
        return None
    return served_on.engine.batches_on(served_on.truth).max_num_seqs


def _speculates(factory: SchedulerFactory) -> bool:
    return isinstance(factory.example, Drafting) and factory.example.drafts


def _acceptance(choice: Choice, scale: float | None, plugins: Plugins) -> AcceptanceModel:
    model = acceptance_from_mapping(choice.values, str(choice), choice.folder, plugins)
    if scale is None:
        return model
    if not isinstance(model, Acceptance):
        raise SpecsimError(f"acceptance_scale={scale:g}: {choice} holds texts; expected an acceptance of rates")
    return model.scaled(scale)


def _used(model: Acceptance, assigned: Assigned) -> set[str]:
    """Return the categories that classes of the run take."""
    return {each if each in model.curves else "default" for each in assigned.acceptance}


def _rates_said(model: AcceptanceModel, assigned: Assigned, scale: float | None) -> str:
    """Return the notes of categories in use, and the classes that take `default` for want of one of their name."""
    notes, used = (model.notes, _used(model, assigned)) if isinstance(model, Acceptance) else ({}, set())
    told = [said for name, said in notes.items() if name in used]
    before = f"before acceptance_scale={scale:g}: " if told and scale is not None else ""
    curves, texts = isinstance(model, Acceptance) and model.curves, isinstance(model, Recording) and model.categories
    known = set(curves or texts or ())
    classes = zip(assigned.requests.class_names, assigned.acceptance, strict=True)
    lost = [name if name == wanted else f"{name} ({wanted})" for name, wanted in classes if wanted not in known]
    some = ", ".join(lost[:4]) + (f" and {len(lost) - 4:,} more classes" if len(lost) > 4 else "")
    said = f"{some}: default (no category of that name)" if lost and known - {"default"} else None
    return before + "; ".join(filter(None, (*told, said)))


def _at_k(model: AcceptanceModel, assigned: Assigned, k: int, *, scaled: bool) -> str | None:
    """Return what the rates in use are worth at the scheduler's k, where the model's own notes say it of others."""
    if not isinstance(model, Acceptance) or not model.notes or not k:
        return None
    used = _used(model, assigned)
    other = {name: at for name, at in model.curves.items() if name in used and (scaled or at.chain not in (0, k))}
    return "; ".join(f"{name}: {worth(at, k, model.levels)}" for name, at in other.items()) or None


DEPTHS = ("num_speculative_tokens", "speculative_num_steps", "depth_max", "arms", "candidate_steps")
"""Keys of schedulers, at any place, that say how deep drafts go."""


def _drafts_of(scheduler: Choice, truth: Profile) -> int:
    """Return the draft tokens that a scheduler states, no more than its drafter proposes; 0: it states none."""
    stated = dict(scheduler.stated(DEPTHS[:2]))
    k = next((each for key in DEPTHS[:2] if type(each := stated.get(f"scheduler.{key}")) is int), 0)
    return min(k, truth.draft.max_depth)


def _depth_note(scheduler: Choice, truth: Profile) -> str | None:
    """Return a line where a scheduler's keys ask for more drafts than its drafter proposes."""
    most = truth.draft.max_depth
    told = ((key, each if isinstance(each, list) else [each]) for key, each in scheduler.stated(DEPTHS))
    deepest = {key: max((each for each in several if isinstance(each, int)), default=0) for key, several in told}
    deeper = [f"{key}={depth}" for key, depth in deepest.items() if depth > most]
    said = f"drafts end at depth {most}, the most that {truth.draft.name} can propose"
    return f"{', '.join(deeper)}: {said}" if deeper else None


def extensible(settings: Settings, chosen: Choices) -> dict[str, Mapping[str, Any]]:
    """Return the keys that may name code of somebody's own: by group those of choices, and the observers."""
    observers = {name: {TARGET: name} for name in settings.observers or ()}
    return {group: getattr(chosen, group).values for group in ENTRY_POINTS} | {"observers": observers}


def _observers(names: Sequence[str], plugins: Plugins, handed: Handed) -> list[Callable[[], Observer]]:
    """Return what makes each observer; an instance of each is made at once, so that mistakes show before a run."""
    scope = Scope("observers", plugins=plugins)
    if lost := [name for name in names if name.startswith("<") and name not in handed.observers]:
        raise SpecsimError(f"observers: {lost[0]} was given as an object; expected a run by names, to make it again")
    makers = [
        handed.observers.get(name) or partial(build, {TARGET: name}, f"observers: {name}", scope) for name in names
    ]
    Observing([make() for make in makers], 0)
    return [*makers]


def _load(settings: Settings, chosen: Choices, plugins: Plugins, handed: Handed, served_on: Fleet) -> _Load:
    """Return what is sent, and the SLOs assigned to it."""
    mix = handed.slo or mix_from_mapping(chosen.slo.values, str(chosen.slo))
    recipe = _recipe(chosen.trace, plugins, handed)
    trace = recipe.trace(settings.seed, settings.requests, settings.rps, clients=settings.concurrency is not None)
    clients_note = window = warmup_note = None
    if settings.concurrency is not None:
        rivals = {"rps": settings.rps, "warmup": settings.warmup}
        trace = trace.of_clients()
        sessions = len(trace) - int(trace.waits.sum())
        clients_note = closed_loop(settings.concurrency, len(trace), sessions, rivals)
    if settings.warmup is not None:
        if trace.waits.any():
            raise SpecsimError("warmup: turns of the trace's sessions arrive as answers come; expected no warmup")
        window, warmup_note = counted(settings.warmup, trace.arrival_s)
    baseline_s, baseline_note = served_on.baseline_s(recipe.baselines_s)
    scales = {"slo_scale": settings.slo_scale, "ttft_scale": settings.ttft_scale}
    assigned = assign_slos(mix, trace, seed=settings.seed, baseline_s=baseline_s, **scales)
    assigned, too_long = within_context(assigned, served_on)
    drawn = recipe.drawn if trace.source.timed or settings.concurrency is not None else recipe.drawn | {"arrivals"}
    cut = int((trace.output_tokens > assigned.output_tokens).sum())
    return _Load(
        trace,
        assigned,
        window,
        too_long,
        varies(drawn, mix, names_classes=trace.slo_class is not None),
        (
            trace.source.note,
            warmup_note,
            clients_note,
            baseline_note,
            *assigned.notes,
            *(
                f"{named}: states no target.max_model_len: no request is too long for its context"
                for named, each in served_on.by_name.values()
                if each.truth.target.max_model_len is None
            ),
            f"{cut} outputs are longer than their class's max_tokens and end there" if cut else None,
        ),
    )


def hardware(made_of: Configured, objects: Objects) -> Fleet:
    """Return what a configuration is served on; it names some of the `objects`."""
    settings, chosen = made_of.settings, made_of.chosen
    return fleet(chosen, settings, load_plugins(settings.plugins), objects.of(chosen).profile)


def recipe(made_of: Configured, handed: Handed = NOTHING) -> TraceRecipe:
    """Return what reads the trace of a configuration; the arguments are those of `prepare`."""
    return _recipe(made_of.chosen.trace, load_plugins(made_of.settings.plugins), handed)


def _recipe(chosen: Choice, plugins: Plugins, handed: Handed) -> TraceRecipe:
    if handed.trace is not None:
        node = CheckedMapping("", "trace", chosen.values)
        return TraceRecipe(str(chosen), HeldTrace(handed.trace), keys.window(node), keys.resample(node), {})
    return trace_recipe(chosen.values, str(chosen), chosen.folder, plugins)


def _acceptance_trace(model: AcceptanceModel, load: _Load, seed: int, named: str) -> AcceptanceTrace:
    """Return the acceptance trace of a run's requests.

    Raises
    ------
    SpecsimError
        When it lacks a category, when a kind of somebody's own fails, or its acceptance trace is of another number of
        requests.
    """
    rows: Ints = load.trace.row
    classes = load.assigned.requests.slo_class
    try:
        acceptance_trace: AcceptanceTrace = asked(
            named, model.acceptance_trace, AcceptanceTrace, load.assigned.acceptance, classes, rows, seed
        )
    except SpecsimError as error:
        said = str(error)
        raise SpecsimError(said if said.startswith(named) else f"{named}: {said}") from error
    ours = below(type(model).__module__, {OURS})
    return acceptance_trace if ours else guarded(acceptance_trace, len(rows), named)


def _check_width(scheduler: Scheduler, acceptance_trace: AcceptanceTrace, chosen: Choices) -> None:
    max_width = scheduler.max_width if isinstance(scheduler, Wide) else 1
    if type(max_width) is not int:
        raise SpecsimError(f"{chosen.scheduler}: max_width is {represented(max_width)}; expected a whole number")
    if max_width > acceptance_trace.width:
        raise SpecsimError(
            f"{chosen.scheduler}: trees of width {max_width} are wider than the {acceptance_trace.width} proposals of "
            f"{chosen.acceptance}; expected a narrower tree, or more proposals"
        )


def _simulation(
    settings: Settings,
    load: _Load,
    ground_truth: GroundTruth,
    served_on: Fleet,
    factory: SchedulerFactory,
    routed: Callable[[], Router],
) -> Simulation:
    runs_on = served_on.first
    memory = settings.block_tokens, settings.host_bytes_per_s
    alike, hardware = runs_on.replica(*memory), [each.replica(*memory) for each in served_on.replicas]
    trace, requests, split, shed = load.trace, load.assigned.requests, settings.split, settings.shed
    return Simulation(
        requests=requests,
        ground_truth=ground_truth,
        truth=alike.truth,
        cost_model=alike.cost_model,
        memory=alike.memory,
        scheduler=factory,
        selection_s=settings.selection_s,
        selection_token_s=settings.selection_token_s,
        frontend_s=runs_on.engine.frontend_s,
        pipeline_steps=runs_on.engine.steps_ahead(speculating=_speculates(factory)),
        trailing_steps=runs_on.engine.trailing_steps,
        host_bytes_per_s=alike.host_bytes_per_s,
        hardware=hardware,
        split=None if split.prefill is None else splitting(split, settings.replicas, hardware or [alike]),
        concurrency=settings.concurrency,
        turns=None if trace.delay_s is None else turns(trace, trace.delay_s),
        too_long=load.too_long,
        replicas=settings.replicas,
        router=routed,
        timeout_s=settings.timeout_s,
        admission_control=None if shed == Shed() else admission_control(shed, settings.concurrency, requests),
        sessions=trace.row if trace.session is None else trace.session,
        prefixes=prefixes(settings, trace) if settings.prefix_caching else None,
        keep_passes=settings.passes,
        window=load.window,
        step_limit_s=settings.step_limit_s,
    )
