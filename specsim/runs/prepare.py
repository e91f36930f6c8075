"""From one resolved configuration to a simulation ready to run: the door at which everything is validated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specsim.errors import SpecsimError, represented
from specsim.files.checked_mapping import CheckedMapping, is_number
from specsim.files.paths import is_path, shipped
from specsim.latency.drafter import Drafter, drafter_from_mapping, equipped
from specsim.latency.profile import Profile, profile_from_mapping
from specsim.replica.kv_pool import Memory
from specsim.replica.protocols import Scheduler, Wide
from specsim.replica.request import Requests
from specsim.results.window import Window
from specsim.runs.counting import counted
from specsim.runs.fingerprint import package_sha256, plugins_sha256
from specsim.runs.matching import budget_note, check_budget, pair_note
from specsim.schedulers.loading import plugin_modules, scheduler_factory
from specsim.simulation import Simulation
from specsim.workload.load import load_trace
from specsim.workload.promise import promise
from specsim.workload.slo import mix_from_mapping
from specsim.workload.trace import Trace, TraceSource
from specsim.world.acceptance import acceptance_from_mapping, pair_from_mapping, tape_of
from specsim.world.backend import World
from specsim.world.recorded import Recording
from specsim.world.tape import Tape

SMALLEST, LARGEST = 1e-12, 1e12


@dataclass(frozen=True, slots=True)
class Experiment:
    """A simulation and what is said about it.

    Attributes
    ----------
    simulation : ready for `specsim.simulation.run`.
    profile : the true latency profile.
    recording_sha256 : of the recorded acceptance, None where it is drawn.
    code_sha256 : of specsim's own code.
    plugins : checksum by name of each module outside specsim that the scheduler rests on.
    source : where the trace came from. notes : lines for the user.
    drafting_note : a line for the user where something is drafted: the acceptance is of another pair.
    """

    simulation: Simulation
    profile: Profile
    recording_sha256: str | None
    code_sha256: str
    plugins: Mapping[str, str]
    source: TraceSource
    notes: tuple[str, ...]
    drafting_note: str | None


def prepare(config: Mapping[str, Any]) -> Experiment:
    """Check every value of a composed configuration and build the simulation.

    Raises
    ------
    SpecsimError
        One line naming the key, the value and what was expected.
    """
    node, chosen = CheckedMapping("", "", config), config["choices"]
    seed = node.whole("seed", 0, 2**63 - 1)
    drafter = drafter_from_mapping(config["drafter"], _source("drafter", chosen))
    truth = _profile(config["profile"], _source("profile", chosen), drafter)
    belief = truth if config["belief"] is None else _profile(config["belief"], "belief", drafter)
    mix = mix_from_mapping(config["slo"], _source("slo", chosen))
    acceptance = acceptance_from_mapping(
        config["acceptance"], _source("acceptance", chosen), _folder("acceptance", chosen)
    )
    pair_said = _pair_note(config, truth, refused=not node.flag("any_target") and isinstance(acceptance, Recording))
    factory = scheduler_factory(config["scheduler"], _source("scheduler", chosen), _plugins(node))
    check_budget(config["scheduler"], _source("scheduler", chosen))
    plugins = plugins_sha256(plugin_modules(config["scheduler"], _plugins(node)))
    trace = _trace(node, seed)
    window, warmup_note = counted(node, trace.arrival_s)
    baseline_s, baseline_note = _baseline_s(config["trace"], truth)
    scales = {name: node.number(name, least=SMALLEST, most=LARGEST) for name in ("slo_scale", "ttft_scale")}
    promised = promise(mix, trace, seed=seed, baseline_s=baseline_s, **scales)
    tape = tape_of(acceptance, promised.acceptance, promised.requests.slo_class, trace.row, seed)
    _check_width(factory, tape, chosen)
    world = World(promised.output_tokens, tape)
    simulation = _simulation(node, promised.requests, world, truth, belief, factory, window)
    cut = int((trace.output_tokens > promised.output_tokens).sum())
    notes = (
        trace.source.note,
        warmup_note,
        baseline_note,
        *promised.notes,
        _suggestion_note(config),
        budget_note(config["scheduler"], truth, _source("profile", chosen)),
        f"{cut} outputs are longer than their class's max_tokens and end there" if cut else None,
    )
    recording_sha256 = acceptance.sha256 if isinstance(acceptance, Recording) else None
    told = tuple(note for note in notes if note)
    code = package_sha256()
    return Experiment(simulation, truth, recording_sha256, code, plugins, trace.source, told, pair_said)


def _trace(node: CheckedMapping, seed: int) -> Trace:
    requests = node.whole("requests") if node.given("requests") else None
    rps = node.number("rps", least=SMALLEST, most=LARGEST) if node.given("rps") else None
    return load_trace(node.values["trace"], seed=seed, requests=requests, rps=rps)


def _check_width(factory: Callable[[], Scheduler], tape: Tape, chosen: Mapping[str, str]) -> None:
    scheduler = factory()
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
    factory: Callable[[], Scheduler],
    window: Window | None,
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
        host_bytes_per_s=node.number("host_bytes_per_s", least=SMALLEST, most=LARGEST) * truth.gpus,
        replicas=node.whole("replicas"),
        keep_passes=node.flag("passes"),
        window=window,
        step_limit_s=node.number("step_limit_s", least=1e-3, most=1e7) if node.given("step_limit_s") else None,
    )


def _nothing_or_more(node: CheckedMapping, name: str) -> float:
    """Return 0, or a number within the bounds of all others."""
    value = node.values[name]
    return 0.0 if is_number(value) and value == 0 else node.number(name, least=SMALLEST, most=LARGEST)


def _profile(mapping: Mapping[str, Any], source: str, drafter: Drafter) -> Profile:
    """Return a profile with this drafter beside its target.

    Raises
    ------
    SpecsimError
        When a key is wrong, or the drafter leaves no memory for the cache.
    """
    profile = equipped(profile_from_mapping(mapping, source), drafter)
    if profile.usable_kv_bytes <= 0:
        raise SpecsimError(f"{source}: the weights of the target and of {profile.draft.name} leave no memory for KV")
    return profile


def _suggestion_note(config: Mapping[str, Any]) -> str | None:
    """Return a line about the settings that the chosen files brought along."""
    followed = [f"{', '.join(settings)} (with {source})" for source, settings in config.get("followed", {}).items()]
    return f"{', '.join(followed)}, as suggested there" if followed else None


def _pair_note(config: Mapping[str, Any], truth: Profile, *, refused: bool) -> str | None:
    chosen = config["choices"]
    of = pair_from_mapping(config["acceptance"], _source("acceptance", chosen))
    return pair_note(of, truth, _brought("acceptance", config), _source("profile", chosen), refused=refused)


def _brought(group: str, config: Mapping[str, Any]) -> str:
    """Return how a group was chosen, and what suggested it."""
    plain = _source(group, config["choices"])
    sources = [source for source, settings in config.get("followed", {}).items() if plain in settings]
    return f"{plain} (with {sources[0]})" if sources else plain


def _folder(group: str, chosen: Mapping[str, str]) -> Path:
    """Return the folder of a group's chosen file, which paths in it are relative to."""
    return Path(chosen[group]).expanduser().parent if is_path(chosen[group]) else shipped("conf") / group


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
