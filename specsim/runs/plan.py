"""Points of a sweep, checked before the first one runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from specsim.config.compose import typed_plugins
from specsim.config.configured import Configured, labels_of
from specsim.config.groups import LABELS, Choices, chosen_by_default, file_of
from specsim.config.points import SHAPE, idle_shape
from specsim.config.schema import written
from specsim.errors import SpecsimError, represented
from specsim.files.staging import readable_name
from specsim.files.yaml_file import peek_yaml
from specsim.latency.drafter import Separate
from specsim.registry import ENTRY_POINTS, TARGET
from specsim.runs.execute import guarded
from specsim.runs.executors import LOCAL, check_executor
from specsim.runs.hardware import Fleet, pools
from specsim.runs.objects import NO_OBJECTS, Handed, Objects
from specsim.runs.prepare import Experiment, hardware, prepare
from specsim.runs.processes import in_processes, told
from specsim.runs.provenance import sources_of
from specsim.store.runs import check_same_run, check_writable, holds_remains, key_of, run_folders
from specsim.store.summaries import SUMMARIES

OF_ARRIVALS = {f"trace.{key}" for key in ("rps", "cv", "burst_requests", "on_share", "off_rate_ratio", "tick_s")}
ERRORS = {"standard_errors", "held_out_error"}
OF_THE_DRAFT_MODEL = {"name", "kv_bytes_per_token", "forms", "valid", "launch_s"}


def check_idle(points: Sequence[Configured], objects: Objects = NO_OBJECTS) -> None:
    """Refuse a setting that changes none of the runs it is set for; the configurations are valid ones.

    A setting that matters to some run of a sweep may be set for all of it.

    Raises
    ------
    SpecsimError
        One line naming the key, the value and why.
    """
    why: dict[tuple[str, str], str | None] = {}
    for point in points:
        for key, value in point.point.items():
            each = key, str(value)
            if why.get(each, "") is not None:
                reason = _reason(key, point, objects)
                why[each] = reason and why.get(each, reason)
    for (key, shown), said in why.items():
        if said is not None:
            raise SpecsimError(f"{key}={shown}: changes nothing: {said}")
    used = {name for point in points for name in point.settings.plugins}
    for point in points:
        if unused := [name for name in typed_plugins(point.point) if name not in used]:
            choices = (getattr(point.chosen, group) for group in ENTRY_POINTS)
            named = ", ".join(str(each) for each in choices if each.kind == TARGET)
            said = f"changes nothing: no _target_ of {named} names anything in {unused[0]}"
            raise SpecsimError(f"plugins={point.point['plugins']}: {said}")


def _reason(key: str, point: Configured, objects: Objects) -> str | None:
    """Return why a setting changes nothing in a run, None where it may."""
    settings, chosen = point.settings, point.chosen
    group, _, below = key.partition(".")
    if below and below.partition(".")[0] in LABELS.get(group, ()):
        return f"{below.partition('.')[0]} says what {getattr(chosen, group)} is, and no run reads it"
    if group == "trace" and (shape := idle_shape(chosen.trace, below)):
        return f"{SHAPE}={shape} does not read it"
    if group == "router" and max(pools(settings.split, settings.replicas)) == 1:
        one = below or chosen.router.name != chosen_by_default()["router"]
        said = f"replicas={settings.replicas}" + (", one in each pool," if settings.replicas > 1 else "")
        return f"{said} leaves a router no choice" if one else None
    if group == "split" and settings.split.prefill is None and getattr(settings.split, below, True) is not None:
        return "no replica only reads prompts (split.prefill)"
    if group == "profile" and below:
        return _of_profile(below, chosen, hardware(point, objects))
    if key in ("engine.graph_step", "engine.graph_most") and not hardware(point, objects).first.engine.graph_tokens:
        return f"{chosen.engine} captures no graphs (engine.graph_tokens)"
    if key == "drafter.launch_s":
        return _of_launch(chosen, hardware(point, objects))
    if key in OF_ARRIVALS and settings.concurrency is not None:
        return f"with concurrency={settings.concurrency} clients send as they are answered"
    if key in ("trace.rps", "trace.n"):
        over, value = ("rps", settings.rps) if key == "trace.rps" else ("requests", settings.requests)
        return f"{over}={written(value)} goes before it" if value is not None else None
    return None


def _of_profile(key: str, chosen: Choices, served_on: Fleet) -> str | None:
    (engine, profile, _), source, drafter = served_on.first, chosen.profile, served_on.drafter
    role, _, below = key.partition(".")
    part, _, rest = below.partition(".")
    if key == "gpus":
        path = file_of("profile", source.name)
        return f"the times of {source} are of {'its own' if path is None else peek_yaml(path).get('gpus')} GPUs"
    if key == "memory_bytes" and profile.stated_usable_kv_bytes is not None:
        return f"{source} states usable_kv_bytes"
    if part in ERRORS:
        return f"{part} says how well the times of {source} are known, and no run reads it"
    if part == "nonembedding_bytes":
        return f"{part} holds the times of {source} against the peaks of its hardware, and no time depends on it"
    if role == "draft" and part in OF_THE_DRAFT_MODEL and not isinstance(drafter, Separate):
        return f"{chosen.drafter} drafts, not the draft model of {source}"
    if part == "overhead_s" and engine.overhead_s is not None:
        return f"{chosen.engine} states overhead_s"
    if part == "launch_s" and (role == "target" or not isinstance(drafter, Separate) or drafter.graphs):
        return "only draft passes without CUDA graphs (drafter.graphs=false) are launched kernel by kernel"
    if part == "forms" and rest.partition(".")[0] not in ("", used := getattr(profile, role).form):
        return f"the form in use is {used} (profile.form)"
    return None


def _of_launch(chosen: Choices, served_on: Fleet) -> str | None:
    if not isinstance(served_on.drafter, Separate):
        return None
    if served_on.drafter.graphs:
        return "draft passes run in CUDA graphs (drafter.graphs=true)"
    measured = served_on.first.truth.draft.launch_s
    return None if measured is None else f"{chosen.profile} measured draft.launch_s={measured}"


KEEP = ("runs", "summary")
"""Choices of `keep`: a folder a run with its requests, or its metrics alone."""
KEPT_BYTES = 1 << 28
"""Memory that the prepared points of a sweep may hold together; those beyond are prepared again before they run."""
EXPERIMENT_BYTES, REQUEST_BYTES = 16_000, 200


@dataclass(frozen=True)
class PlannedRun(Configured):
    """One point of a sweep, checked.

    Attributes
    ----------
    experiment : as it was prepared to check the point, None where it was not, or would hold too much memory.
    sources : the code and the files that it would be made from. handed : the objects that its configuration names.
    label : the settings, as typed, in which the points of the sweep differ.
    folder : where the run is stored or will be, None where it stays in memory.
    summary : whether only the run's summary is kept, unless it has a folder already.
    """

    experiment: Experiment | None
    sources: Mapping[str, Any]
    handed: Handed
    label: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    summary: bool = False

    def prepared(self) -> Experiment:
        """Return the experiment as it was prepared, or prepare it."""
        if self.experiment is not None:
            return self.experiment
        made = prepare(self, self.handed)
        # Another process is handed the classes of the script that asks, and has a `__main__` of its own.
        script = {name: checksum for name, checksum in self.sources["plugins"].items() if name == "__main__"}
        return replace(made, plugins={**made.plugins, **script})

    def but(self, **changed: Any) -> PlannedRun:
        """Return the same run with some fields changed, and with its key, which takes longer than all else here."""
        found = copy(self)
        vars(found).update(changed)
        return found

    @property
    def name(self) -> str:
        """The name of the run's folder, whether there is one or not."""
        return f"{readable_name(self.label)}-{self.key}"


def check_keep(keep: object) -> str:
    """Return what a sweep keeps of a run.

    Raises
    ------
    SpecsimError
        When it is none of `KEEP`.
    """
    if not isinstance(keep, str) or keep not in KEEP:
        raise SpecsimError(f"keep={represented(keep)}: expected {' or '.join(KEEP)}")
    return keep


def plan(
    points: Sequence[PlannedRun], root: Path | None, *, keep: str = KEEP[0], progress: bool = False, begun: bool = False
) -> list[PlannedRun]:
    """Return the `checked` points of a sweep with their labels and places; `progress` tells how many are named.

    `begun`: `root` was found to fit these objects before, and holds runs of them by now.

    A run that lies below `root` already keeps its folder, whatever its name. A new one is named by its label and by
    the hash of its settings, so that no other run takes its place; it has no folder if only its summary is kept.

    Raises
    ------
    SpecsimError
        When two points are one configuration, or a folder cannot be written or holds another run, or `root` is a run's.
    """
    labels = labels_of([each.point for each in points])
    _check_distinct([each.key for each in told(points, len(points), "named", progress)], labels)
    summary = keep == "summary"
    if root is not None:
        if holds_remains(root):
            raise SpecsimError(f"out={root}: holds a single run; expected a new folder, or one of sweeps")
        if not begun and any(root.glob("*")):
            for each in points:
                each.handed.check_known(root)
    stored = {} if root is None else {key_of(place): place for place in reversed(run_folders(root))}
    planned = [
        each.but(label=label, folder=stored.get(each.key), summary=summary)
        for each, label in zip(points, labels, strict=True)
    ]
    if root is None:
        return planned
    if summary:
        check_writable([root / SUMMARIES])
        return planned
    planned = [each.but(folder=each.folder or root / each.name) for each in planned]
    new = {each.folder: each for each in planned if each.key not in stored and each.folder is not None}
    for place, each in new.items():
        check_same_run(place, each)
    check_writable(new)
    return planned


def checked(
    chosen: Sequence[Configured],
    objects: Objects = NO_OBJECTS,
    *,
    jobs: int = 1,
    executor: str = LOCAL,
    idle: bool = True,
    progress: bool = False,
) -> list[PlannedRun]:
    """Check every point before any of them runs, with the `objects` that they name; `progress` tells how many are.

    Of points that differ in their seed alone the first is prepared: settings that are right with one seed are right
    with any. With several `jobs` of the local `executor` that is done in as many processes, and nothing that was
    prepared is kept. A setting that changes none of the points is refused, unless `idle` is false: they are a part of
    those that it is set for.

    Raises
    ------
    SpecsimError
        One line for the first point that is wrong, or as of `check_executor`.
    """
    here = jobs if check_executor(executor, jobs) == LOCAL else 1
    first: dict[Any, int] = {}
    leaders = [first.setdefault(_apart_from_seed(each), place) for place, each in enumerate(chosen)]
    wanted = sorted(set(leaders))
    held = [objects.of(each.chosen) for each in chosen]
    leading = [chosen[place] for place in wanted]
    if here > 1 and not any(each.described for each in held):
        prepared = _prepared_in_processes(leading, here, progress)
    else:
        ending = _prepared_here(zip(leading, (held[place] for place in wanted), strict=True))
        prepared = told(ending, len(leading), "checked", progress)
    made, points = dict(zip(wanted, prepared, strict=True)), []
    for place, (leader, each) in enumerate(zip(leaders, chosen, strict=True)):
        experiment, sources = made[leader]
        # To read the settings checks the seed of a point that was not prepared.
        kept = experiment if each.settings.seed == chosen[leader].settings.seed else None
        points.append(PlannedRun(each.point, each.config, kept, sources, held[place]))
    if idle:
        check_idle(chosen, objects)
    return points


def _apart_from_seed(each: Configured) -> Any:
    """Return what points have in common that differ in their seed alone.

    Points have nothing in common where a trace or an acceptance of somebody's own may read what follows the seed.
    """
    if TARGET in (each.chosen.trace.kind, each.chosen.acceptance.kind):
        return id(each)
    return tuple((key, str(value)) for key, value in each.point.items() if key != "seed")


Prepared = tuple[Experiment | None, Mapping[str, Any]]
"""The experiment of a point, None where it is not kept, and the code and files that it was made from."""


def _prepared_here(points: Iterable[tuple[Configured, Handed]]) -> Iterator[Prepared]:
    held_bytes = 0
    for each, handed in points:
        experiment = prepare(each, handed)
        held_bytes += _bytes_of(experiment)
        yield experiment if held_bytes <= KEPT_BYTES else None, sources_of(experiment)


def _prepared_in_processes(points: Sequence[Configured], jobs: int, progress: bool) -> Iterator[Prepared]:
    # What is wrong with every point is found without a process.
    prepare(points[0])
    worth = jobs if len(points) > 1 else 1
    ending = in_processes(_sources, points, worth, _died)
    found, alike = dict(told(ending, len(points), "checked", progress)), dict[str, Mapping[str, Any]]()
    for index, each in enumerate(points):
        sources = found[index] or sources_of(prepare(each))
        yield None, alike.setdefault(json.dumps(sources, sort_keys=True), sources)


def _sources(point: Configured) -> Mapping[str, Any] | None:
    """Return what a point would be made from, None where it is wrong."""
    try:
        return guarded(lambda: sources_of(prepare(point)))
    except SpecsimError:
        return None


def _died(point: Configured, how: str) -> NoReturn:
    raise SpecsimError(
        f"{point.chosen.scheduler}, {point.chosen.trace}: the process that checked it was ended{how}, alone, too: "
        "out of memory, or a crash of compiled code"
    )


def _bytes_of(experiment: Experiment) -> int:
    """Return what an experiment holds for itself, roughly; the runs of a sweep share a read-only acceptance trace."""
    requests, acceptance_trace = experiment.simulation.requests, experiment.simulation.ground_truth.acceptance_trace
    own = int(acceptance_trace.likeliest.nbytes) if acceptance_trace.confidence.flags.writeable else 0
    return EXPERIMENT_BYTES + REQUEST_BYTES * len(requests) + own


def _check_distinct(keys: Sequence[str], labels: Sequence[Mapping[str, str]]) -> None:
    first: dict[str, Mapping[str, str]] = {}
    for key, named in zip(keys, labels, strict=True):
        if key in first:
            one, other = (_words(each) or "a point" for each in (first[key], named))
            raise SpecsimError(f"sweep: {one} and {other} are one configuration; expected each of them once")
        first[key] = named


def _words(named: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in named.items())
