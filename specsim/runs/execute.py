"""From a resolved configuration to a run, in memory or in its folder; all that the command line and Python share."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.config.choices import Choice
from specsim.config.identity import NOT_OF_THE_RUN
from specsim.files.plain import copied
from specsim.results.schema import NOTED
from specsim.results.stand_in import STAND_IN, stand_in
from specsim.results.sweep_notes import extrapolated
from specsim.runs.drafting_note import hardly_drafts
from specsim.runs.prepare import Experiment, prepare
from specsim.runs.progress import bar
from specsim.runs.provenance import provenance_of
from specsim.runs.run import Run
from specsim.store.places import check_same_run
from specsim.store.runs import StoredRun
from specsim.store.writer import write_run

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
    from specsim.results.load_notes import Recorded
    from specsim.results.request_table import RequestTable
    from specsim.results.schema import RunTotals


def stored_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes a run the run it is: not where it is kept, nor what else changes no number."""
    stored: dict[str, Any] = copied({key: value for key, value in config.items() if key not in NOT_OF_THE_RUN})
    return stored


def execute(
    config: Mapping[str, Any], folder: Path | None, experiment: Experiment | None = None, *, progress: bool = False
) -> Run:
    """Run one resolved configuration and store it in `folder`; `experiment` is what was prepared of it, if anything.

    Raises
    ------
    SpecsimError
        When the scheduler is at fault, or `folder` cannot be written or holds another run, now or at the end.
    """
    from specsim.results.load_notes import load_notes
    from specsim.results.summary import summarise
    from specsim.simulation import run as run_simulation
    from specsim.world.calibration import calibration

    if folder is not None:
        check_same_run(folder, config)
    experiment = experiment or prepare(config)
    config = stored_config(config)
    started, clock = datetime.now(UTC), time.perf_counter()
    with bar(len(experiment.simulation.requests), "request", progress) as watch:
        record = run_simulation(experiment.simulation, watch)
    loop_s = time.perf_counter() - clock
    if len(experiment.simulation.requests) >= MANY:
        # Replicas refer to themselves: what they held of each request would stay until Python looks.
        gc.collect()
    table, totals, pass_rows = record.table(), record.totals, record.passes
    if experiment.source.origin == OBJECT:
        table = table.apart()
    metrics = summarise(table, totals, experiment.simulation.window)
    metrics["specsim"]["router"] = experiment.router
    metrics["specsim"][STAND_IN] = stand_in(experiment.source.name, experiment.source.origin)
    requests, tape = experiment.simulation.requests, experiment.simulation.world.tape
    metrics["specsim"]["acceptance"] = calibration(tape, requests.slo_class, requests.class_names)
    block = metrics["specsim"]
    drafting = (experiment.drafting_note,) if experiment.drafting_note and totals.draft_passes else ()
    notes = experiment.notes + drafting + _out_of_range(totals) + _rejected(metrics)
    notes += _infinite(table, experiment.scheduler)
    notes += load_notes(block["load"], block["arrived"], _recorded(experiment))
    if totals.draft_passes:
        notes += hardly_drafts(experiment.scheduler.name, table, totals.iterations, experiment.simulation)
    provenance = provenance_of(experiment, notes, started, loop_s, totals.iterations)
    provenance["router"] = experiment.router
    provenance["varies_with_seed"] = list(experiment.varies)
    if folder is not None:
        written = {"metrics": metrics, "config": config, "provenance": provenance}
        provenance = write_run(folder, table=table, passes=pass_rows, **written)
    return Run(metrics, config, provenance, table, pass_rows, folder, notes)


def plot(runs: Sequence[StoredRun], out: Path | None = None) -> list[Path]:
    """Draw one run's figures, or one comparison of several by the settings that differ, and return the files.

    `out` is by default ``figures`` in the first run's folder.
    """
    from specsim.figures.plots import plot_comparison, plot_run
    from specsim.store.scan import labels_of

    where = runs[0].folder / "figures" if out is None else out
    if len(runs) == 1:
        return plot_run(runs[0], where)
    metrics = [run.metrics for run in runs]
    return plot_comparison(list(zip(labels_of(runs), metrics, strict=True)), where)


def _out_of_range(totals: RunTotals) -> tuple[str, ...]:
    outside, passes = totals.out_of_range_passes, totals.iterations + totals.draft_passes
    if not outside:
        return ()
    return (extrapolated(outside, passes),)


def _infinite(table: RequestTable, scheduler: Choice) -> tuple[str, ...]:
    """Return a line for each column in which the scheduler noted an infinite number."""
    infinite = {name: int(np.isinf(column).sum()) for name, column in table.noted.items()}
    return tuple(
        f"{scheduler}: {NOTED}{name} is infinite for {count} of {table.rows} requests: its mean leaves them out"
        for name, count in infinite.items()
        if count
    )


def _recorded(experiment: Experiment) -> Recorded | None:
    """Return how many requests a recording holds, and what draws more from it; None for an endless trace."""
    from specsim.results.load_notes import Recorded

    source = experiment.source
    if source.holds is None:
        return None
    if "arrivals" in experiment.varies:
        return Recorded(source.holds, "several seeds draw others from it")
    resampled = "trace.resample=SECONDS with several seeds draws others from it"
    return Recorded(source.holds, resampled if source.timed and source.origin != OBJECT else "")


def _rejected(metrics: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a line for each reason; whoever is rejected for any is missing from the backlog that is judged."""
    return tuple(f"{count} requests {REASONS[reason]}" for reason, count in metrics["specsim"]["rejected"].items())
