"""A run executed, guarded and kept."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from specsim.core.protocols import Observer
from specsim.core.user_code import complaint, own_frames, own_line
from specsim.errors import SpecsimError, passes_through
from specsim.figures.shown import Shown
from specsim.metrics.requests import NOTED, PASS_COLUMNS, RequestTable
from specsim.metrics.tables import STAND_IN, originals, run_line, stand_in
from specsim.runs.checks import beyond, cache_note, engine_notes, first_wave, hardly_drafts, slots_note
from specsim.runs.prepare import Experiment
from specsim.runs.processes import bar
from specsim.runs.provenance import provenance_of
from specsim.store.runs import StoredRun, check_same_run, write_run
from specsim.store.summaries import BY_THE_CLOCK, Summary, compact

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pandas import DataFrame


PARSERS = {"argparse", "contextlib", "profiler", "specsim"}
"""Modules that may end a command: a parser has said by then what was wrong, or shown its help."""
OURS = {"profiler", "specsim"}
Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def guarded(work: Callable[Arguments, Answer], *given: Arguments.args, **named: Arguments.kwargs) -> Answer:
    """Return what work returns.

    Raises
    ------
    SpecsimError
        One line that names the part of somebody's own that raised what is no `Exception` and not Ctrl-C.
    """
    try:
        return work(*given, **named)
    except BaseException as error:
        fault = fault_of(error)
        if fault is error:
            raise
        raise fault from error


def fault_of(error: BaseException) -> BaseException:
    """Return an error of one line in the place of what a part of somebody's own raised to end the process."""
    chain = list(_chain(error))
    trace = chain[-1].__traceback__
    packages = [_package(frame) for each in chain for frame, _ in traceback.walk_tb(each.__traceback__)]
    innermost = [_package(frame) for frame, _ in traceback.walk_tb(trace)][-1:]
    # A line of our own raised it: a handler of signals, which runs wherever the process is.
    ours = PARSERS.issuperset(packages) or OURS.issuperset(innermost)
    if isinstance(error, Exception) or passes_through(error) or ours:
        return error
    named = "".join(f"{frame.f_code.co_qualname}: " for frame, _ in own_frames(trace, None)[:1])
    return SpecsimError(f"{named}{complaint(error)}{own_line(trace, None)}")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, then what it comes of: simpy raises a copy of what was raised in a process."""
    each: BaseException | None = error
    while each is not None:
        yield each
        each = each.__cause__


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


@dataclass(frozen=True)
class Run(Shown):
    """One finished run.

    Attributes
    ----------
    metrics : what `metrics.json` holds (docs/metrics.md). config : the resolved configuration.
    provenance : wall-clock figures, versions, where the trace came from. notes : lines worth reading.
    folder : where it is stored, None when it is only in memory.
    """

    metrics: dict[str, Any]
    config: dict[str, Any]
    provenance: dict[str, Any]
    _table: RequestTable = field(repr=False)
    _pass_rows: Mapping[str, NDArray[np.generic]] | None = field(default=None, repr=False)
    folder: Path | None = None
    notes: tuple[str, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process is sent: it makes the tables of pandas itself."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def requests(self) -> DataFrame:
        """One row per request: the rows of ``requests.parquet``."""
        return self._table.frame()

    @cached_property
    def passes(self) -> DataFrame | None:
        """One row per forward pass: the rows of ``passes.parquet``; None unless ``passes=True``."""
        if self._pass_rows is None:
            return None
        from pandas import DataFrame

        return DataFrame({name: self._pass_rows[name] for name in PASS_COLUMNS})

    def summary(self, key: str, name: str) -> Summary:
        """Return the run without its requests; `key` is the identity of its settings."""
        provenance = {each: value for each, value in self.provenance.items() if each not in BY_THE_CLOCK}
        return Summary(key, name, compact(self.config), compact(self.metrics), compact(provenance))

    def __repr__(self) -> str:
        return run_line(self.made_of, self.metrics, self.folder, self.notes)


OBJECT = "object"
"""The origin of a trace that Python handed in."""
MANY = 50_000
"""Requests from which on a run's memory is let go before its rows are made."""
REASONS = {
    "kv_capacity": "rejected: prompt and max_tokens exceed the cache of both models on one replica",
    "context_length": "refused: prompt and output exceed the target's context (profile.target.max_model_len)",
    "timeout": "cancelled: their clients gave up (timeout_s)",
    "shed_waiting": "refused: too many waited (shed.waiting); the backlog that tells overload leaves them out",
    "shed_ttft": "refused: their TTFT objective was lost (shed.ttft); the backlog that tells overload leaves them out",
}
"""Why a request is in ``rejected_reason``, as a note of a run says it."""

if TYPE_CHECKING:
    from specsim.metrics.load import Recorded
    from specsim.metrics.recorder import Record
    from specsim.metrics.requests import RequestTable
    from specsim.simulation import Simulation


def execute(
    experiment: Experiment,
    folder: Path | None,
    *,
    observers: Sequence[Observer | Callable[[], Observer]] = (),
    progress: bool = False,
) -> Run:
    """Run what was prepared and store it in `folder`, None to keep it in memory alone.

    `observers` are shown every pass beside those that the configuration names.

    Raises
    ------
    SpecsimError
        When the scheduler is at fault, or `folder` cannot be written or holds another run, now or at the end.
    """
    from specsim.acceptance.curves import calibration
    from specsim.metrics.summary import summarise
    from specsim.simulation import run as run_simulation

    if folder is not None:
        check_same_run(folder, experiment.made_of)
    config = experiment.made_of.stored
    started, clock = datetime.now(UTC), time.perf_counter()
    simulation = _observed(experiment.simulation, observers) if observers else experiment.simulation
    with bar(len(simulation.requests), "request", progress) as watch:
        record = run_simulation(simulation, watch)
    loop_s = time.perf_counter() - clock
    if len(simulation.requests) >= MANY:
        # Replicas refer to themselves: what they held of each request would stay until Python looks.
        gc.collect()
    table, totals, pass_rows = record.table(experiment.joined), record.totals, record.passes
    if experiment.source.origin == OBJECT:
        table = table.apart()
    metrics = summarise(table, totals, simulation.window)
    gpus, output = experiment.gpus, metrics["output_throughput"]
    per_gpu = None if output is None else output / gpus
    metrics["specsim"] |= {"router": experiment.router, "gpus": gpus, "output_throughput_per_gpu": per_gpu}
    metrics["specsim"][STAND_IN] = stand_in(experiment.source.name, experiment.source.origin)
    requests, acceptance_trace = simulation.requests, simulation.ground_truth.acceptance_trace
    metrics["specsim"]["acceptance"] = calibration(acceptance_trace, requests.slo_class, requests.class_names)
    notes = tuple(_notes(experiment, observers, record, table, metrics["specsim"]))
    provenance = provenance_of(experiment, notes, started, loop_s, totals.iterations)
    provenance["router"] = experiment.router
    provenance["varies_with_seed"] = list(experiment.varies)
    if folder is not None:
        provenance = write_run(
            folder, experiment.made_of, table=table, metrics=metrics, provenance=provenance, passes=pass_rows
        )
    return Run(metrics, config, provenance, table, pass_rows, folder, notes)


def _observed(simulation: Simulation, observers: Sequence[Any]) -> Simulation:
    """Return a simulation that observers see, too: objects, their classes, or what makes one when called."""
    made = [isinstance(each, type) or (callable(each) and not hasattr(each, "on_pass")) for each in observers]
    makers = [each if new else lambda each=each: each for each, new in zip(observers, made, strict=True)]
    return replace(simulation, observers=[*simulation.observers, *makers])


def plot(runs: Sequence[StoredRun], out: Path | None = None) -> list[Path]:
    """Draw one run's figures, or one comparison of several by the settings that differ, and return the files.

    `out` is by default ``figures`` in the first run's folder.
    """
    from specsim.figures.plots import run_figures, save
    from specsim.figures.slo import comparison
    from specsim.store.scan import labels_of

    where = runs[0].folder / "figures" if out is None else out
    if len(runs) == 1:
        return save(run_figures(runs[0]), where)
    labelled = zip(labels_of(runs), (run.metrics for run in runs), strict=True)
    return save({"comparison": comparison(list(labelled))}, where)


def _notes(
    experiment: Experiment,
    observers: Sequence[Observer | Callable[[], Observer]],
    record: Record,
    table: RequestTable,
    block: Mapping[str, Any],
) -> Iterator[str]:
    """Yield the notes of a run; `block` is that of its metrics."""
    from specsim.metrics.load import load_notes

    scheduler, totals, simulation = experiment.made_of.chosen.scheduler, record.totals, experiment.simulation
    yield from originals([block[STAND_IN]] if block[STAND_IN] else [])
    yield from experiment.notes
    if observers:
        seen = ", ".join(getattr(each, "__name__", type(each).__name__) for each in observers)
        yield f"observed by objects: {seen}; config.yaml does not name them"
    if totals.draft_passes:
        yield from (*experiment.drafting_notes, *experiment.depth_notes)
    yield from beyond(simulation, record)
    for reason, count in block["rejected"].items():
        yield f"{count} requests {REASONS[reason]}"
    for name, column in table.noted.items():
        if count := int(np.isinf(column).sum()):
            said = f"{scheduler}: {NOTED}{name} is infinite for {count} of {table.rows} requests"
            yield f"{said}: its mean leaves them out"
    yield from load_notes(block["load"], block["arrived"], _recorded(experiment))
    yield from first_wave(simulation.concurrency, table)
    if slots := experiment.limits.get("max_num_seqs"):
        yield from slots_note(slots, experiment.undrafted_slots, table)
    yield from engine_notes(simulation, table, totals, record.eager_s)
    yield from cache_note(simulation, record.cache_bytes, table)
    if totals.draft_passes:
        yield from hardly_drafts(scheduler.name, table, totals.iterations, simulation)


def _recorded(experiment: Experiment) -> Recorded | None:
    """Return how many requests a recording holds, and what can be judged instead; None for an endless trace."""
    from specsim.metrics.load import Recorded

    source, closed = experiment.source, experiment.made_of.settings.concurrency is not None
    if source.holds is None:
        return None
    ways = ["a wider trace.window"] if source.cut else []
    ways += ["another trace"] if closed else ["a lower rate", "another trace"]
    resamples = source.timed and source.origin != OBJECT and not closed
    return Recorded.of(source.holds, ways, resamples=resamples)
