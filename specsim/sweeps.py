"""The runs of a sweep as one object: a sequence of runs, a table, means over seeds, figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, overload

import numpy as np

from specsim.errors import SpecsimError, nearest
from specsim.identity import Value, flat, identity, settings_of
from specsim.metrics.store import read_run, run_folders
from specsim.metrics.sweep_axes import axes_of, beside, check_setting, line_named
from specsim.metrics.sweep_table import CLASS, READ, RUN, SEED, SweptRun, differing, keys_of, sweep_table, values_of
from specsim.reading import expanded, shown
from specsim.workload.seeding import varies_with_seed

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

MOST_SHOWN = 20


class AnyRun(Protocol):
    """A run, in memory or in its folder: a `Run`, or a `StoredRun`."""

    @property
    def metrics(self) -> dict[str, Any]:
        """The content of ``metrics.json``."""

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""

    @property
    def provenance(self) -> dict[str, Any]:
        """Wall-clock figures, versions, where the trace came from."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines worth reading."""

    @property
    def requests(self) -> DataFrame:
        """One row per request."""

    @property
    def passes(self) -> DataFrame | None:
        """One row per forward pass, None where they were not kept."""

    @property
    def folder(self) -> Path | None:
        """Where the run is stored, None when it is only in memory."""

    @property
    def slo_attainment(self) -> float:
        """Share of all arrived requests that met their objectives."""

    def plot(self, folder: str | Path | None = None) -> list[Path]:
        """Draw the run's figures and return their paths."""


class Scan(NamedTuple):
    """What reading every run once has found: a table, the runs in it, and lines about those left out."""

    table: DataFrame
    runs: tuple[AnyRun | Path, ...]
    notes: tuple[str, ...]


class Sweep(Sequence[AnyRun]):
    """Runs, in order. A stored run is read from its folder whenever it is asked for: none is held in memory.

    Attributes
    ----------
    notes : lines about the sweep as a whole.
    """

    def __init__(self, runs: Iterable[AnyRun | Path], notes: Sequence[str] = (), table: DataFrame | None = None):
        if not isinstance(runs, Iterable):
            raise SpecsimError(f"Sweep: {shown(runs)}: expected a list of runs")
        self._runs = tuple(runs)
        for each in self._runs:
            if not (isinstance(each, Path) or hasattr(each, "folder")):
                raise SpecsimError(f"Sweep: {shown(each)} is no run; expected runs, or the paths of their folders")
        self._given = table
        self.notes = tuple(notes)

    def __len__(self) -> int:
        return len(self._runs)

    @overload
    def __getitem__(self, index: int) -> AnyRun: ...

    @overload
    def __getitem__(self, index: slice) -> Sweep: ...

    def __getitem__(self, index: int | slice) -> AnyRun | Sweep:
        if isinstance(index, slice):
            return Sweep(self._runs[index])
        if not isinstance(index, int | np.integer):
            raise SpecsimError(f"a Sweep is indexed by number; expected sweep.table[{shown(index)}] for a column")
        run = self._runs[index]
        return read_run(run) if isinstance(run, Path) else run

    def __repr__(self) -> str:
        over = ", ".join(f"{key} ({len(values)})" for key, values in self.axes.items())
        return f"<Sweep of {len(self)} runs{f': {over}' if over else ''}>"

    def _repr_html_(self) -> str:
        from specsim.metrics.html import sweep_html

        return sweep_html(self.axes, len(self), self.labelled(MOST_SHOWN), self.notes)

    @cached_property
    def _table(self) -> DataFrame:
        if self._given is not None:
            return self._given
        found = scan(self._runs)
        if found.notes:
            raise SpecsimError(found.notes[0])
        return found.table

    @property
    def table(self) -> DataFrame:
        """One row per run and SLO class: the settings that differ, then every number measured (docs/sweeps.md)."""
        return self._table.copy()

    @property
    def axes(self) -> dict[str, list[Any]]:
        """The settings in which the runs differ and their values, the seed last."""
        differ = [*differing(self._table), *([SEED] if self._table[SEED].nunique() > 1 else [])]
        return {key: values_of(self._table, key) for key in differ}

    def select(self, **values: Any) -> Sweep:
        """Return the runs whose settings have these values, one or a list each; ``__`` stands for a dot.

        Raises
        ------
        SpecsimError
            For a setting that is not in the table, a value that no run has, or where no run is left.
        """
        rows = self._table.drop_duplicates(RUN)
        if rows.empty:
            raise SpecsimError("select: the sweep holds no run")
        for name, wanted in values.items():
            key = name.replace("__", ".")
            if key == CLASS:
                raise SpecsimError(f"select: every run holds all classes; expected rows of the table by {CLASS}")
            if key not in keys_of(rows):
                raise SpecsimError(f"select: {key} is no setting of the table{nearest(key, keys_of(rows))}")
            there, single = values_of(self._table, key), isinstance(wanted, str) or not isinstance(wanted, Iterable)
            several = [wanted] if single else list(wanted)
            for each in several:
                if each not in there:
                    raise SpecsimError(f"select: no run with {key}={each}; expected {', '.join(map(str, there))}")
            rows = rows[rows[key].isin(several)]
        if rows.empty:
            raise SpecsimError(f"select: no run has {', '.join(f'{key}={each}' for key, each in values.items())}")
        kept = set(rows[RUN])
        names = self._table[RUN].drop_duplicates()
        return Sweep(run for run, name in zip(self._runs, names, strict=True) if name in kept)

    def labelled(self, most: int | None = None) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return ``(label, metrics)`` of each run, or of the first `most`: a label holds what differs."""
        if most is not None and not (isinstance(most, int) and most >= 0):
            raise SpecsimError(f"labelled: {shown(most)}: expected how many runs to take, or None for all")
        keys = list(self.axes)
        rows = self._table.drop_duplicates(RUN)[keys].head(len(self) if most is None else most)
        told = [dict(zip(keys, row, strict=True)) for row in rows.itertuples(index=False)]
        return [(row, run.metrics) for row, run in zip(told, self[:most], strict=True)]

    def seeds_said(self) -> tuple[str, ...]:
        """Return a line about what an interval over the seeds of this sweep covers; none for one seed."""
        from specsim.metrics.seeds import covers_said

        return covers_said(self._table)

    def means(self, measure: str = "slo_attainment", by: Sequence[str] | None = None) -> DataFrame:
        """Return `specsim.metrics.seeds.over_seeds` of the table, by all that differs unless `by` says otherwise."""
        from specsim.metrics.seeds import over_seeds

        return over_seeds(self._table, measure, [CLASS, *differing(self._table)] if by is None else by)

    def paired(
        self, measure: str = "slo_attainment", *, against: Any, by: Sequence[str] | None = None, of: str = "scheduler"
    ) -> DataFrame:
        """Return `specsim.metrics.seeds.paired_difference` of the table, by all that differs beside `of`."""
        from specsim.metrics.seeds import paired_difference

        if by is None:
            check_setting(self._table, "of", of)
            by = [CLASS, *beside(self._table, of)]
        return paired_difference(self._table, measure, against, by, of=of)

    def curves(
        self, measure: str = "slo_attainment", *, x: str | None = None, line: str | None = None, against: Any = None
    ) -> Figure:
        """Return one figure: the measure's means over seeds against `x`, a panel a class, a line for each `line`.

        With `against`, a value of `line`, it shows the differences from it, paired by seed.

        Raises
        ------
        SpecsimError
            When the runs differ in a third setting: `select` takes one value of it, `plot` draws a figure for each.
        """
        from specsim.metrics.figure_sweep import curves

        axes = axes_of(self._table, x, line)
        if axes.rest:
            key, values = axes.rest[0], values_of(self._table, axes.rest[0])
            raise SpecsimError(f"curves: the runs differ in {key}, too; expected select({key}=..) of {values[:6]}")
        base = None if against is None else line_named(self._table, axes.line, against)
        return curves(self._table, axes, measure, base)

    def plot(
        self, folder: str | Path, *, x: str | None = None, line: str | None = None, against: Any = None
    ) -> list[Path]:
        """Draw attainment, worst class and goodput into `folder`, a figure for each value of what is left over.

        Where no number differs, runs of one seed are compared side by side.

        Returns
        -------
        the files, PNG and PDF.
        """
        from specsim.metrics.plots import plot_comparison, plot_sweep

        axes = axes_of(self._table, x, line)
        if axes.x is None and self._table[SEED].nunique() == 1:
            said = [(",".join(f"{key}={value}" for key, value in named.items()), got) for named, got in self.labelled()]
            return plot_comparison(said, folder)
        return plot_sweep(self._table, axes, folder, against)


def load_sweep(*folders: str | Path) -> Sweep:
    """Return the runs that lie right below the folders, whatever their names.

    A run that is there twice is counted once, and a note says so.

    Raises
    ------
    SpecsimError
        When a folder holds no run, one is damaged, or one is there twice with different results.
    """
    places = [place for folder in folders for place in _inside(expanded(str(folder)))]
    found = scan(places)
    return Sweep(found.runs, found.notes, found.table)


def _inside(folder: Path) -> list[Path]:
    places = run_folders(folder)
    if not places:
        read = f"{str(folder)!r} holds no run folders"
        raise SpecsimError(f"{read}; expected what `specsim run -m ... out=DIR` wrote")
    return places


def scan(runs: Sequence[AnyRun | Path]) -> Scan:
    """Read each run once, and leave out those that are there twice.

    Raises
    ------
    SpecsimError
        When a run is damaged, or there twice with different results.
    """
    names = _names(runs)
    kept: list[AnyRun | Path] = []
    notes: list[str] = []
    seen: dict[str, tuple[str, str]] = {}

    def distinct() -> Iterator[SweptRun]:
        for name, place in zip(names, runs, strict=True):
            run = read_run(place) if isinstance(place, Path) else place
            config, provenance = run.config, run.provenance
            settings = {**settings_of(config), **_read_by(provenance)}
            key, result = identity(settings), identity(flat(run.metrics))
            if key in seen:
                notes.append(_twice(seen[key], (name, result)))
                continue
            seen[key] = (name, result)
            kept.append(place)
            point = identity({each: value for each, value in settings.items() if each != SEED})
            # As it was when the run was made: the trace's file may be another one by now, or gone.
            varies = provenance.get("varies_with_seed") or varies_with_seed(config)
            yield SweptRun(name, settings, point, ", ".join(varies), run.metrics)

    table = sweep_table(distinct())
    return Scan(table, tuple(kept), tuple(notes))


def _twice(one: tuple[str, str], other: tuple[str, str]) -> str:
    if one[1] != other[1]:
        raise SpecsimError(
            f"{one[0]!r} and {other[0]!r} hold one configuration and different results; expected one of them"
        )
    return f"{one[0]!r} and {other[0]!r} hold the same run: it is counted once"


def _names(runs: Sequence[AnyRun | Path]) -> list[str]:
    """Return a name for each run: its folder's, the whole path where two share it, its place without a folder."""
    folders = [run if isinstance(run, Path) else run.folder for run in runs]
    short = [str(place) if folder is None else folder.name for place, folder in enumerate(folders)]
    if len(set(short)) == len(short):
        return short
    return [str(place if folder is None else folder) for place, folder in enumerate(folders)]


def _read_by(provenance: Mapping[str, Any]) -> dict[str, Value]:
    """Return what a run found: the files behind its trace and recording, and the version that ran."""
    trace = provenance["trace"]
    found = {
        f"trace{READ}origin": trace["origin"],
        f"trace{READ}sha256": trace["sha256"],
        f"acceptance{READ}sha256": provenance["recording_sha256"],
        "version": provenance["versions"]["specsim"],
    }
    return flat(found)
