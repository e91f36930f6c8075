"""Tables of `specsim sweep` and `specsim find`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import floor, isfinite, log10
from typing import TYPE_CHECKING, Any

from specsim.metrics.capacity import LEAST_SEEDS
from specsim.metrics.seeds import point_means
from specsim.metrics.sweep_table import ALL, CLASS, RUN, SEED
from specsim.metrics.tables import ABSENT, WIDTH, aligned, comparison_table, header, in_digits, means_table, shorten
from specsim.runs.plan import PlannedRun
from specsim.search.found import FOOTNOTES
from specsim.store.sweeps import Sweep

if TYPE_CHECKING:
    from specsim.search.found import Found, Line


MOST_SHOWN = 1000
"""Rows of a sweep that the terminal shows."""


def sweep_lines(planned: Sequence[PlannedRun], runs: Sweep, told_of: Sweep, *, each: bool) -> Iterator[str]:
    """Yield a row a point with means over its seeds; where no point has several, or `each` is asked for, a row a run.

    `told_of` are the same runs in any order, whose table may have been made already; it may hold more failures.
    """
    failed = {tuple(one.label.items()) for one in runs.failures}
    fell = [tuple(one.label.items()) in failed for one in planned]
    shown, made = list(zip(planned, fell, strict=True))[:MOST_SHOWN], iter(runs)
    told = [(one.label, None if lost else next(made).metrics) for one, lost in shown]
    points = [_without_seed(one.label) for one in planned]
    if each or len(runs) == 0 or len({tuple(one.items()) for one in points}) == len(points):
        yield from comparison_table(told).split("\n")
        if len(planned) > MOST_SHOWN:
            yield f"{len(planned) - MOST_SHOWN} more runs in table.csv"
        return
    names = iter(runs.names[: len(runs)]), iter(runs.names[len(runs) :])
    place = {next(names[lost]): number for number, lost in enumerate(fell)}
    table = told_of.table
    table = table[(table[CLASS] == ALL) & table[RUN].isin(place)]
    means = point_means(table.iloc[table[RUN].map(place).argsort(kind="stable")])
    labels = [points[place[name]] for name in means[RUN]]
    blocks = [metrics["specsim"] for _, metrics in told if metrics is not None]
    yield from means_table(means[:MOST_SHOWN], labels[:MOST_SHOWN], blocks, "--each prints every run").split("\n")
    if len(means) > MOST_SHOWN:
        yield f"{len(means) - MOST_SHOWN} more points in table.csv"


def _without_seed(label: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in label.items() if key != SEED}


LONGEST_NAME = 24
"""Characters of the first system in the head of a column."""
MOST_DECIMALS = 4
MEAN_AND_INTERVAL = "mean \u00b1 half width of the 95% interval over seeds, at least half the step of tested rates"
UNIT = "requests/s"


def find_table(found: Found) -> Iterator[str]:
    """Yield the lines of the table: a row a system, below them what the marks in it mean.

    Beside each answer stands its difference from that of the first system, paired by seed, and what it is for each GPU
    where the systems differ in their number.
    """
    first, seeds = found.lines[0], len(found.capacity(found.lines[0]).by_seed)
    marks = [found.marks(line) for line in found.lines]
    wide = max(map(len, marks))
    rates = [_answer(found, line) + each.ljust(wide) for line, each in zip(found.lines, marks, strict=True)]
    columns = [[first.keys, "", *(line.values for line in found.lines)], ["rate", UNIT, *rates]]
    if len(found.lines) > 1:
        apart = [_difference(found, line, seeds) for line in found.lines[1:]]
        columns.append([f"difference to {shorten(first.values, LONGEST_NAME)}", UNIT, ABSENT, *apart])
    if len({line.gpus for line in found.lines if line.gpus}) > 1:
        columns.append(["rate per GPU", UNIT, *(_per_gpu(found, line) for line in found.lines)])
    lines = aligned(list(zip(*columns, strict=True)), left=1)
    yield from header(found.stand_ins, WIDTH)
    yield found.title
    yield from (*lines[:2], "-" * max(map(len, lines)), *lines[2:])
    known = [isfinite(found.capacity(line).half_width) for line in found.lines]
    if any(known):
        paired = ", differences paired by seed" if len(found.lines) > 1 else ""
        few, enough = f"mean over {seeds} seeds, too few for an interval", MEAN_AND_INTERVAL
        yield f"{enough if seeds >= LEAST_SEEDS else few}{paired}"
    if not all(known):
        lacks = "a mean" if any(known) and seeds < LEAST_SEEDS else "\u00b1"
        yield f"a rate without {lacks} is the highest tested that keeps the target"
    for mark, meaning in FOOTNOTES.items():
        if any(mark in each for each in marks):
            yield f"{mark} {meaning}"


def _difference(found: Found, line: Line, seeds: int) -> str:
    """Return the difference from the first line, known no better than either rate's step."""
    more, known = found.difference(line)
    steps = [found.capacity(each).half_step for each in (line, found.lines[0])]
    return interval(more, max(known, *steps), "+", seeds)


def _answer(found: Found, line: Line) -> str:
    each = found.capacity(line)
    if isfinite(each.half_width):
        return interval(each.mean, each.known_to, seeds=len(each.by_seed))
    if each.keeps is None:
        return f"below {found.asked.first:g}"
    return f"{each.keeps:.4g}" if each.misses is not None else f"above {each.keeps:.4g}"


def _per_gpu(found: Found, line: Line) -> str:
    each = found.capacity(line)
    rate, above = (each.mean, "") if isfinite(each.half_width) else (each.keeps, "above " * (each.misses is None))
    return ABSENT if rate is None else f"{above}{rate / line.gpus:.4g}"


def interval(mean: float, half_width: float, sign: str = "", seeds: int = LEAST_SEEDS) -> str:
    """Return a mean with half the width of its interval, both with as many decimals as that has two digits.

    Of fewer than `LEAST_SEEDS` the mean has no interval.
    """
    if not isfinite(half_width):
        return ABSENT
    decimals = min(MOST_DECIMALS, max(0, 1 - floor(log10(half_width)))) if half_width else 0
    shown = f"{mean:{sign}.{decimals}f}" if half_width else in_digits(mean, sign)
    return f"{shown} \u00b1 {half_width:.{decimals}f}" if seeds >= LEAST_SEEDS else shown
