"""The runs behind an experiment's figures: a sweep a system, stored, so that only what is missing runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from specsim.config.configured import from_words
from specsim.errors import SpecsimError, nearest
from specsim.metrics.sweep_table import CLASS, RUN, SEED
from specsim.runs.plan import PlannedRun, checked, plan
from specsim.runs.sweep import run_all
from studies.reproduction.experiment import REQUESTS, PaperExperiment, Point, key_of
from studies.reproduction.figure import Figure

if TYPE_CHECKING:
    from pandas import DataFrame

Say = Callable[[str], object]
X, PLACE = "x", "point"
AS_CHOSEN = ""
"""The variant of the runs that the figures draw."""
STAND_INS = ("surrogate", "toy")
"""Traces that ship in a published one's place: another workload, of which a paper's figure says nothing."""


class RunBatch(NamedTuple):
    """Runs of one system: its words in one variant, at some points, under some seeds."""

    system: str
    variant: str
    words: tuple[str, ...]
    points: tuple[Point, ...]
    seeds: tuple[int, ...]


Measured = dict[tuple[str, str], "DataFrame"]
"""By system and variant, a row per run and SLO class: ``x``, ``point``, ``seed``, ``slo_class`` and every measure."""


def batches(experiment: PaperExperiment, *, quick: bool) -> Iterator[RunBatch]:
    """Yield what an experiment runs: every system, then the variants of its ranges, which have one seed.

    Parameters
    ----------
    quick : the experiment's short form, without ranges.
    """
    short = (f"{REQUESTS}={experiment.quick.requests}",) if quick else ()
    chosen = experiment.quick.points if quick else experiment.axis.names
    points = tuple(each for each in experiment.axis.points if each.name in chosen)
    seeds = experiment.seeds[:1] if quick else experiment.seeds
    for system, own in experiment.systems.items():
        yield RunBatch(system, AS_CHOSEN, _instead((*experiment.common, *own), short), points, seeds)
    for each in () if quick else experiment.ranges:
        points = tuple(point for point in experiment.axis.points if point.name in each.points)
        for (variant, more), system in ((pair, name) for pair in each.variants.items() for name in each.systems):
            words = _instead((*experiment.common, *experiment.systems[system]), more)
            yield RunBatch(system, variant, words, points, experiment.seeds[:1])


def _instead(words: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    """Return the words with `more`, which stand in place of those with the same keys."""
    keys = set(map(key_of, more))
    return (*(word for word in words if key_of(word) not in keys), *more)


def measured(
    experiment: PaperExperiment, root: Path, *, quick: bool, jobs: int = 1, say: Say = lambda _: None
) -> Measured:
    """Return what the runs of an experiment measured; runs that are missing in `root` run.

    Every point is checked before the first one runs.

    Parameters
    ----------
    quick : the experiment's short form, which may also run on the traces that ship. jobs : processes.
    say : hears of each system.

    Raises
    ------
    SpecsimError
        One line when a word is wrong, a published trace is missing, a run fails, or a metric is no column.
    """
    ready = [(each, _checked(experiment, each, quick=quick)) for each in batches(experiment, quick=quick)]
    found = {}
    for place, (batch, those) in enumerate(ready, 1):
        told = " at ".join(filter(None, (batch.system, batch.variant)))
        say(f"{experiment.name}: {told} ({place} of {len(ready)}), {len(those)} runs")
        found[batch.system, batch.variant] = _rows(experiment, batch, those, root, jobs, say)
    return found


def _checked(experiment: PaperExperiment, batch: RunBatch, *, quick: bool) -> list[PlannedRun]:
    """Return a system's points, checked: the axis outside, the seeds inside."""
    where = f"{experiment.file}: systems.{batch.system}"
    found: list[PlannedRun] = []
    for point in batch.points:
        words = [*_instead(batch.words, point.words), f"{SEED}={','.join(map(str, batch.seeds))}"]
        try:
            found += checked(from_words(words, sweep=True))
        except SpecsimError as error:
            raise SpecsimError(f"{where}: {error}") from None
        if len(found) % len(batch.seeds) or len(found) > len(batch.points) * len(batch.seeds):
            raise SpecsimError(f"{where}: a setting has several values; expected one, as only the axis has several")
    for each in () if quick else found:
        source = each.prepared().source
        if source.origin in STAND_INS:
            cure = "expected the published trace in $SPECSIM_DATA (`specsim trace fetch`), or --quick"
            raise SpecsimError(f"{where}: only the shipped {source.origin} of trace={source.name} is there; {cure}")
    # What was prepared is let go: the systems of an experiment together could hold gigabytes.
    return [each.but(experiment=None) for each in found]


def _rows(
    experiment: PaperExperiment, batch: RunBatch, points: Sequence[PlannedRun], root: Path, jobs: int, say: Say
) -> DataFrame:
    planned = plan(points, root)
    runs = run_all(planned, progress=True, jobs=jobs)
    for note in runs.whole_notes:
        say(f"note: {note}")
    where = f"{experiment.file}: systems.{batch.system}"
    if runs.failures:
        first = runs.failures[0]
        raise SpecsimError(f"{where}: {len(runs.failures)} of {len(planned)} runs failed, the first: {first.error}")
    at = [(point.x, point.name, seed) for point in batch.points for seed in batch.seeds]
    table = runs.table.drop(columns=[SEED, PLACE])
    order = {name: place for place, name in enumerate(dict.fromkeys(table[RUN]))}
    rows = table[RUN].map(order)
    told = {name: [at[row][place] for row in rows] for place, name in enumerate((X, PLACE, SEED))}
    return table[[CLASS, *_wanted(experiment, batch, table)]].assign(**told)


def _wanted(experiment: PaperExperiment, batch: RunBatch, table: DataFrame) -> list[str]:
    """Return the columns that the figures show of a system; each of them holds a number in each run."""
    found: dict[str, None] = {}
    for figure in experiment.figures:
        for metric, of in sorted(_shown(figure, batch.system)):
            where = f"{experiment.file}: figures.{figure.name}.metric: {metric}"
            rows = table[table[CLASS] == of]
            if rows.empty:
                raise SpecsimError(f"{where}: no class {of}{nearest(of, table[CLASS].unique())}")
            if metric not in table:
                raise SpecsimError(f"{where}: no column of a sweep's table{nearest(metric, table.columns)}")
            try:
                numbers = rows[metric].astype(float)
            except (TypeError, ValueError):
                raise SpecsimError(f"{where}: holds no numbers; expected a measure such as slo_attainment") from None
            if numbers.isna().any():
                missing = f"missing in {int(numbers.isna().sum())} of {len(numbers)} runs"
                raise SpecsimError(f"{where}: {missing}; expected it in each")
            found[metric] = None
    return list(found)


def _shown(figure: Figure, system: str) -> set[tuple[str, str]]:
    """Return metric and class of the lines that need a system's runs."""
    over = system == figure.speedup_over
    return {(line.metric, line.of) for line in figure.lines.values() if over or line.system == system}
