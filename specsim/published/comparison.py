"""Theirs against ours, a row per system and value of the axis; one small Parquet file a figure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from specsim.errors import SpecsimError
from specsim.published.experiment import Experiment, Figure
from specsim.published.running import X
from specsim.results.seeds import over_seeds
from specsim.results.staging import remove, staging_path
from specsim.results.sweep_table import SEED

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = {
    "system": "string",
    "x": "float64",
    "theirs": "float64",
    "ours": "float64",
    "ours_half_width": "float64",
    "seeds": "int64",
    "gap": "float64",
}
"""Of a file: the figure's unit but for `gap`, which has that of the figure's ``gap``; the half width is of a 95%
interval over seeds, NaN for one seed. `theirs` and `gap` are NaN where nothing was published."""
EXPERIMENT, QUICK = b"specsim_experiment", b"specsim_quick"


class Compared(NamedTuple):
    """A figure with its rows (`COLUMNS`), and whether they are of the short form."""

    experiment: Experiment
    figure: Figure
    rows: DataFrame
    quick: bool


def compared(experiment: Experiment, figure: Figure, found: Mapping[str, DataFrame], *, quick: bool) -> Compared:
    """Return the figure's rows from what was `found` of each system: its runs' ``x``, ``seed`` and metric."""
    from pandas import DataFrame

    rows = []
    for system, theirs in figure.values.items():
        numbers = (nan if value is None else value for value in theirs)
        published = dict(zip(experiment.axis.values, numbers, strict=True))
        means = over_seeds(_measure(figure, system, found), figure.metric, [X])
        columns = (means[name].tolist() for name in (X, "mean", "half_width", "count"))
        for x, mean, half_width, seeds in zip(*columns, strict=True):
            ours = figure.scale * mean
            gap = gap_of(figure, published[x], ours)
            rows.append((system, x, published[x], ours, figure.scale * half_width, seeds, gap))
    return Compared(experiment, figure, DataFrame(rows, columns=list(COLUMNS)), quick)


def _measure(figure: Figure, system: str, found: Mapping[str, DataFrame]) -> DataFrame:
    """Return ``x``, ``seed`` and the figure's metric of a system, or its speedup for the same x and seed."""
    own = found[system].set_index([X, SEED])[figure.metric]
    if figure.speedup_over is not None:
        own = found[figure.speedup_over].set_index([X, SEED])[figure.metric] / own
    return own.reset_index()


def gap_of(figure: Figure, theirs: float, ours: float) -> float:
    """Return ours less theirs, in the unit of the figure's gap."""
    return ours - theirs if figure.gap == "points" else 100 * (ours - theirs) / theirs


def file_of(folder: Path, figure: Figure) -> Path:
    """Return the Parquet file of a figure."""
    return folder / f"{figure.name}.parquet"


def write_rows(one: Compared, folder: Path) -> Path:
    """Write a figure's Parquet file, whole or not at all, and return its path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    told = {EXPERIMENT: _made_of(one.experiment, one.figure), QUICK: json.dumps(one.quick)}
    schema = pa.schema([pa.field(name, pa.type_for_alias(kind)) for name, kind in COLUMNS.items()], metadata=told)
    arrays = [pa.array(one.rows[name].tolist(), pa.type_for_alias(kind)) for name, kind in COLUMNS.items()]
    path, partial = file_of(folder, one.figure), staging_path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), partial, compression="zstd")
        partial.replace(path)
    except OSError as error:
        raise SpecsimError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        remove(partial)
    return path


def read_rows(experiment: Experiment, figure: Figure, folder: Path) -> Compared | None:
    """Return a figure's rows as they were written, None where there is no file.

    Raises
    ------
    SpecsimError
        When the file is damaged, or the experiment has changed since it was written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = file_of(folder, figure)
    if not path.is_file():
        return None
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise SpecsimError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None
    told = table.schema.metadata or {}
    if table.column_names != list(COLUMNS) or EXPERIMENT not in told:
        raise SpecsimError(f"{path}: is not a figure's file; expected one that `specsim reproduce` wrote")
    if told[EXPERIMENT].decode() != _made_of(experiment, figure):
        cure = f"`specsim reproduce {experiment.name}` makes it anew"
        raise SpecsimError(f"{path}: {experiment.file} has changed since it was written; {cure}")
    return Compared(experiment, figure, table.to_pandas(), told[QUICK] == b"true")


def _made_of(experiment: Experiment, figure: Figure) -> str:
    """Return a checksum of all that the rows of a figure are made of; prose is left out."""
    words = {name: experiment.systems[name] for name in figure.values}
    axis = [experiment.axis.key, experiment.axis.values, experiment.seeds]
    quick = [experiment.quick.values, experiment.quick.requests]
    told = [experiment.common, words, axis, quick, figure.metric, figure.scale, figure.gap, dict(figure.values)]
    told += [] if figure.speedup_over is None else [figure.speedup_over, experiment.systems[figure.speedup_over]]
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
