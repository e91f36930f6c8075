"""The runs behind an experiment's figures: a sweep a system, stored, so that only what is missing runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.errors import SpecsimError, nearest
from specsim.published.experiment import Experiment
from specsim.results.sweep_table import ALL, CLASS, SEED
from specsim.runs.plan import Checked, checked, plan
from specsim.runs.prepare import prepare
from specsim.runs.sweep import run_all
from specsim.settings.configured import from_words

if TYPE_CHECKING:
    from pandas import DataFrame

X = "x"
STAND_INS = ("twin", "toy")
"""Traces that ship in a published one's place: another workload, of which a paper's figure says nothing."""


def measured(
    experiment: Experiment, root: Path, *, quick: bool, say: Callable[[str], object] = lambda _: None
) -> dict[str, DataFrame]:
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
        found[system] = _rows(experiment, system, those, root)
    return found


def _points(experiment: Experiment, system: str, *, quick: bool) -> list[Checked]:
    """Return a system's points, checked: the axis outside, the seeds inside."""
    values = experiment.quick.values if quick else experiment.axis.values
    seeds = experiment.seeds[:1] if quick else experiment.seeds
    words = [*experiment.common, *experiment.systems[system]]
    words += [f"requests={experiment.quick.requests}"] if quick else []
    words += [
        f"{experiment.axis.key}={','.join(f'{value:g}' for value in values)}",
        f"seed={','.join(map(str, seeds))}",
    ]
    where = f"{experiment.file}: systems.{system}"
    try:
        points = checked(from_words(words, sweep=True))
    except SpecsimError as error:
        raise SpecsimError(f"{where}: {error}") from None
    if len(points) != len(values) * len(seeds):
        raise SpecsimError(
            f"{where}: a setting has several values; expected one, beside those of {experiment.axis.key}"
        )
    if not quick:
        for each in points:
            source = (each.experiment or prepare(each.config)).source
            if source.origin in STAND_INS:
                cure = "expected the published trace in $SPECSIM_DATA (`specsim trace fetch`), or --quick"
                raise SpecsimError(f"{where}: only the shipped {source.origin} of trace={source.name} is there; {cure}")
    return points


def _rows(experiment: Experiment, system: str, points: Sequence[Checked], root: Path) -> DataFrame:
    planned = plan(points, root)
    runs = run_all(planned, progress=True)
    where = f"{experiment.file}: systems.{system}"
    if runs.failures:
        first = runs.failures[0]
        raise SpecsimError(f"{where}: {len(runs.failures)} of {len(planned)} runs failed, the first: {first.error}")
    table = runs.table
    whole = table[table[CLASS] == ALL].reset_index(drop=True)
    metrics = {figure.name: figure.metric for figure in experiment.figures if system in figure.values}
    for name, metric in metrics.items():
        if metric not in whole:
            raise SpecsimError(
                f"{experiment.file}: figures.{name}.metric: no column {metric!r}{nearest(metric, whole)}"
            )
        if whole[metric].isna().any():
            raise SpecsimError(f"{where}: a run has no {metric}; expected a number in each")
    typed: list[Mapping[str, object]] = [each.point for each in points]
    kept = whole[list(dict.fromkeys(metrics.values()))].astype(float)
    return kept.assign(
        **{X: [float(str(each[experiment.axis.key])) for each in typed], SEED: [int(str(each[SEED])) for each in typed]}
    )
