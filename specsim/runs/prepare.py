"""From one resolved configuration to a simulation ready to run: the door at which everything is validated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

from specsim.errors import SpecsimError, represented
from specsim.files.checked_mapping import CheckedMapping, is_number
from specsim.kinds.installed import ENTRY_POINTS
from specsim.kinds.plugins import OURS, below, load_plugins, plugin_modules
from specsim.kinds.table import asked
from specsim.latency.profile import Profile
from specsim.replica.protocols import Scheduler, Wide
from specsim.replica.request import Bools, Ints
from specsim.replica.routing import Router
from specsim.results.window import Window
from specsim.runs.choice_notes import choice_notes
from specsim.runs.chosen import brought, folder, source
from specsim.runs.context import context_notes, within_context
from specsim.runs.counting import concurrency, counted
from specsim.runs.fingerprint import package_sha256, plugins_sha256
from specsim.runs.foreign_tape import guarded
from specsim.runs.handed import NOTHING, Handed
from specsim.runs.hardware import Fleet, fleet
from specsim.runs.matching import calibration_note, check_budget, fitness_note, pair_note
from specsim.runs.overload import shedding, timeout
from specsim.runs.prefix_caching import prefixes
from specsim.runs.routing import router, session_note, sessions
from specsim.runs.split import splitting
from specsim.schedulers.loading import EngineBatching, SchedulerFactory, scheduler_factory
from specsim.simulation import Simulation
from specsim.workload import entry as keys
from specsim.workload.load import TraceRecipe, trace_recipe, varies
from specsim.workload.slo import Promised, mix_from_mapping, promise
from specsim.workload.trace import HeldTrace, Trace, TraceSource
from specsim.world.acceptance import acceptance_from_mapping, pair_from_mapping
from specsim.world.acceptance_model import AcceptanceModel
from specsim.world.backend import World
from specsim.world.tape import Tape

SMALLEST, LARGEST = 1e-12, 1e12
Plugins = Mapping[str, ModuleType]


@dataclass(frozen=True, slots=True)
class Experiment:
    """A simulation and what is said about it.

    Attributes
    ----------
    simulation : ready for `specsim.simulation.run`.
    profiles : the true latency profiles, each once, that of the first replica first.
    recording_sha256 : of the recorded acceptance, None where it is drawn.
    code_sha256 : of specsim's own code.
    plugins : checksum by name of each module outside specsim that the run rests on.
    objects : by group, class and checksum of what Python handed in. varies : what changes with the seed.
    source : where the trace came from. notes : lines for the user.
    drafting_note : a line for the user where something is drafted: the acceptance is of another pair.
    """

    simulation: Simulation
    profiles: tuple[Profile, ...]
    recording_sha256: str | None
    code_sha256: str
    plugins: Mapping[str, str]
    objects: Mapping[str, Mapping[str, Any]]
    varies: tuple[str, ...]
    source: TraceSource
    notes: tuple[str, ...]
    drafting_note: str | None


class _Load(NamedTuple):
    """What is sent and promised: the trace, its promises, the window that counts, the clients, and lines for the user.

    `clients` is the number of clients that each wait for their answer, None where requests arrive on their own.
    `too_long` are requests, (N,), beyond the target's context, None where there are none.
    """

    trace: Trace
    promised: Promised
    window: Window | None
    clients: int | None
    too_long: Bools | None
    varies: tuple[str, ...]
    notes: tuple[str | None, ...]


def prepare(config: Mapping[str, Any], handed: Handed = NOTHING) -> Experiment:
    """Check every value of a composed configuration and build the simulation.

    Parameters
    ----------
    handed : objects that stand in the place of what the configuration describes.

    Raises
    ------
    SpecsimError
        One line naming the key, the value and what was expected.
    """
    node = CheckedMapping("", "", config)
    seed = seed_of(node)
    plugins = load_plugins(_plugins(node))
    served_on = fleet(config, plugins, handed.profile)
    truth = served_on.first.truth
    model = acceptance_from_mapping(
        config["acceptance"], source("acceptance", config), folder("acceptance", config), plugins
    )
    pair_said = _pair_note(config, truth, model, any_target=node.flag("any_target"))
    any_fit = node.flag("any_fit")
    fit_notes = [fitness_note(each.truth, named, any_fit=any_fit) for named, each in served_on.each()]
    fit_notes.append(calibration_note(config["engine"], source("engine", config), any_fit=any_fit))
    batches = EngineBatching(*served_on.first.engine.batches_on(truth))
    factory = handed.scheduler or scheduler_factory(
        config["scheduler"], source("scheduler", config), plugins, batches, served_on.first.belief
    )
    checksums = plugins_sha256(
        [*plugin_modules({each: config[each] for each in ENTRY_POINTS}, plugins), *handed.modules]
    )
    check_budget(config["scheduler"], source("scheduler", config))
    load = _load(node, config, plugins, handed, served_on)
    tape = _tape(model, load, seed, source("acceptance", config))
    _check_width(factory.example, tape, config)
    notes = (*load.notes, session_note(config, load.trace), *choice_notes(config, served_on, fit_notes), handed.note)
    return Experiment(
        simulation=_simulation(
            node,
            load,
            World(load.promised.output_tokens, tape),
            served_on,
            factory,
            router(node, config, plugins, load.promised.requests.class_names),
        ),
        profiles=tuple(each.truth for _, each in served_on.each()),
        recording_sha256=model.sha256,
        code_sha256=package_sha256(),
        plugins=checksums,
        objects=handed.described,
        varies=load.varies,
        source=load.trace.source,
        notes=tuple(note for note in notes if note),
        drafting_note=pair_said,
    )


def _load(node: CheckedMapping, config: Mapping[str, Any], plugins: Plugins, handed: Handed, served_on: Fleet) -> _Load:
    """Return what is sent, and what is promised to it."""
    seed = seed_of(node)
    mix = handed.slo or mix_from_mapping(config["slo"], source("slo", config))
    recipe = _recipe(config, plugins, handed)
    trace = recipe.trace(seed, *_limits(node), clients=node.given("concurrency"))
    clients, clients_note = concurrency(node, len(trace))
    window, warmup_note = counted(node, trace.arrival_s)
    baseline_s, baseline_note = served_on.baseline_s(config["trace"])
    scales = {name: node.number(name, least=SMALLEST, most=LARGEST) for name in ("slo_scale", "ttft_scale")}
    promised = promise(mix, trace, seed=seed, baseline_s=baseline_s, **scales)
    promised, too_long = within_context(promised, served_on)
    drawn = recipe.drawn if trace.source.timed or clients is not None else recipe.drawn | {"arrivals"}
    cut = int((trace.output_tokens > promised.output_tokens).sum())
    return _Load(
        trace,
        promised,
        window,
        clients,
        too_long,
        varies(drawn, mix, names_classes=trace.slo_class is not None),
        (
            trace.source.note,
            warmup_note,
            clients_note,
            baseline_note,
            *promised.notes,
            *context_notes(served_on),
            f"{cut} outputs are longer than their class's max_tokens and end there" if cut else None,
        ),
    )


def _recipe(config: Mapping[str, Any], plugins: Plugins, handed: Handed) -> TraceRecipe:
    named = source("trace", config)
    if handed.trace is not None:
        node = CheckedMapping("", "trace", config["trace"])
        return TraceRecipe(named, HeldTrace(handed.trace.trace), keys.window(node), keys.resample(node))
    return trace_recipe(config["trace"], named, folder("trace", config), plugins)


def seed_of(node: CheckedMapping) -> int:
    """Return the seed of a configuration; SpecsimError where it is no whole number from 0 on."""
    return node.whole("seed", 0, 2**63 - 1)


def _limits(node: CheckedMapping) -> tuple[int | None, float | None]:
    """Return the row limit and the rate, None where the trace's own hold."""
    requests = node.whole("requests") if node.given("requests") else None
    return requests, node.number("rps", least=SMALLEST, most=LARGEST) if node.given("rps") else None


def _tape(model: AcceptanceModel, load: _Load, seed: int, named: str) -> Tape:
    """Return the tape of a run's requests.

    Raises
    ------
    SpecsimError
        When it lacks a category, when a kind of somebody's own fails, or its tape is of another number of requests.
    """
    rows: Ints = load.trace.row
    classes = load.promised.requests.slo_class
    try:
        tape: Tape = asked(named, model.tape, Tape, load.promised.acceptance, classes, rows, seed)
    except SpecsimError as error:
        said = str(error)
        raise SpecsimError(said if said.startswith(named) else f"{named}: {said}") from error
    ours = below(type(model).__module__, {OURS})
    return tape if ours else guarded(tape, len(rows), named)


def _check_width(scheduler: Scheduler, tape: Tape, config: Mapping[str, Any]) -> None:
    widest = scheduler.widest if isinstance(scheduler, Wide) else 1
    named = source("scheduler", config)
    if type(widest) is not int:
        raise SpecsimError(f"{named}: widest is {represented(widest)}; expected a whole number")
    if widest > tape.width:
        raise SpecsimError(
            f"{named}: trees of width {widest} are wider than the {tape.width} proposals of "
            f"{source('acceptance', config)}; expected a narrower tree, or more proposals"
        )


def _simulation(
    node: CheckedMapping,
    load: _Load,
    world: World,
    served_on: Fleet,
    factory: SchedulerFactory,
    routed: Callable[[], Router],
) -> Simulation:
    runs_on, block_tokens = served_on.first, node.whole("block_tokens")
    host_bytes_per_s = node.number("host_bytes_per_s", least=SMALLEST, most=LARGEST)
    alike = runs_on.machine(block_tokens, host_bytes_per_s)
    machines = [each.machine(block_tokens, host_bytes_per_s) for each in served_on.replicas]
    return Simulation(
        requests=load.promised.requests,
        world=world,
        truth=alike.truth,
        belief=alike.belief,
        memory=alike.memory,
        scheduler=factory,
        selection_s=_nothing_or_more(node, "selection_s"),
        selection_token_s=_nothing_or_more(node, "selection_token_s"),
        frontend_s=runs_on.engine.frontend_s,
        pipeline_steps=runs_on.engine.pipeline_steps,
        host_bytes_per_s=alike.host_bytes_per_s,
        machines=machines,
        split=splitting(node, machines or [alike]),
        concurrency=load.clients,
        too_long=load.too_long,
        replicas=node.whole("replicas"),
        router=routed,
        timeout_s=timeout(node),
        shedding=shedding(node, load.promised.requests),
        sessions=sessions(load.trace),
        prefixes=prefixes(node, load.trace),
        keep_passes=node.flag("passes"),
        window=load.window,
        step_limit_s=node.number("step_limit_s", least=1e-3, most=1e7) if node.given("step_limit_s") else None,
    )


def _nothing_or_more(node: CheckedMapping, name: str) -> float:
    """Return 0, or a number within the bounds of all others."""
    value = node.values[name]
    return 0.0 if is_number(value) and value == 0 else node.number(name, least=SMALLEST, most=LARGEST)


def _pair_note(config: Mapping[str, Any], truth: Profile, model: AcceptanceModel, *, any_target: bool) -> str | None:
    of = pair_from_mapping(config["acceptance"], source("acceptance", config), model.evidence)
    refused = model.evidence == "recorded" and not any_target
    return pair_note(of, truth, brought("acceptance", config), source("profile", config), refused=refused)


def _plugins(node: CheckedMapping) -> list[str]:
    value = node.values["plugins"]
    return [value] if isinstance(value, str) else list(node.texts("plugins", "a list of module names"))
