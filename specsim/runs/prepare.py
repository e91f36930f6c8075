"""From one resolved configuration to a simulation ready to run: the door at which everything is validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from specsim.errors import SpecsimError, represented
from specsim.files.checked_mapping import CheckedMapping, is_number
from specsim.files.paths import is_path, shipped
from specsim.kinds.installed import ENTRY_POINTS
from specsim.kinds.plugins import OURS, below, load_plugins, plugin_modules
from specsim.kinds.table import asked
from specsim.latency.drafter import Drafter, drafter_from_mapping, equipped
from specsim.latency.engine import Engine, engine_from_mapping
from specsim.latency.peaks import peak_notes
from specsim.latency.profile import Profile, profile_from_mapping
from specsim.replica.kv_pool import Memory
from specsim.replica.protocols import Scheduler, Wide
from specsim.replica.request import Ints, Requests
from specsim.results.window import Window
from specsim.runs.counting import concurrency, counted
from specsim.runs.fingerprint import package_sha256, plugins_sha256
from specsim.runs.foreign_tape import guarded
from specsim.runs.handed import NOTHING, Handed
from specsim.runs.matching import budget_note, check_budget, pair_note
from specsim.schedulers.loading import SchedulerFactory, scheduler_factory
from specsim.settings.groups import shipped_names
from specsim.simulation import Simulation
from specsim.workload.load import TraceRecipe, trace_recipe
from specsim.workload.promise import Promised, promise
from specsim.workload.reader import HeldTrace
from specsim.workload.seeding import varies
from specsim.workload.slo import mix_from_mapping
from specsim.workload.trace import TraceSource
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
    profile : the true latency profile.
    recording_sha256 : of the recorded acceptance, None where it is drawn.
    code_sha256 : of specsim's own code.
    plugins : checksum by name of each module outside specsim that the run rests on.
    objects : by group, class and checksum of what Python handed in. varies : what changes with the seed.
    source : where the trace came from. notes : lines for the user.
    drafting_note : a line for the user where something is drafted: the acceptance is of another pair.
    """

    simulation: Simulation
    profile: Profile
    recording_sha256: str | None
    code_sha256: str
    plugins: Mapping[str, str]
    objects: Mapping[str, Mapping[str, Any]]
    varies: tuple[str, ...]
    source: TraceSource
    notes: tuple[str, ...]
    drafting_note: str | None


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
    node, chosen = CheckedMapping("", "", config), config["choices"]
    seed = node.whole("seed", 0, 2**63 - 1)
    plugins = load_plugins(_plugins(node))
    engine = engine_from_mapping(config["engine"], _source("engine", chosen))
    truth, belief = _profiles(config, engine, plugins, handed)
    mix = handed.slo or mix_from_mapping(config["slo"], _source("slo", chosen))
    model = _acceptance(config, plugins)
    pair_said = _pair_note(config, truth, model, any_target=node.flag("any_target"))
    factory = handed.scheduler or scheduler_factory(config["scheduler"], _source("scheduler", chosen), plugins)
    checksums = plugins_sha256(
        [*plugin_modules({each: config[each] for each in ENTRY_POINTS}, plugins), *handed.modules]
    )
    check_budget(config["scheduler"], _source("scheduler", chosen))
    recipe = _recipe(config, plugins, handed)
    trace = recipe.trace(seed, *_limits(node))
    clients, clients_note = concurrency(node, len(trace))
    window, warmup_note = counted(node, trace.arrival_s)
    baseline_s, baseline_note = _baseline_s(config["trace"], truth)
    scales = {name: node.number(name, least=SMALLEST, most=LARGEST) for name in ("slo_scale", "ttft_scale")}
    promised = promise(mix, trace, seed=seed, baseline_s=baseline_s, **scales)
    tape = _tape(model, promised, trace.row, seed, _source("acceptance", chosen))
    _check_width(factory.example, tape, chosen)
    world = World(promised.output_tokens, tape)
    simulation = _simulation(node, promised.requests, world, truth, belief, engine, factory, window, clients)
    cut = int((trace.output_tokens > promised.output_tokens).sum())
    notes = (
        trace.source.note,
        warmup_note,
        clients_note,
        baseline_note,
        *peak_notes(truth, _source("profile", chosen)),
        *promised.notes,
        _suggestion_note(config),
        handed.note,
        budget_note(config["scheduler"], truth, _source("profile", chosen)),
        f"{cut} outputs are longer than their class's max_tokens and end there" if cut else None,
    )
    return Experiment(
        simulation=simulation,
        profile=truth,
        recording_sha256=model.sha256,
        code_sha256=package_sha256(),
        plugins=checksums,
        objects=handed.described,
        varies=varies(recipe.drawn, mix, names_classes=trace.slo_class is not None),
        source=trace.source,
        notes=tuple(note for note in notes if note),
        drafting_note=pair_said,
    )


def _profiles(config: Mapping[str, Any], engine: Engine, plugins: Plugins, handed: Handed) -> tuple[Profile, Profile]:
    """Return the truth and the belief, each on the run's engine, with the run's drafter beside its target."""
    chosen = config["choices"]
    source = _source("drafter", chosen)
    drafter = drafter_from_mapping(config["drafter"], source, _folder("drafter", chosen), plugins)
    named = _source("profile", chosen)
    profile = engine.running(handed.profile or profile_from_mapping(config["profile"], named))
    truth = _with_drafter(profile, named, drafter, source)
    if config["belief"] is None:
        return truth, truth
    believed = engine.running(profile_from_mapping(config["belief"], "belief"))
    return truth, _with_drafter(believed, "belief", drafter, source)


def _acceptance(config: Mapping[str, Any], plugins: Plugins) -> AcceptanceModel:
    chosen = config["choices"]
    source, folder = _source("acceptance", chosen), _folder("acceptance", chosen)
    return acceptance_from_mapping(config["acceptance"], source, folder, plugins)


def _recipe(config: Mapping[str, Any], plugins: Plugins, handed: Handed) -> TraceRecipe:
    chosen = config["choices"]
    source = _source("trace", chosen)
    if handed.trace is not None:
        return TraceRecipe(source, HeldTrace(handed.trace), None, None)
    return trace_recipe(config["trace"], source, _folder("trace", chosen), plugins)


def _limits(node: CheckedMapping) -> tuple[int | None, float | None]:
    """Return the row limit and the rate, None where the trace's own hold."""
    requests = node.whole("requests") if node.given("requests") else None
    return requests, node.number("rps", least=SMALLEST, most=LARGEST) if node.given("rps") else None


def _tape(model: AcceptanceModel, promised: Promised, rows: Ints, seed: int, source: str) -> Tape:
    """Return the tape of a run's requests.

    Raises
    ------
    SpecsimError
        When a kind of somebody's own fails, or its tape is of another number of requests.
    """
    tape: Tape = asked(source, model.tape, Tape, promised.acceptance, promised.requests.slo_class, rows, seed)
    ours = below(type(model).__module__, {OURS})
    return tape if ours else guarded(tape, len(rows), source)


def _check_width(scheduler: Scheduler, tape: Tape, chosen: Mapping[str, str]) -> None:
    widest = scheduler.widest if isinstance(scheduler, Wide) else 1
    if type(widest) is not int:
        raise SpecsimError(f"{_source('scheduler', chosen)}: widest is {represented(widest)}; expected a whole number")
    if widest > tape.width:
        raise SpecsimError(
            f"{_source('scheduler', chosen)}: trees of width {widest} are wider than the {tape.width} proposals of "
            f"{_source('acceptance', chosen)}; expected a narrower tree, or more proposals"
        )


def _simulation(
    node: CheckedMapping,
    requests: Requests,
    world: World,
    truth: Profile,
    belief: Profile,
    engine: Engine,
    factory: SchedulerFactory,
    window: Window | None,
    clients: int | None,
) -> Simulation:
    return Simulation(
        requests=requests,
        world=world,
        truth=truth,
        belief=belief,
        memory=_memory(truth, node.whole("block_tokens")),
        scheduler=factory,
        selection_s=_nothing_or_more(node, "selection_s"),
        selection_token_s=_nothing_or_more(node, "selection_token_s"),
        frontend_s=engine.frontend_s,
        pipeline_steps=engine.pipeline_steps,
        host_bytes_per_s=node.number("host_bytes_per_s", least=SMALLEST, most=LARGEST) * truth.gpus,
        concurrency=clients,
        replicas=node.whole("replicas"),
        keep_passes=node.flag("passes"),
        window=window,
        step_limit_s=node.number("step_limit_s", least=1e-3, most=1e7) if node.given("step_limit_s") else None,
    )


def _nothing_or_more(node: CheckedMapping, name: str) -> float:
    """Return 0, or a number within the bounds of all others."""
    value = node.values[name]
    return 0.0 if is_number(value) and value == 0 else node.number(name, least=SMALLEST, most=LARGEST)


def _with_drafter(profile: Profile, source: str, drafter: Drafter, drafter_source: str) -> Profile:
    """Return a profile with this drafter beside its target.

    Raises
    ------
    SpecsimError
        When the drafter leaves no memory for the cache.
    """
    profile = equipped(profile, drafter, drafter_source)
    if profile.usable_kv_bytes <= 0:
        raise SpecsimError(f"{source}: the weights of the target and of {profile.draft.name} leave no memory for KV")
    return profile


def _suggestion_note(config: Mapping[str, Any]) -> str | None:
    """Return a line about the settings that the chosen files brought along."""
    followed = [f"{', '.join(settings)} (with {source})" for source, settings in config.get("followed", {}).items()]
    return f"{', '.join(followed)}, as suggested there" if followed else None


def _pair_note(config: Mapping[str, Any], truth: Profile, model: AcceptanceModel, *, any_target: bool) -> str | None:
    chosen = config["choices"]
    of = pair_from_mapping(config["acceptance"], _source("acceptance", chosen), model.evidence)
    refused = model.evidence == "recorded" and not any_target
    return pair_note(of, truth, _brought("acceptance", config), _source("profile", chosen), refused=refused)


def _brought(group: str, config: Mapping[str, Any]) -> str:
    """Return how a group was chosen, and what suggested it."""
    plain = _source(group, config["choices"])
    sources = [source for source, settings in config.get("followed", {}).items() if plain in settings]
    return f"{plain} (with {sources[0]})" if sources else plain


def _folder(group: str, chosen: Mapping[str, str]) -> Path:
    """Return the folder that paths in a group's file are relative to; what is installed has none but the user's."""
    if is_path(chosen[group]):
        return Path(chosen[group]).expanduser().parent
    return shipped("conf") / group if chosen[group] in shipped_names(group) else Path()


def _baseline_s(trace: Mapping[str, Any], truth: Profile) -> tuple[float, str | None]:
    """Return the baseline latency that ratios are multiples of: the trace's own for this model, else the profile's."""
    stated: Mapping[str, float] = trace.get("baselines_s") or {}
    if not stated:
        return truth.baseline_s, None
    if truth.target.name in stated:
        return float(stated[truth.target.name]), None
    return truth.baseline_s, (
        f"the trace states no baseline latency for {truth.target.name}: its ratios are multiples of the profile's "
        f"{truth.baseline_s * 1000:.1f} ms"
    )


def _memory(profile: Profile, block_tokens: int) -> Memory:
    return Memory(
        int(profile.usable_kv_bytes),
        block_tokens,
        profile.target.kv_bytes_per_token,
        profile.draft.kv_bytes_per_token,
    )


def _source(group: str, chosen: Mapping[str, str]) -> str:
    return f"{group}={chosen[group]}"


def _plugins(node: CheckedMapping) -> list[str]:
    value = node.values["plugins"]
    return [value] if isinstance(value, str) else list(node.texts("plugins", "a list of module names"))
