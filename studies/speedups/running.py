"""Runs of the study: each series of rows simulated with speculation and without; rows of finished series are kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from profiler.compose.library import version
from specsim.errors import say
from specsim.files.yaml_file import shipped
from studies.report import keep, kept
from studies.speedups.measured import (
    CLOSED,
    STUDY,
    THROUGHPUT,
    TPOT,
    PublishedRow,
    PublishedTree,
    Side,
    data_file,
    measured,
    rows,
)
from studies.speedups.simulated import (
    Measures,
    command,
    compose,
    compose_command,
    composed,
    match_of,
    profile_file,
    ran,
    settings,
)

KEPT = Path("results/speedups/rows.parquet")
SOLVED, FITTED, SCORED, LINE = "solved", "fitted", "scored", "line"
"""A row that gave the acceptance; a row that its engine was fitted to; a predicted row; a point of no row."""
LINE_LOADS = (4, 32)
"""Batches at which the line of a series at two loads or more is predicted, too."""
RATES = (0.25, 0.45, 0.6, 0.75, 0.85)
"""Conditional rates between which the length of a tree is interpolated."""
LEAST_RATE, MOST_RATE, ERROR = 0.01, 0.99, 3e-3
"""Bounds of the conditional rate of a draft, and the relative error of what it is solved for."""


def rate_of(row: PublishedRow, side: Side, trees: Mapping[PublishedTree, Sequence[float]]) -> float:
    """Return the conditional rate of a side's drafts: stated, of the length, or of the speed-up at batch 1.

    `trees` holds the lengths of shapes at `RATES`.
    """
    if side.length is None and row.rate is not None:
        return row.rate
    if side.length is None:
        assert row.speedup is not None
        return solved(lambda rate: speedup_of(row, 1.0, rate), row.speedup)
    if side.shape.topk == 1:
        depths = range(1, side.shape.steps + 1)
        return solved(lambda rate: 1 + match_of(row, side, rate) * sum(rate**depth for depth in depths), side.length)
    return round(float(np.interp(side.length, trees[side.shape], RATES)), 4)


def tree_lengths(row: PublishedRow) -> list[float]:
    """Return the tokens that a verification of a row's tree yields at `RATES`."""
    return [ran(settings(row, row.side, 1.0, rate)).length for rate in RATES]


def speedup_of(row: PublishedRow, load: float, rate: float) -> float:
    """Return the predicted speed-up of a row's side over no speculation at a load."""
    both = [ran(settings(row, side, load, rate)) for side in (row.side, None)]
    return _ratio(row, *both)


def solved(function: Callable[[float], float], wanted: float) -> float:
    """Return the rate at which a rising function has a value: Newton's secants from 0.5 and 0.7, within the bounds."""

    def clipped(rate: float) -> float:
        return float(np.clip(rate, LEAST_RATE, MOST_RATE))

    before, rate = 0.5, 0.7
    error_before, error = function(before) - wanted, function(rate) - wanted
    for _ in range(6):
        if abs(error) < ERROR * wanted or error == error_before:
            break
        following = clipped(rate - error * (rate - before) / (error - error_before))
        before, error_before, rate = rate, error, following
        error = function(rate) - wanted
    return round(rate, 4)


def _ratio(row: PublishedRow, fast: Measures, slow: Measures) -> float:
    """Return how much faster the first is, by the row's quantity."""
    if row.quantity == THROUGHPUT:
        return fast.throughput / slow.throughput
    return slow.of(row) / fast.of(row) if row.metric != "tok/s/user" else fast.of(row) / slow.of(row)


def series_rows(those: Sequence[PublishedRow], trees: Mapping[PublishedTree, Sequence[float]]) -> list[dict[str, Any]]:
    """Return what a series predicts: a mapping for each row, and for each further point of its line."""
    first = min(those, key=lambda row: (row.load, row.quantity != TPOT))
    rates = [rate_of(first, side, trees) for side in (first.side, first.against) if side is not None]
    solving = first.side.length is None and first.rate is None
    loads = {row.load for row in those}
    role = FITTED if first.fitted else SCORED
    found = [_predicted(row, rates, SOLVED if solving and _gave(row, first) else role) for row in those]
    if len(loads) > 1 and first.kind == CLOSED and first.against is None:
        found += [_predicted(first.at(load), rates, LINE) for load in LINE_LOADS if load not in loads]
    return found


def _gave(row: PublishedRow, first: PublishedRow) -> bool:
    """Return whether a row says no more than the one that gave the acceptance: its load, and not throughput."""
    return row.load == first.load and (row.kind == CLOSED or row.quantity not in (THROUGHPUT, "TTFT"))


def _predicted(row: PublishedRow, rates: Sequence[float], role: str) -> dict[str, Any]:
    both = [
        settings(row, row.side, row.load, rates[0]),
        settings(row, row.against, row.load, rates[-1] if row.against else None),
    ]
    fast, slow = map(ran, both)
    return {
        **row.told(),
        "role": role,
        "rate": rates[0],
        "length": fast.length,
        "predicted_with": fast.of(row),
        "predicted_without": slow.of(row),
        "predicted": _ratio(row, fast, slow),
        "compose": compose_command(composed(row, row.side)),
        "command": command(both[0]),
        "command_without": command(both[1]),
    }


def run(jobs: int) -> None:
    """Run what the kept rows lack, and keep each series as it ends."""
    from joblib import Parallel, delayed
    from pandas import DataFrame, concat

    found, reasons = rows(measured())
    about_them = {"made_of": _made_of(), "left_out": json.dumps(reasons)}
    table = kept(KEPT) if KEPT.is_file() else DataFrame()
    if table.attrs.get("made_of") != about_them["made_of"]:
        table = DataFrame()
    have = set() if table.empty else set(table["line"])
    ordered = sorted(found, key=lambda row: (row.side.shape.tokens, str(row.series)))
    series = [list(each) for _, each in groupby(ordered, key=lambda row: row.series)]
    wanted = [each for each in series if each[0].line not in have]
    for arguments in _profiles([row for each in wanted for row in each]):
        compose(arguments)
    shapes = {each[0].side.shape: each[0] for each in wanted if each[0].side.shape.topk > 1 and each[0].side.length}
    say(f"lengths of {len(shapes)} shapes of trees")
    lengths = Parallel(jobs)(delayed(tree_lengths)(row) for row in shapes.values())
    trees = dict(zip(shapes, lengths, strict=True))
    tasks = (delayed(series_rows)(each, trees) for each in wanted)
    for place, new in enumerate(Parallel(jobs, return_as="generator_unordered")(tasks), 1):
        say(f"{place} of {len(wanted)}: lines {', '.join(str(each['line']) for each in new if each['line'])}")
        table = concat([table, DataFrame(new)], ignore_index=True)
        keep(table, KEPT, about_them)
    order = ["line", "source", "version", "target", "drafter", "shape", "dataset", "load", "metric"]
    table = table.sort_values(order, ignore_index=True)
    table.attrs = {key: value for key, value in about_them.items()}
    keep(table, KEPT, about_them)


def _profiles(found: Sequence[PublishedRow]) -> Iterator[Mapping[str, Any]]:
    """Yield the arguments of every profile that rows need, each once."""
    sides = ((row, side) for row in found for side in (row.side, row.against) if side is not None)
    yield from {profile_file(each): each for each in (composed(row, side) for row, side in sides)}.values()


def _made_of() -> str:
    """Return a checksum of what the rows depend on: measurements, facts, engines, code and the library's version."""
    package = shipped("conf").parent
    facts = {key: value for key, value in STUDY.items() if key not in ("short", "reasons")}
    files = [data_file()]
    for folder, pattern in (("conf/engine", "*.yaml"), ("specsim", "**/*.py"), ("profiler/compose", "*.py")):
        files += sorted((package / folder).glob(pattern))
    digest = hashlib.sha256(f"{version()} {json.dumps(facts)}".encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()
