"""The runs behind an experiment's figures: a sweep a system, stored, so that only what is missing runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.errors import SpecsimError, nearest
from specsim.published.experiment import REQUESTS, Experiment, Figure, key_of
from specsim.results.sweep_table import ALL, CLASS, SEED
from specsim.runs.plan import Checked, checked, plan
from specsim.runs.prepare import prepare
from specsim.runs.sweep import run_all
from specsim.settings.configured import from_words

if TYPE_CHECKING:
    from pandas import DataFrame, Series

Say = Callable[[str], object]
X = "x"
STAND_INS = ("twin", "toy")
"""Traces that ship in a published one's place: another workload, of which a paper's figure says nothing."""


def measured(experiment: Experiment, root: Path, *, quick: bool, say: Say = lambda _: None) -> dict[str, DataFrame]:
    """Return by system a row per run: ``x``, ``seed`` and the figures' metrics; runs that are missing in `root` run.

    Every point is checked before the first one runs.

    Parameters
    ----------
    quick : the experiment's short form, which may also run on the traces that ship. say : hears of each system.

    Raises
    ------
    SpecsimError
        One line when a word is wrong, a published trace is missing, a run fails, or a metric is no column.
    """
    points = {system: _points(experiment, system, quick=quick) for system in experiment.systems}
    found = {}
    for place, (system, those) in enumerate(points.items(), 1):
        say(f"{experiment.name}: {system} ({place} of {len(points)}), {len(those)} runs")
        found[system] = _rows(experiment, system, those, root, say)
    return found


def _points(experiment: Experiment, system: str, *, quick: bool) -> list[Checked]:
    """Return a system's points, checked: the axis outside, the seeds inside."""
    values = experiment.quick.values if quick else experiment.axis.values
    seeds = experiment.seeds[:1] if quick else experiment.seeds
    words = [*experiment.common, *experiment.systems[system]]
    if quick:
        short = f"{REQUESTS}={experiment.quick.requests}"
        words = [*(word for word in words if key_of(word) != REQUESTS), short]
    words += [f"{key}={','.join(map(str, each))}" for key, each in ((experiment.axis.key, values), (SEED, seeds))]
    where = f"{experiment.file}: systems.{system}"
    try:
        points = checked(from_words(words, sweep=True))
    except SpecsimError as error:
        raise SpecsimError(f"{where}: {error}") from None
    if len(points) != len(values) * len(seeds):
        raise SpecsimError(f"{where}: a setting has several values; expected one, as only the axis has several")
    if not quick:
        for each in points:
            source = (each.experiment or prepare(each.config)).source
            if source.origin in STAND_INS:
                cure = "expected the published trace in $SPECSIM_DATA (`specsim trace fetch`), or --quick"
                raise SpecsimError(f"{where}: only the shipped {source.origin} of trace={source.name} is there; {cure}")
    # What was prepared is let go: the systems of an experiment together could hold gigabytes.
    return [each._replace(experiment=None) for each in points]


def _rows(experiment: Experiment, system: str, points: Sequence[Checked], root: Path, say: Say) -> DataFrame:
    from pandas import DataFrame

    planned = plan(points, root)
    runs = run_all(planned, progress=True)
    for note in runs.notes:
        say(f"note: {note}")
    where = f"{experiment.file}: systems.{system}"
    if runs.failures:
        first = runs.failures[0]
        raise SpecsimError(f"{where}: {len(runs.failures)} of {len(planned)} runs failed, the first: {first.error}")
    table = runs.table
    whole = table[table[CLASS] == ALL].reset_index(drop=True)
    figures = [each for each in experiment.figures if system in (*each.values, each.speedup_over)]
    kept = {each.metric: _numbers(experiment, each, whole) for each in figures}
    typed = [{key: str(value) for key, value in each.point.items()} for each in points]
    at = {X: [float(each[experiment.axis.key]) for each in typed], SEED: [int(each[SEED]) for each in typed]}
    return DataFrame({**kept, **at})


def _numbers(experiment: Experiment, figure: Figure, table: DataFrame) -> Series[float]:
    """Return the metric of a figure, a number in each run."""
    metric, where = figure.metric, f"{experiment.file}: figures.{figure.name}.metric: {figure.metric}"
    if metric not in table:
        raise SpecsimError(f"{where}: no column of a sweep's table{nearest(metric, table.columns)}")
    try:
        numbers = table[metric].astype(float)
    except (TypeError, ValueError):
        raise SpecsimError(f"{where}: holds no numbers; expected a measure such as slo_attainment") from None
    if numbers.isna().any():
        raise SpecsimError(
            f"{where}: missing in {int(numbers.isna().sum())} of {len(numbers)} runs; expected it in each"
        )
    return numbers
