"""From a resolved configuration to a run, in memory or in its folder; all that the command line and Python share."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.config import compose
from specsim.errors import SpecsimError
from specsim.experiment import prepare
from specsim.idle import check_idle
from specsim.metrics.store import StoredRun, is_run, read_run, write_run
from specsim.points import points
from specsim.provenance import of_these_files, provenance_of

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

        where = Path(folder) if folder is not None else self.folder and self.folder / "figures"
        if where is None:
            raise SpecsimError("the run is only in memory; expected plot(folder)")
        return plot_run(self, where)


def configs(chosen: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Compose and check every point, before any of them runs."""
    ready = [compose(point) for point in chosen]
    for config in ready:
        prepare(config)
    check_idle(chosen, ready)
    return ready


def run_all(ready: Sequence[Mapping[str, Any]], places: Sequence[Path | None], *, progress: bool = False) -> list[Run]:
    """Execute configurations one after the other; those whose folder holds them already are read back.

    A stored run is made anew where the trace behind it or the recorded acceptance is another one by now.
    """
    check_places(ready, places)
    runs = []
    with _bar(len(ready), "run", progress) as watch:
        for index, (config, folder) in enumerate(zip(ready, places, strict=True)):
            runs.append(execute(config, folder, resume=True))
            if watch is not None:
                watch(index + 1)
    return runs


def folders(root: Path, chosen: Sequence[Mapping[str, str]]) -> list[Path | None]:
    """Return one folder below `root` for each point, named by what differs."""
    return [root / _folder_name(label(point, chosen)) for point in chosen]


def check_places(ready: Sequence[Mapping[str, Any]], places: Sequence[Path | None]) -> None:
    """Refuse folders that cannot be written, that stand twice, or that hold a run with other settings.

    Raises
    ------
    SpecsimError
        Before anything has run.
    """
    for config, folder in zip(ready, places, strict=True):
        if folder is None:
            continue
        if places.count(folder) > 1:
            raise SpecsimError(f"out={folder}: two points of the sweep have this folder; expected paths of other names")
        if is_run(folder):
            _same_run(folder, stored_config(config))
        _check_writable(folder)


def _check_writable(folder: Path) -> None:
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        with tempfile.TemporaryDirectory(dir=there):
            pass
    except OSError as error:
        raise SpecsimError(f"out={folder}: cannot be written: {error.strerror}") from None


def stored_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes a run the run it is: not where it is kept, nor which settings came as suggestions."""
    return {key: value for key, value in config.items() if key not in ("out", "followed")}


def _same_run(folder: Path, config: Mapping[str, Any]) -> StoredRun:
    stored = read_run(folder)
    if stored.config != config:
        raise SpecsimError(f"out={folder}: holds a run with other settings; expected a new folder")
    return stored


def label(point: Mapping[str, str], chosen: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the settings of a point in which the points of a sweep differ."""
    return {key: value for key, value in point.items() if len({each[key] for each in chosen}) > 1}


def execute(config: Mapping[str, Any], folder: Path | None, *, progress: bool = False, resume: bool = False) -> Run:
    """Run one resolved configuration and store it in `folder`.

    A folder that holds this very run is read back instead when `resume` is set; one that holds another is refused.
    """
    from specsim.metrics.load_notes import load_notes
    from specsim.metrics.request_table import request_table
    from specsim.metrics.schema import PASS_COLUMNS
    from specsim.metrics.summary import summarise
    from specsim.simulation import run as run_simulation
    from specsim.world.calibration import calibration

    experiment = prepare(config)
    config = stored_config(config)
    if folder is not None and is_run(folder):
        stored = _same_run(folder, config)
        if resume and of_these_files(stored.provenance, experiment):
            return _from_store(stored)
    started, clock = datetime.now(UTC), time.perf_counter()
    with _bar(len(experiment.simulation.requests), "request", progress) as watch:
        record = run_simulation(experiment.simulation, watch)
    loop_s = time.perf_counter() - clock
    table = request_table(record.columns)
    metrics = summarise(table, record.totals, experiment.window)
    requests, tape = experiment.simulation.requests, experiment.simulation.world.tape
    metrics["specsim"]["acceptance"] = calibration(tape, requests.slo_class, requests.class_names)
    block = metrics["specsim"]
    drafting = (experiment.drafting_note,) if experiment.drafting_note and record.totals.draft_passes else ()
    notes = experiment.notes + drafting + _out_of_range(record.totals) + _rejected(metrics)
    notes += load_notes(block["load"], block["arrived"])
    provenance = provenance_of(experiment, notes, started, loop_s, record.totals.iterations)
    if folder is not None:
        write_run(folder, table=table, metrics=metrics, config=config, provenance=provenance, passes=record.passes)
    passes = None
    if record.passes is not None:
        from pandas import DataFrame

        passes = DataFrame({name: record.passes[name] for name in PASS_COLUMNS})
    return Run(metrics, config, provenance, table, passes, folder, notes)


def write_table(root: Path, labels: Sequence[Mapping[str, str]], runs: Sequence[Run]) -> Path:
    """Write ``table.csv`` of a sweep below `root`: what differs, then every number of each run's metrics."""
    from pandas import json_normalize

    rows = [{**named, **run.metrics} for named, run in zip(labels, runs, strict=True)]
    path = root / "table.csv"
    partial = path.with_suffix(".tmp")
    json_normalize(rows).to_csv(partial, index=False)
    return partial.replace(path)


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


def _from_store(stored: StoredRun) -> Run:
    provenance = stored.provenance
    notes = tuple(provenance.get("notes", ()))
    return Run(stored.metrics, stored.config, provenance, stored.requests, stored.passes, stored.folder, notes)


def _folder_name(parts: Mapping[str, str]) -> str:
    name = ",".join(f"{key}={value}" for key, value in parts.items()) or "run"
    plain = "".join(each if each.isalnum() or each in "=,.-_" else "_" for each in name)
    return plain if len(plain.encode()) <= 200 else f"{plain[:100]}-{sha256(name.encode()).hexdigest()[:12]}"


@contextmanager
def _bar(total: int, unit: str, progress: bool) -> Iterator[Watcher | None]:
    """Yield what hears how many have ended; a bar on a terminal, None in a pipe."""
    if not progress or not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    with tqdm(total=total, unit=unit, leave=False) as bar:

        def watch(ended: int) -> None:
            bar.update(ended - bar.n)

        yield watch


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
