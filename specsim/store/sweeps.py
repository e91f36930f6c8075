"""Stored sweeps: one folder as one object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from specsim.errors import SpecsimError, nearest
from specsim.errors import beside as beside_path
from specsim.figures.shown import WithReport
from specsim.files.checked_mapping import expanded, shown
from specsim.metrics.any_run import AnyRun
from specsim.metrics.seeds import covers_said, over_seeds, paired_difference, point_means, winners
from specsim.metrics.sweep_table import (
    CLASS,
    CODE,
    READ,
    RUN,
    SEED,
    SweepAxes,
    axes_of,
    base_named,
    beside,
    check_setting,
    differing,
    in_short,
    keys_of,
    selecting,
    short_labels,
    short_names,
    values_of,
    with_short_names,
    without_failures,
)
from specsim.metrics.tables import as_html, comparison_table, counted, means_table
from specsim.metrics.why import why
from specsim.store.runs import is_run, planned_in, read_run, run_folders
from specsim.store.scan import Scan, names_of, scan
from specsim.store.summaries import SUMMARIES, Failure, Summary, read_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from specsim.figures.plots import PaperFigure


STYLES = ("screen", "paper")
"""Of the figures of a sweep."""
MOST_ROWS = 20
"""Of its table in Jupyter."""


def holds_runs(root: Path) -> bool:
    """Return whether a folder is a sweep's: it holds runs or summaries."""
    return bool(run_folders(root)) or (root / SUMMARIES).is_dir()


def load_sweep(*folders: str | Path) -> Sweep:
    """Return the runs in the direct subfolders of `folders`, whatever their names.

    Runs of a folder's last sweep come first, in its order, then the others by name. A damaged run is left out. A run
    with a copy counts once. Notes name both, and say if runs differ in the code or in the files that they have read.

    Raises
    ------
    SpecsimError
        When a folder holds no run, every run is damaged, or two copies of a run have different results.
    """
    if not folders:
        raise SpecsimError("load_sweep(): expected the folder of a sweep, or several")
    roots = [expanded(str(folder)) for folder in folders]
    places = {root: run_folders(root) for root in roots}
    in_folders = {_key(place) for of_root in places.values() for place in of_root}
    runs: list[Path | Summary] = []
    failures: list[Failure] = []
    notes: list[str] = []
    for root in roots:
        if not holds_runs(root):
            wrote = f"{str(root)!r} holds no run folders; expected what `specsim run -m ... out=DIR` wrote"
            one = (
                f"{str(root)!r} holds a single run; expected folders of sweeps, as {str(root.parent)!r}, or runs alone"
            )
            none = f"no folder {str(root)!r}{beside_path(root)}"
            raise SpecsimError(one if is_run(root) else wrote if root.exists() else none)
        rows, place_in = read_rows(root), _place_in(root)
        summaries = [each for key, each in rows.runs.items() if key not in in_folders]
        runs += sorted([*places[root], *summaries], key=place_in)
        lost = [each for key, each in rows.failures.items() if key not in in_folders]
        failures += sorted(lost, key=place_in)
        notes += rows.notes
    found = scan(runs, failures)
    notes += found.notes
    if not found.runs and not failures:
        raise SpecsimError(notes[0])
    return Sweep(found.runs, [*notes, *_mixed(found.table)], found, failures)


def _key(run: Path | Summary | Failure) -> str:
    return run.name.rpartition("-")[2] if isinstance(run, Path) else run.key


def _place_in(root: Path) -> Callable[[Path | Summary | Failure], int]:
    """Return what tells the place of a run in the last sweep of a folder; all others come behind it."""
    keys: list[str] | None = None
    with suppress(SpecsimError):
        keys, _, _ = planned_in(root)
    order = {key: place for place, key in enumerate(keys or ())}
    return lambda run: order.get(_key(run), len(order))


def _mixed(table: DataFrame) -> list[str]:
    """Return a line for each difference of the runs outside their settings: in the code, or in a file read."""
    keys = [key for key in differing(without_failures(table)) if key == CODE or READ in key]
    what = {key: "made by different code of specsim" if key == CODE else "made from different files" for key in keys}
    return [f"the runs were {what[key]}: the column {key} tells which" for key in keys if not key.endswith("origin")]


class Sweep(WithReport, Sequence[AnyRun]):
    """A sequence of runs. A stored run is read from its folder each time it is accessed; none is held in memory.

    Attributes
    ----------
    whole_notes : lines about the sweep as a whole. failures : points whose runs failed; they appear only in the table.
    """

    def __init__(
        self,
        runs: Iterable[AnyRun | Path],
        notes: Sequence[str] = (),
        found: Scan | None = None,
        failures: Sequence[Failure] = (),
    ):
        if not isinstance(runs, Iterable):
            raise SpecsimError(f"Sweep: {shown(runs)}: expected a list of runs")
        # The working folder may be another by the time a run is read.
        self._runs = tuple(each.absolute() if isinstance(each, Path) else each for each in runs)
        for each in self._runs:
            if not (isinstance(each, Path) or hasattr(each, "folder")):
                raise SpecsimError(f"Sweep: {shown(each)} is no run; expected runs, or the paths of their folders")
        self._found = found
        self.whole_notes = tuple(notes)
        self.failures = tuple(failures)
        self._fixed: dict[str, Any] = {}

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
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"<Sweep of {len(self)} runs{failed}{f': {over}' if over else ''}{counted(self.notes)}>"

    def _repr_html_(self) -> str:
        over = ", ".join(f"{key} ({len(values)})" for key, values in self.axes.items())
        shown, points = self.labelled(MOST_ROWS), self.over_seeds() if len(self) else None
        if points is None or len(points) >= len(self):
            rows, table = len(self), comparison_table(shown)
        else:
            along = axes_of(self._table).along
            keys = [key for key in differing(self._whole) if key not in along]
            first = points.head(MOST_ROWS)
            labels = [dict(zip(keys, row, strict=True)) for row in first[keys].itertuples(index=False)]
            blocks = [metrics["specsim"] for _, metrics in shown]
            rows, table = len(points), means_table(first, labels, blocks, ".table has every run")
        more = [f"{rows - MOST_ROWS} more: .table and .over_seeds() have them all"] if rows > MOST_ROWS else []
        failed = [f"failed: {each.error}" for each in self.failures]
        return as_html(f"Sweep of {len(self)} runs{f': {over}' if over else ''}", table, [*more, *failed, *self.notes])

    @cached_property
    def _scanned(self) -> Scan:
        return self._found or scan(self._runs, self.failures)

    @cached_property
    def _whole(self) -> DataFrame:
        found = self._scanned
        if self._found is None and found.notes:
            raise SpecsimError(found.notes[0])
        return found.table

    @cached_property
    def _table(self) -> DataFrame:
        return without_failures(self._whole)

    @cached_property
    def _drawn(self) -> DataFrame:
        table = self._whole.copy()
        for key in self._fixed.keys() - {*table}:
            table.insert(list(table).index(CLASS), key, self._fixed[key])
        return with_short_names(table)

    @property
    def table(self) -> DataFrame:
        """One row per run and SLO class: the settings that differ, then every metric (docs/sweeps.md).

        A failed run has one row, with its error line in the column ``error``.
        """
        return self._whole.copy()

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """The notes of the runs, those that several share as one line, then `whole_notes`."""
        return (*in_short(self._scanned.run_notes, self._name), *self.whole_notes) if self._runs else self.whole_notes

    def _name(self, place: int) -> str:
        """Return the settings of a run in which the runs differ, as text, without those that others bring along."""
        along = axes_of(self._table).along
        told = {key: value for key, value in self._labels()[place].items() if key not in along}
        return ", ".join(f"{key}={'null' if value is None or value != value else value}" for key, value in told.items())

    @property
    def names(self) -> list[str]:
        """The names of the runs and then of the failures, as in the column ``run`` of the table."""
        return names_of([*self._runs, *self.failures])

    @property
    def axes(self) -> dict[str, list[Any]]:
        """The settings in which the runs differ, with their values; the seed last."""
        differ = [*differing(self._table), *([SEED] if self._table[SEED].nunique() > 1 else [])]
        return {key: values_of(self._table, key) for key in differ}

    def select(self, **values: Any) -> Sweep:
        """Return the runs whose settings have these values, each one value or a list; ``__`` stands for a dot.

        Raises
        ------
        SpecsimError
            For a setting that is not in the table, a value that no run has, or when no run is left.
        """
        rows = self._whole.drop_duplicates(RUN)
        if rows.empty:
            raise SpecsimError("select: the sweep holds no run")
        for name, wanted in values.items():
            key = name.replace("__", ".")
            keys = [each for each in keys_of(rows) if each != CLASS]
            if key not in keys:
                raise SpecsimError(f"select: {key} is no setting of runs{nearest(key, keys)}")
            there = values_of(self._whole, key)
            several = list(wanted) if isinstance(wanted, Iterable) and not isinstance(wanted, str) else [wanted]
            for each in several:
                if each not in there:
                    raise SpecsimError(f"select: no run with {key}={each}; expected {', '.join(map(str, there))}")
            rows = rows[rows[key].isin(several) | (rows[key].isna() & (None in several))]
        if rows.empty:
            raise SpecsimError(f"select: no run has {', '.join(f'{key}={each}' for key, each in values.items())}")
        kept = set(rows[RUN])
        names = self._whole[RUN].drop_duplicates()
        among = [each for each, name in zip([*self._runs, *self.failures], names, strict=True) if name in kept]
        failures = [each for each in among if isinstance(each, Failure)]
        chosen = Sweep([each for each in among if not isinstance(each, Failure)], failures=failures)
        chosen._fixed = self._fixed | {key: each[0] for key in keys if len(each := values_of(rows, key)) == 1}
        return chosen

    def labelled(self, most: int | None = None) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return ``(label, metrics)`` of each run, or of the first `most`; a label holds the settings that differ."""
        if most is not None and not (isinstance(most, int) and most >= 0):
            raise SpecsimError(f"labelled: {shown(most)}: expected how many runs to take, or None for all")
        return [(label, run.metrics) for label, run in zip(self._labels()[:most], self[:most], strict=True)]

    def _labels(self) -> list[dict[str, Any]]:
        """Return of each run the settings in which the runs differ."""
        keys = list(self.axes)
        rows = self._table.drop_duplicates(RUN)[keys]
        return [dict(zip(keys, row, strict=True)) for row in rows.itertuples(index=False)]

    def seeds_said(self) -> tuple[str, ...]:
        """Return a line about what an interval over the seeds of this sweep covers; none for one seed."""
        return covers_said(self._table)

    def means(self, measure: str = "slo_attainment", by: Sequence[str] | None = None) -> DataFrame:
        """Return `specsim.metrics.seeds.over_seeds` of the table; `by` is by default all settings that differ."""
        return over_seeds(self._table, measure, [CLASS, *differing(self._table)] if by is None else by)

    def over_seeds(self, *, against: Any = None, of: str = "scheduler") -> DataFrame:
        """Return `specsim.metrics.seeds.point_means` of the table: a row a point, means and differences."""
        return point_means(self._whole, against=against, of=of)

    def paired(
        self, measure: str = "slo_attainment", *, against: Any, by: Sequence[str] | None = None, of: str = "scheduler"
    ) -> DataFrame:
        """Return `specsim.metrics.seeds.paired_difference` of the table, by all settings that differ except `of`."""
        if by is None:
            check_setting(self._table, "of", of)
            by = [CLASS, *beside(self._table, of)]
        return paired_difference(self._table, measure, against, by, of=of)

    def why(self) -> DataFrame:
        """Return `specsim.metrics.why.why` of every run, side by side: the settings that differ come first.

        Raises
        ------
        SpecsimError
            As `specsim.metrics.why.with_causes`, and when the sweep holds no run.
        """
        import pandas as pd

        if not len(self):
            raise SpecsimError("why: the sweep holds no run")
        tables = [why(run) for run in self]
        told = [{RUN: name, **label} for name, label in zip(self.names, self._labels(), strict=False)]
        both = [pd.DataFrame([label] * len(table)).join(table) for label, table in zip(told, tables, strict=True)]
        return pd.concat(both, ignore_index=True)

    def curves(
        self, measure: str = "slo_attainment", *, x: str | None = None, line: str | None = None, against: Any = None
    ) -> Figure:
        """Return one figure: means of a measure over seeds against `x`, a panel per class, a line per value of `line`.

        With `against`, a value of `line`, it shows differences from that value, paired by seed.

        Raises
        ------
        SpecsimError
            When the runs differ in a third setting. `select` chooses one value of it, `plot` draws a figure for each.
        """
        from specsim.figures.sweep import curves

        axes, base = self._two_axes("curves", x, line, against)
        return curves(self._drawn, axes, measure, base)

    def figure(
        self,
        *measures: str,
        x: str | None = None,
        line: str | None = None,
        against: Any = None,
        of: str = "all",
        names: Mapping[Any, str] | None = None,
        columns: int = 2,
    ) -> PaperFigure:
        """Return `specsim.figures.plots.paper_figure` of the table: a panel a measure against `x`, the caption beside.

        Raises
        ------
        SpecsimError
            When the runs differ in a third setting, in no number, there are more than six lines, or an argument names
            nothing that is there.
        """
        from specsim.figures.plots import paper_figure

        axes, base = self._two_axes("figure", x, line, against)
        if not isinstance(names, Mapping | None) or not all(isinstance(each, str) for each in (names or {}).values()):
            raise SpecsimError(f"figure: names={names!r:.60}: expected a text by the value of a line")
        short = short_names(values_of(self._whole, axes.line))
        own = {short.get(line, line): name for line, name in (names or {}).items()}
        return paper_figure(self._drawn, axes, measures, against=base, of=of, names=own, columns=columns)

    def _two_axes(self, name: str, x: str | None, line: str | None, against: Any) -> tuple[SweepAxes, Any]:
        """Return the axes of a figure that shows every run, and the line it compares with; `name` asks for it."""
        axes = axes_of(self._table, x, line)
        if axes.rest:
            key, values = axes.rest[0], values_of(self._table, axes.rest[0])
            raise SpecsimError(f"{name}: the runs differ in {key}, too; expected {selecting(key)} of {values[:6]}")
        return axes, self._base(axes, against)

    def _base(self, axes: SweepAxes, against: Any) -> Any:
        """Return the line that figures compare with, as they name it; None for None."""
        base = None if against is None else base_named(self._table, axes.line, against)
        return short_names(values_of(self._whole, axes.line))[base] if isinstance(base, str) else base

    def winners(
        self,
        measure: str = "slo_attainment",
        *,
        by: Sequence[str] | None = None,
        of: str = "scheduler",
        better: str | None = None,
    ) -> DataFrame:
        """Return `specsim.metrics.seeds.winners` of the table, by all settings that differ except `of`."""
        if by is None:
            check_setting(self._table, "of", of)
            by = beside(self._table, of)
        return winners(self._table, measure, by, of=of, better=better)

    def plot(
        self,
        folder: str | Path,
        *,
        x: str | None = None,
        line: str | None = None,
        against: Any = None,
        style: str = "screen",
    ) -> list[Path]:
        """Draw attainment, worst class and goodput into `folder`, with figures for each combination of the other axes.

        If no number differs, runs of one seed are compared side by side.

        Parameters
        ----------
        style : ``"screen"``: PNG and PDF with their captions; ``"paper"``: as `figure`, PDF, and ``captions.txt``.

        Returns
        -------
        the files.
        """
        from specsim.figures.plots import plot_paper, save, sweep_figures
        from specsim.figures.slo import comparison
        from specsim.figures.style import served_said

        if style not in STYLES:
            raise SpecsimError(f"style={shown(style)}: expected {' or '.join(STYLES)}")
        axes = axes_of(self._table, x, line)
        if style == "paper":
            return plot_paper(self._drawn, axes, folder, self._base(axes, against))
        if axes.x is None and self._table[SEED].nunique() == 1:
            said = [
                (",".join(f"{key}={value}" for key, value in label.items()), run.metrics)
                for label, run in zip(short_labels(self._labels()), self, strict=True)
            ]
            drawn = comparison(said, len(self.failures), served_said(self._drawn))
            return save({"comparison": drawn}, folder)
        return save(sweep_figures(self._drawn, axes, self._base(axes, against)), folder)
