"""Theirs against ours, a row per line, point and seed; one small Parquet file a figure."""

from __future__ import annotations

import json
from hashlib import sha256
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specsim.errors import SpecsimError
from specsim.metrics.sweep_table import CLASS, SEED
from specsim.runs.provenance import package_sha256
from studies.report import half_width, keep, kept
from studies.reproduction.experiment import PaperExperiment
from studies.reproduction.figure import Figure, FigureLine
from studies.reproduction.running import AS_CHOSEN, PLACE, Measured, X

if TYPE_CHECKING:
    from pandas import DataFrame, Series

COLUMNS = {
    "variant": "string",
    "line": "string",
    "x": "float64",
    "point": "string",
    "seed": "int64",
    "theirs": "float64",
    "ours": "float64",
}
"""Of a file, in the figure's unit; `theirs` is NaN where nothing was published, `variant` empty as was chosen."""
Floats = NDArray[np.float64]
EXPERIMENT, QUICK, CODE = "specsim_experiment", "specsim_quick", "specsim_code"


class ComparedFigure(NamedTuple):
    """A figure with its rows (`COLUMNS`), whether they are of the short form, and the checksum of the code that ran."""

    experiment: PaperExperiment
    figure: Figure
    rows: DataFrame
    quick: bool
    code: str

    @property
    def chosen(self) -> DataFrame:
        """The rows of what was chosen, without the variants."""
        return self.rows[self.rows["variant"] == AS_CHOSEN]


def compared(experiment: PaperExperiment, figure: Figure, found: Measured, *, quick: bool) -> ComparedFigure:
    """Return the figure's rows from what was `found` of each system and variant."""
    from pandas import DataFrame, concat

    parts = []
    for name, line in figure.lines.items():
        stated = figure.values.get(name, (None,) * len(experiment.axis.points))
        published = {
            point: nan if value is None else value for point, value in zip(experiment.axis.names, stated, strict=True)
        }
        for variant in dict.fromkeys(variant for system, variant in found if system == line.system):
            ours = figure.scale * _measure(figure, line, variant, found)
            rows = ours.rename("ours").reset_index()
            parts.append(rows.assign(variant=variant, line=name, theirs=rows[PLACE].map(published).astype(float)))
    return ComparedFigure(
        experiment, figure, DataFrame(concat(parts, ignore_index=True))[list(COLUMNS)], quick, package_sha256()
    )


def _measure(figure: Figure, line: FigureLine, variant: str, found: Measured) -> Series[float]:
    """Return a line's metric by x, point and seed, or its speedup for the same point and seed."""
    own = _column(line, found[line.system, variant])
    if figure.speedup_over is not None:
        over = found.get((figure.speedup_over, variant), found[figure.speedup_over, AS_CHOSEN])
        own = (_column(line, over) / own).reindex(own.index)
    return own


def _column(line: FigureLine, rows: DataFrame) -> Series[float]:
    return rows[rows[CLASS] == line.of].set_index([X, PLACE, SEED])[line.metric].astype(float)


def by_line(rows: DataFrame) -> tuple[list[str], Floats, list[str], Floats, Floats]:
    """Return lines, xs, the xs' points, `theirs` (lines, xs) and `ours` (lines, seeds, xs), NaN without a row."""
    seeds, row = np.unique(rows[SEED], return_inverse=True)
    xs, column = np.unique(rows[X], return_inverse=True)
    line, lines = rows["line"].factorize()
    theirs, ours = np.full((len(lines), len(xs)), nan), np.full((len(lines), len(seeds), len(xs)), nan)
    theirs[line, column], ours[line, row, column] = rows["theirs"], rows["ours"]
    at = dict(zip(column, rows[PLACE], strict=True))
    return list(lines), xs, [at[place] for place in range(len(xs))], theirs, ours


def means(figure: Figure, rows: DataFrame) -> DataFrame:
    """Return a row per line and point: ``theirs``, ``ours``, ``ours_half_width``, ``seeds`` and ``gap``.

    Ours is the mean of the seeds; the half width is of its 95% interval, NaN for one seed. The gap has the unit of the
    figure's ``gap``, NaN where nothing was published.
    """
    from pandas import DataFrame

    lines, xs, points, theirs, by_seed = by_line(rows)
    seeds, ours = by_seed.shape[1], by_seed.mean(axis=1)
    half = half_width(by_seed.swapaxes(0, 1)) if seeds > 1 else np.full_like(ours, nan)
    places = {"line": np.repeat(lines, len(xs)), X: np.tile(xs, len(lines)), PLACE: points * len(lines)}
    told = {"theirs": theirs, "ours": ours, "ours_half_width": half, "gap": gap_of(figure, theirs, ours)}
    return DataFrame({**places, **{name: each.ravel() for name, each in told.items()}, "seeds": seeds})


def gap_of(figure: Figure, theirs: Any, ours: Any) -> Any:
    """Return ours less theirs, numbers or arrays of them, in the unit of the figure's gap."""
    return ours - theirs if figure.gap == "points" else 100 * (ours - theirs) / theirs


def file_of(folder: Path, figure: Figure) -> Path:
    """Return the Parquet file of a figure."""
    return folder / f"{figure.name}.parquet"


def write_rows(one: ComparedFigure, folder: Path) -> Path:
    """Write a figure's Parquet file, whole or not at all, and return its path."""
    about = {EXPERIMENT: _made_of(one.experiment, one.figure), QUICK: json.dumps(one.quick), CODE: one.code}
    return keep(one.rows.astype(COLUMNS), file_of(folder, one.figure), about)


def is_quick(path: Path) -> bool:
    """Return whether a figure's file holds the short form; false where it does not tell."""
    try:
        return kept(path).attrs.get(QUICK) == "true"
    except SpecsimError:
        return False


def read_rows(experiment: PaperExperiment, figure: Figure, folder: Path) -> ComparedFigure | None:
    """Return a figure's rows as they were written, None where there is no file.

    Raises
    ------
    SpecsimError
        When the file is damaged, or the experiment has changed since it was written.
    """
    path = file_of(folder, figure)
    if not path.is_file():
        return None
    rows = kept(path)
    about, rows.attrs = rows.attrs, {}
    if list(rows) != list(COLUMNS) or EXPERIMENT not in about:
        raise SpecsimError(f"{path}: is not a figure's file; expected one that studies.reproduction wrote")
    if about[EXPERIMENT] != _made_of(experiment, figure):
        cure = f"`python -m studies.reproduction {experiment.name}` makes it anew"
        raise SpecsimError(f"{path}: {experiment.file} has changed since it was written; {cure}")
    return ComparedFigure(experiment, figure, rows, about[QUICK] == "true", about[CODE])


def _made_of(experiment: PaperExperiment, figure: Figure) -> str:
    """Return a checksum of all that the rows of a figure are made of; prose and claims are left out."""
    words = {name: experiment.systems[name] for name in sorted(figure.systems)}
    axis = [(each.name, each.x, each.words) for each in experiment.axis.points]
    quick = [experiment.quick.points, experiment.quick.requests]
    lines = [(name, line.system, line.metric, line.of) for name, line in figure.lines.items()]
    ranges = [(sorted(each.systems), each.points, dict(each.variants)) for each in experiment.ranges]
    told: list[Any] = [experiment.common, words, axis, experiment.seeds, quick, lines, ranges]
    told += [figure.scale, figure.gap, figure.speedup_over, dict(figure.values)]
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
