"""From Python as from the command line: `simulate`, `load_run`, `sweep`; from Python alone: `iterations`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.config.configured import Configured, from_axes, from_point
from specsim.config.points import is_several, point_of, with_keys
from specsim.core.protocols import Observer, Scheduler
from specsim.errors import SpecsimError, one_line, represented
from specsim.files.checked_mapping import expanded
from specsim.latency.model import Profile
from specsim.metrics.capacity import LONGEST
from specsim.runs.execute import Run, execute
from specsim.runs.iterations import iterations
from specsim.runs.objects import named
from specsim.runs.plan import check_keep, checked
from specsim.runs.processes import composed
from specsim.runs.sweep import check_until, run_points, write_table
from specsim.search.exports import check_engine
from specsim.search.find import CLIENTS, RATE, SEED, check_asked, check_seeds, check_share, search
from specsim.search.found import Found
from specsim.search.tune import Goal, check_trials
from specsim.search.tune import tune as tune_settings
from specsim.search.tuned import Tuned, write_tuned
from specsim.store.runs import StoredRun, check_place, holds_remains, is_run, read_run
from specsim.store.sweeps import Sweep, holds_runs, load_sweep
from specsim.workload.slo import SloMix
from specsim.workload.trace import Trace

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = [
    "Found",
    "Run",
    "Sweep",
    "Tuned",
    "find",
    "iterations",
    "load_run",
    "load_sweep",
    "simulate",
    "sweep",
    "tune",
]


@with_keys
def simulate(
    scheduler: str | Path | Scheduler | Callable[[], Scheduler] = "adaserve",
    trace: str | Path | Trace | DataFrame = "azure_code",
    *,
    profile: str | Path | Profile | None = None,
    slo: str | Path | SloMix | None = None,
    acceptance: str | Path | float | Sequence[float] | None = None,
    drafter: str | Path | None = None,
    engine: str | Path | None = None,
    router: str | Path | None = None,
    observers: Sequence[str | Observer | Callable[[], Observer]] | None = None,
    rps: float | None = None,
    requests: int | None = None,
    slo_scale: float | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    progress: bool = False,
    **settings: Any,
) -> Run:
    """Run one simulation; without `out` nothing is written. docs/python.md shows it at work.

    Parameters
    ----------
    scheduler : a name as `specsim list` shows it, the path of a YAML, a scheduler, or what makes one when called.
    trace : a name, a path, a `Trace`, or a DataFrame with the columns of docs/trace-formats.md.
    profile, slo : a name, a path, a `Profile`, an `SloMix`; None: what goes with the others.
    acceptance, drafter, engine, router : a name or a path; None: what goes with the others.
        An acceptance may be a rate, or cumulative rates by draft position (docs/acceptance.md).
    observers : objects with a method ``on_pass(event)``, their classes or what makes them, or names of classes
        (docs/observers.md).
    rps, requests, slo_scale, seed : as in docs/keys.md, None: its default.
    out : run folder to write. progress : draw a progress bar on a terminal or in Jupyter.
    **settings : any other key of docs/keys.md; one below a group or a mapping is written with two underscores:
        ``scheduler__verify_tokens=256``, ``warmup=[0, 60]``. Values are taken as they are.

    Raises
    ------
    SpecsimError
        One line for any mistake in what was given.

    Examples
    --------
    >>> run = simulate("continuous", "poisson", requests=50, profile="llama8b_1b_h100")
    >>> run.metrics["completed"]
    50
    """
    names, seeing = _apart(observers)
    typed = {"profile": profile, "slo": slo, "acceptance": acceptance, "drafter": drafter, "engine": engine}
    typed |= {"router": router, "rps": rps, "requests": requests, "slo_scale": slo_scale, "seed": seed}
    chosen: dict[str, Any] = {"scheduler": scheduler, "trace": trace, **({"observers": names} if names else {})}
    chosen |= {name: each for name, each in typed.items() if each is not None}
    _, settings, objects = named({}, {**chosen, **settings})
    (ready,) = checked([from_point(point_of(settings), objects.described)], objects)
    folder = None if out is None else expanded(str(out), "out=")
    if folder is not None:
        check_place(folder, ready)
        if holds_remains(folder):
            ready.handed.check_known(folder)
    return execute(ready.prepared(), folder, observers=seeing, progress=progress)


def _apart(observers: Any) -> tuple[list[str], list[Any]]:
    """Return the observers that are named, and those that are objects."""
    several = observers if isinstance(observers, list | tuple) else [] if observers is None else [observers]
    names = [each for each in several if isinstance(each, str)]
    return names, [each for each in several if not isinstance(each, str)]


def load_run(folder: str | Path) -> StoredRun:
    """Return a stored run; its tables are read when they are asked for.

    Raises
    ------
    SpecsimError
        When the folder is missing, damaged, or of a newer schema.
    """
    place = expanded(str(folder))
    if holds_runs(place) and not is_run(place):
        raise SpecsimError(f"{str(place)!r} holds a sweep; expected load_sweep, or one of its runs")
    # The working folder may be another by the time a table is read.
    return replace(read_run(place), folder=place.absolute())


@with_keys
def sweep(
    axes: Mapping[str, Iterable[Any]],
    *,
    out: str | Path | None = None,
    jobs: int = 1,
    executor: str = "local",
    keep: str = "runs",
    until: str | None = None,
    progress: bool = True,
    **settings: Any,
) -> Sweep:
    """Run every combination of `axes`, the last one fastest; every point is checked before the first starts.

    A run that fails is among the sweep's `failures`, with a warning, and the rest runs.

    Parameters
    ----------
    axes : values by key: a list, range, numpy array or pandas Series each. ``__`` in a key stands for a dot.
        Schedulers, traces, profiles and SLO mixes may be objects, as of `simulate`, and ``observers`` classes; those
        must be picklable if points run in other processes.
    out : folder below which each run gets one of its own, with a ``table.csv`` of all its runs; runs that are already
        there are not run again. Without it all runs stay in memory, their tables included.
    jobs : points that run at once; the results are those of one at a time.
    executor : what runs them: ``"local"``: processes here; ``"ray"``, ``"dask"``, ``"slurm"``: docs/sweep-folders.md.
    keep : ``"runs"``: each run with its requests; ``"summary"``: its metrics alone, a row a run.
    until : ``"2 points"``: every point gets seeds, five at least and 100 at most, until half the 95% interval of its
        attainment is no wider; the sweep's notes say what was reached.
    progress : draw a progress bar on a terminal or in Jupyter. **settings : as of `simulate`.

    Raises
    ------
    SpecsimError
        One line for any mistake in what was given, before anything has run.

    Examples
    --------
    >>> runs = sweep({"replicas": [1, 2], "rps": [2, 4]}, trace="poisson", requests=20)
    >>> [run.config["rps"] for run in runs]
    [2, 4, 2, 4]
    """
    check_keep(keep)
    check_until(until)
    root = None if out is None else expanded(str(out), "out=")
    axes, settings, objects = named(axes, settings)
    chosen = from_axes(axes, settings, objects.described, counted=composed if progress else iter)
    workers: dict[str, Any] = {"jobs": jobs, "executor": executor, "progress": progress}
    ready = checked(chosen, objects, **workers)
    planned, made = run_points(ready, root, until, objects, keep=keep, **workers)
    if root is not None:
        write_table(root)
    if made.failures:
        said = f"{len(made.failures)} of {len(planned)} runs failed, the first: {one_line(made.failures[0].error)}"
        warnings.warn(said, stacklevel=3)  # The caller of what `with_keys` made.
    return made


@with_keys
def find(
    axes: Mapping[str, Iterable[Any]],
    *,
    target: float = 0.9,
    of: str = "worst",
    rates: tuple[float, float] = (0.5, 64.0),
    within: float = 0.02,
    longest: int = LONGEST,
    out: str | Path | None = None,
    jobs: int = 1,
    executor: str = "local",
    progress: bool = True,
    **settings: Any,
) -> Found:
    """Return the highest rate at which a target attainment is kept, for every combination of `axes`.

    Rates double from the first until two in a row miss the target; then the search closes in on the edge. Every
    combination meets the same requests at each rate.

    Parameters
    ----------
    axes : values by key, as of `sweep`; without ``seed`` there are five seeds.
    target : share of requests that meet their objectives, in (0, 1].
    of : ``"worst"``: of the worst class; ``"all"``; a class; or ``"noted.NAME"``, the mean of a noted column.
    rates : lowest and highest, requests/s. within : how close the answer's two rates lie, as a share of the lower.
    longest : the most requests of a run of a drawn trace, which is made longer until it can be judged, unless
        ``requests`` says its length.
    out, jobs, executor, progress, **settings : as of `sweep`; a run is stored as its summary.

    Raises
    ------
    SpecsimError
        One line for any mistake in what was given.

    Examples
    --------
    >>> found = find({"scheduler": ["continuous"]}, rates=(1, 8), within=0.5, trace="poisson", requests=40, seed=0)
    >>> bool(found.table["keeps_rps"][0] >= 1)
    True
    """
    asked = check_asked(target, rates, within, longest)
    axes, settings, objects = named(axes, settings)
    if RATE in axes or RATE in settings:
        raise SpecsimError("find: rps is what is looked for; expected rates=(lowest, highest)")
    if CLIENTS in axes or settings.get(CLIENTS) is not None:
        raise SpecsimError("find: a rate of open arrivals is looked for; expected sweep({'concurrency': [1, 2, 4]})")
    seeds = {} if SEED in axes or SEED in settings else {SEED: range(5)}

    def at(rate: float) -> Sequence[Configured]:
        return from_axes({**axes, **seeds}, {**settings, RATE: rate}, objects.described)

    root = None if out is None else expanded(str(out), "out=")
    return search(asked, of, at, root, objects, jobs=jobs, executor=executor, progress=progress)


@with_keys
def tune(
    schedulers: str | Path | Sequence[str | Path],
    *,
    values: Mapping[str, Any] | None = None,
    of: str = "worst",
    target: float = 0.95,
    trials: int = 16,
    seeds: Sequence[int] = range(5),
    export: str | None = None,
    sensitivity: bool = True,
    out: str | Path | None = None,
    jobs: int = 1,
    executor: str = "local",
    progress: bool = True,
    **settings: Any,
) -> Tuned:
    """Search the settings of schedulers on one part of the traffic, and judge the best on another.

    Parameters
    ----------
    schedulers : names or paths, no objects; the values to try stand in each file under ``tune``.
    values : lists of values by key below the schedulers, in the place of what their files say; a mapping that a key
        takes has a list for each of its own keys.
    of : ``"worst"``: attainment of the worst class; ``"all"``; a class; or ``"output_throughput"``.
    target : share of requests that is to be kept, in (0, 1]. trials : of each scheduler. seeds : those that judge.
    export : ``"vllm"``, ``"sglang"`` or ``"trtllm"``: the settings of such a server, too.
    sensitivity : whether the best are judged under other conditions, too, and their highest rate is found.
    out : folder of the runs, the tables and the tuned settings; None: nothing is written.
    jobs, executor, progress, **settings : as of `sweep`.

    Raises
    ------
    SpecsimError
        One line for any mistake in what was given.
    """
    check_share("tune: target", target)
    several: Any = schedulers if is_several(schedulers) else [schedulers]
    if handed := [each for each in several if not isinstance(each, str | Path)] or [several] * (not len(several)):
        raise SpecsimError(f"tune: {represented(handed[0])}: expected names or files, whose settings are tried")
    names = [*map(str, several)]
    for key, value in settings.items():
        listed = represented(list(value) if is_several(value) else [value])
        group, _, below = key.replace("__", ".").partition(".")
        if group in (SEED, "scheduler"):
            instead = f"values={{{below!r}: {listed}}}" if below else "names or files first"
            instead = f"seeds={listed}" if group == SEED else instead
            raise SpecsimError(f"tune: {key}={represented(value)}: expected {instead}")
    _, settings, objects = named({}, settings)
    if not isinstance(values or {}, Mapping):
        raise SpecsimError(f"tune: values={represented(values)}: expected values by key, {{'watermark': [0]}}")
    tried = {key.replace("__", "."): each for key, each in (values or {}).items()}
    goal = Goal(of, target, check_trials(trials), check_seeds(seeds), check_engine(export), sensitivity)
    root = None if out is None else expanded(str(out), "out=")
    how: dict[str, Any] = {"jobs": jobs, "executor": executor, "progress": progress}
    tuned = tune_settings(point_of(settings), dict.fromkeys(names, tried), goal, root, objects, **how)
    if root is not None:
        write_tuned(tuned, root)
    return tuned
