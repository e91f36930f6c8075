"""From a resolved configuration to a run, in memory or in its folder; all that the command line and Python share."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.config import compose
from specsim.errors import SpecsimError
from specsim.experiment import prepare
from specsim.identity import NOT_OF_THE_RUN
from specsim.metrics.store import StoredRun, write_run
from specsim.plan import PlannedRun, check_same_run
from specsim.points import points
from specsim.provenance import of_these_files, provenance_of
from specsim.sweeps import Sweep, load_sweep
from specsim.workload.seeding import varies_with_seed

if TYPE_CHECKING:
    from pandas import DataFrame

    from specsim.metrics.schema import RunTotals

Watcher = Callable[[int], None]


@dataclass(frozen=True)
class Run:
    """One finished run.

    Attributes
    ----------
    metrics : what `metrics.json` holds (docs/metrics.md). config : the resolved configuration.
    provenance : wall-clock figures, versions, where the trace came from. notes : lines worth reading.
    requests : one row per request. passes : one row per forward pass, None unless ``passes=True``.
    folder : where it is stored, None when it is only in memory.
    """

    metrics: dict[str, Any]
    config: dict[str, Any]
    provenance: dict[str, Any]
    requests: DataFrame = field(repr=False)
    passes: DataFrame | None = field(default=None, repr=False)
    folder: Path | None = None
    notes: tuple[str, ...] = ()

    @property
    def slo_attainment(self) -> float:
        """Share of all arrived requests that met their objectives."""
        return float(self.metrics["specsim"]["slo_attainment"])

    def plot(self, folder: str | Path | None = None) -> list[Path]:
        """Draw the run's figures into `folder`, by default ``figures`` in its own, and return their paths.

        Raises
        ------
        SpecsimError
            When the run is only in memory and no folder is given.
        """
        from specsim.metrics.plots import plot_run

        where = folder if folder is not None else self.folder and self.folder / "figures"
        if where is None:
            raise SpecsimError("the run is only in memory; expected plot(folder)")
        return plot_run(self, where)

    def _repr_html_(self) -> str:
        from specsim.metrics.html import run_html

        return run_html(self.config, self.metrics, self.notes)


def run_all(planned: Sequence[PlannedRun], *, progress: bool = False) -> Sweep:
    """Execute runs one after the other; those whose folder holds them already are not run again.

    A stored run is made anew where the trace behind it or the recorded acceptance is another one by now.
    """
    runs = []
    with _bar(len(planned), "run", progress) as watch:
        for index, each in enumerate(planned):
            runs.append(_made(each))
            if watch is not None:
                watch(index + 1)
    return Sweep(runs)


def _made(planned: PlannedRun) -> Run | Path:
    """Return the run, where it has a folder as that: nothing of it stays in memory."""
    config, folder = planned.config, planned.folder
    if folder is None:
        return execute(config, None)
    stored = check_same_run(folder, config)
    if stored is None or not of_these_files(stored.provenance, prepare(config)):
        execute(config, folder)
    return folder


def stored_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes a run the run it is: not where it is kept, nor what else changes no number."""
    return {key: value for key, value in config.items() if key not in NOT_OF_THE_RUN}


def execute(config: Mapping[str, Any], folder: Path | None, *, progress: bool = False) -> Run:
    """Run one resolved configuration and store it in `folder`; a folder that holds another run is refused."""
    from specsim.metrics.load_notes import load_notes
    from specsim.metrics.request_table import request_table
    from specsim.metrics.schema import PASS_COLUMNS
    from specsim.metrics.summary import summarise
    from specsim.simulation import run as run_simulation
    from specsim.world.calibration import calibration

    if folder is not None:
        check_same_run(folder, config)
    experiment = prepare(config)
    config = stored_config(config)
    started, clock = datetime.now(UTC), time.perf_counter()
    with _bar(len(experiment.simulation.requests), "request", progress) as watch:
        record = run_simulation(experiment.simulation, watch)
    loop_s = time.perf_counter() - clock
    table = request_table(record.columns)
    metrics = summarise(table, record.totals, experiment.simulation.window)
    requests, tape = experiment.simulation.requests, experiment.simulation.world.tape
    metrics["specsim"]["acceptance"] = calibration(tape, requests.slo_class, requests.class_names)
    block = metrics["specsim"]
    drafting = (experiment.drafting_note,) if experiment.drafting_note and record.totals.draft_passes else ()
    notes = experiment.notes + drafting + _out_of_range(record.totals) + _rejected(metrics)
    notes += load_notes(block["load"], block["arrived"])
    provenance = provenance_of(experiment, notes, started, loop_s, record.totals.iterations)
    provenance["varies_with_seed"] = list(varies_with_seed(config))
    if folder is not None:
        write_run(folder, table=table, metrics=metrics, config=config, provenance=provenance, passes=record.passes)
    passes = None
    if record.passes is not None:
        from pandas import DataFrame

        passes = DataFrame({name: record.passes[name] for name in PASS_COLUMNS})
    return Run(metrics, config, provenance, table, passes, folder, notes)


def write_table(root: Path) -> Path:
    """Write ``table.csv`` into a sweep's folder, whole or not at all: the table of all runs in it."""
    path, partial = root / "table.csv", root / f".table.csv.{os.getpid()}.tmp"
    try:
        load_sweep(root).table.to_csv(partial, index=False)
        return partial.replace(path)
    except OSError as error:
        raise SpecsimError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


def plot(runs: Sequence[StoredRun], out: Path | None = None) -> list[Path]:
    """Draw one run's figures, or one comparison of several, and return the files.

    `out` is by default ``figures`` in the first run's folder.
    """
    from specsim.metrics.plots import plot_comparison, plot_run

    where = runs[0].folder / "figures" if out is None else out
    if len(runs) == 1:
        return plot_run(runs[0], where)
    return plot_comparison([(run.folder.name, run.metrics) for run in runs], where)


def fetch_trace(name: str, *, progress: bool = False) -> list[Path]:
    """Download a public trace from its official home into the user cache and return its files.

    Raises
    ------
    SpecsimError
        When the name is unknown, the network fails (what came stays for the next try) or the checksum is wrong.
    """
    from specsim.workload.fetch import fetch

    (point,) = points([f"trace={name}"], sweep=False)
    return list(fetch(name, compose(point)["trace"], progress=progress))


@contextmanager
def _bar(total: int, unit: str, progress: bool) -> Iterator[Watcher | None]:
    """Yield what hears how many have ended; a bar on a terminal and in Jupyter, None in a pipe."""
    if not progress or not (sys.stderr.isatty() or _in_jupyter()):
        yield None
        return
    with warnings.catch_warnings():
        # Without ipywidgets the bar is text: nothing that a user must hear.
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm

    with tqdm(total=total, unit=unit, leave=False) as bar:

        def watch(ended: int) -> None:
            bar.update(ended - bar.n)

        yield watch


def _in_jupyter() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and hasattr(shell.get_ipython(), "kernel")


def _out_of_range(totals: RunTotals) -> tuple[str, ...]:
    outside, passes = totals.out_of_range_passes, totals.iterations + totals.draft_passes
    if not outside:
        return ()
    return (f"{outside} of {passes} passes lie outside the range the profile was fitted on: extrapolated",)


def _rejected(metrics: Mapping[str, Any]) -> tuple[str, ...]:
    count = sum(metrics["specsim"]["rejected"].values())
    if not count:
        return ()
    return (f"{count} requests rejected: prompt and max_tokens exceed the cache of both models on one replica",)
