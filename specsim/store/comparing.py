"""Two runs, two sweeps, or a run and a benchmark: the settings in which they differ, and their numbers side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pandas import DataFrame

from specsim.calibration.benchmarks import BENCH, RATE, results, speculation_of
from specsim.core.request import Floats
from specsim.errors import SpecsimError
from specsim.metrics.seeds import HALF, over_seeds, paired_difference, with_partner
from specsim.metrics.statistics import BATCHES, mean_half_width
from specsim.metrics.sweep_table import ALL, CLASS, SEED, SweptRun, differing, sweep_table, values_of
from specsim.metrics.tables import stand_ins, stand_ins_of
from specsim.store.runs import read_run
from specsim.store.scan import swept
from specsim.store.sweeps import holds_runs, load_sweep
from specsim.workload.readers import content

SIDE, SIDES = "side", ("A", "B")
LOAD, DRAFTS = ("concurrency", "rps"), "spec_decode_num_drafts"
OF_REQUESTS = ("trace", "seed", "requests", "slo")
"""Settings, with all below them, under which two runs have the same requests."""
SERVED = {
    "requests/s": ("request_throughput", ""),
    "output tokens/s": ("output_throughput", ""),
    "mean TTFT, ms": ("mean_ttft_ms", "ttft_s"),
    "p99 TTFT, ms": ("p99_ttft_ms", ""),
    "mean TPOT, ms": ("mean_tpot_ms", "tpot_s"),
    "p99 TPOT, ms": ("p99_tpot_ms", ""),
    "mean E2E, ms": ("mean_e2el_ms", "e2el_s"),
    "p99 E2E, ms": ("p99_e2el_ms", ""),
    "acceptance length": ("spec_decode_acceptance_length", ""),
}
"""By label the key of a result of `vllm bench serve`, and the requests' column that it is the mean of."""
OF_SWEEPS = {
    "attained, %": ("slo_attainment", 100.0),
    "worst class, %": ("worst_class_attainment", 100.0),
    "goodput, tokens/s": ("slo_goodput_tokens_per_s", 1.0),
    "mean TTFT, ms": ("mean_ttft_s", 1000.0),
    "mean TPOT, ms": ("mean_tpot_s", 1000.0),
    "p99 E2E, ms": ("p99_e2el_s", 1000.0),
}
"""By label the measure of a sweep's table, and its factor."""


class ComparedRun(NamedTuple):
    """The settings and metrics of a run or a benchmark, and a row for each request, None where they are not kept."""

    settings: Mapping[str, Any]
    metrics: Mapping[str, Any]
    requests: DataFrame | None


class Difference(NamedTuple):
    """The point of a number, its label, both values, the difference B - A, and half its interval (NaN: none)."""

    point: tuple[str, ...]
    label: str
    one: float
    other: float
    difference: float
    half_width: float = nan


class Compared(NamedTuple):
    """Settings that differ as (key, A's, B's), the keys of points, their numbers, and a line about the intervals.

    `stand_ins` has a note for each trace that ships in the place of another.
    """

    settings: list[tuple[str, Any, Any]]
    keys: list[str]
    rows: list[Difference]
    said: str
    stand_ins: list[str]


def compared(one: Path, other: Path) -> Compared:
    """Return two places side by side: folders of runs or of sweeps, or results of benchmarks.

    Raises
    ------
    SpecsimError
        When a place is none of these, or a sweep is beside something else.
    """
    sweeps = [place for place in (one, other) if place.is_dir() and holds_runs(place)]
    if len(sweeps) == 1:
        raise SpecsimError(f"{sweeps[0]} is a sweep, the other is none; expected two, or two runs or benchmarks")
    if not sweeps:
        runs = {place: _run(place) for place in (one, other) if not place.is_file()}
        like = next(iter(runs.values()), None)
        return compare_served(*(runs.get(place) or _benchmark(place, like) for place in (one, other)))
    loaded = [load_sweep(place) for place in sweeps]
    return compare_runs(*([swept(*each) for each in zip(found.names, found, strict=False)] for found in loaded))


def _run(folder: Path) -> ComparedRun:
    run = read_run(folder)
    return ComparedRun(swept(folder.name, run).settings, run.metrics, run.requests)


def _benchmark(file: Path, like: ComparedRun | None) -> ComparedRun:
    """Return the result in a file; of several, the one with the load of a run and with drafts where the run has."""
    found = results(content(file))
    held = f"{len(found)} results" if found else "no result of a benchmark"
    if len(found) > 1 and like is not None:
        load, drafts = {key: like.settings.get(key) for key in LOAD}, bool(like.metrics.get(DRAFTS))
        found = [each for each in found if _load(each) == load and bool(speculation_of(each)) is drafts]
        held = f"{held}, {len(found)} with the load of the run"
    if len(found) != 1:
        raise SpecsimError(f"{file}: {held}; expected one, as of `vllm bench serve`, a run or a sweep")
    return ComparedRun(_load(found[0]), found[0], _requests(found[0]))


def _load(result: Mapping[str, Any]) -> dict[str, Any]:
    rate = result.get(RATE)
    return dict(zip(LOAD, (result.get(BENCH), None if rate in (inf, "inf") else rate), strict=True))


def _requests(result: Mapping[str, Any]) -> DataFrame | None:
    """Return the requests of a detailed result in order of their start."""
    names = {"prompt_tokens": "input_lens", "output_tokens": "output_lens", "ttft_s": "ttfts"}
    columns = {name: result.get(key) for name, key in names.items()}
    if not all(isinstance(each, list) for each in columns.values()):
        return None
    table = DataFrame(columns)
    if isinstance(result.get("itls"), list):
        decode_s = np.array([sum(each) for each in result["itls"]])
        table["tpot_s"] = decode_s / (table["output_tokens"] - 1).where(table["output_tokens"] > 1)
        table["e2el_s"] = table["ttft_s"] + decode_s
    if isinstance(result.get("start_times"), list):
        table = table.iloc[np.argsort(result["start_times"], kind="stable")]
    return table[table["output_tokens"] > 0]


def compare_served(one: ComparedRun, other: ComparedRun) -> Compared:
    """Return two runs or benchmarks side by side; differences have intervals where their requests are the same.

    An interval is of batch means of the differences by request, since neighbours wait together.

    Raises
    ------
    SpecsimError
        When a side served no request.
    """
    idle = [name for name, side in zip(SIDES, (one, other), strict=True) if side.metrics.get("completed") == 0]
    if idle:
        raise SpecsimError(f"nothing ran in {' and '.join(idle)}: every request was rejected or cancelled")
    settings = _differing(one, other)
    pairs = _pairs(one, other, [key for key, _, _ in settings])
    first, second = _numbers(one), _numbers(other)
    rows = []
    for label, (a, *of) in ((label, each) for label, each in first.items() if label in second):
        b, half = second[label][0], nan if pairs is None else _half_width(*pairs, *of)
        rows.append(Difference((), label, a, b, b - a, half))
    said = "the requests are not the same: differences have no intervals"
    if pairs is not None:
        said = f"{len(pairs[0]):,} requests are the same: 95% intervals of differences by request (batch means)"
    return Compared(settings, [], rows, said, stand_ins(each.metrics.get("specsim", {}) for each in (one, other)))


def _differing(one: ComparedRun, other: ComparedRun) -> list[tuple[str, Any, Any]]:
    """Return the settings that differ; of two runs those that no other implies, of a benchmark those that it has."""
    sides = one, other
    if all("specsim" in side.metrics for side in sides):
        rows = (
            SweptRun(name, side.settings, None, None, side.metrics) for name, side in zip(SIDES, sides, strict=True)
        )
        keys = [*differing(sweep_table(rows)), SEED]
    else:
        rates = [side.settings.get("rps") for side in sides]
        keys = list(LOAD[:1] if None in rates else LOAD)
    both = [(key, one.settings.get(key), other.settings.get(key)) for key in keys]
    return [each for each in both if each[1] != each[2]]


def _pairs(one: ComparedRun, other: ComparedRun, differ: Sequence[str]) -> tuple[DataFrame, DataFrame] | None:
    """Return both sides' requests where they are the same, in one order."""
    first, second = one.requests, other.requests
    if first is None or second is None or any(key.partition(".")[0] in OF_REQUESTS for key in differ):
        return None
    return (first, second) if np.array_equal(first["prompt_tokens"], second["prompt_tokens"]) else None


def _numbers(side: ComparedRun) -> dict[str, tuple[float, str, str]]:
    """Return by label a value, the requests' column that it is the mean of ("": none), and their class ("": all)."""
    found = {}
    if (block := side.metrics.get("specsim")) is not None:
        found["attained, %"] = 100 * block["slo_attainment"], "slo_ok", ""
        for name, part in block["classes"].items() if len(block["classes"]) > 1 else ():
            found[f"attained, {name}, %"] = 100 * part["slo_attainment"], "slo_ok", name
        found["goodput, tokens/s"] = block["slo_goodput_tokens_per_s"] or 0.0, "", ""
    measured = {label: (side.metrics.get(key), column, "") for label, (key, column) in SERVED.items()}
    return found | {label: each for label, each in measured.items() if isinstance(each[0], int | float)}


def _half_width(one: DataFrame, other: DataFrame, column: str, of_class: str) -> float:
    """Return half the 95% interval of a column's mean difference, in % or ms, by batches of requests in their order.

    NaN where a side lacks the column, or too few requests have it.
    """
    if column not in one or column not in other:
        return nan
    both: Floats = other[column].to_numpy(float) - one[column].to_numpy(float)
    if of_class:
        both = both[(one[CLASS] == of_class).to_numpy()]
    both = both[~np.isnan(both)] * (1000.0 if column.endswith("_s") else 100.0)
    return mean_half_width(both) if len(both) >= BATCHES else nan


def compare_runs(one: Sequence[SweptRun], other: Sequence[SweptRun]) -> Compared:
    """Return two sweeps side by side, point by point, with differences paired by seed.

    Settings that have no value in common are compared; the points of both sides share the others.

    Raises
    ------
    SpecsimError
        When a side has several values of a setting that the other does not share, or no point is on both sides.
    """
    tagged = [
        run._replace(name=f"{side} {run.name}", settings={**run.settings, SIDE: side})
        for side, runs in zip(SIDES, (one, other), strict=True)
        for run in runs
    ]
    table = sweep_table(tagged)
    table = table[table[CLASS] == ALL]
    settings, keys = [], []
    for key in (each for each in differing(table) if each != SIDE):
        first, second = (values_of(table[table[SIDE] == side], key) for side in SIDES)
        if set(first) & set(second):
            keys.append(key)
        elif len(first) == len(second) == 1:
            settings.append((key, first[0], second[0]))
        else:
            said = f"A has {key} {', '.join(map(str, first))}, B {', '.join(map(str, second))}"
            raise SpecsimError(f"{said}: expected one value on each side, or values that both share")
    table = table.drop(columns=[key for key, _, _ in settings])
    pairs = with_partner(table, "A", keys, of=SIDE)
    pairs = pairs[pairs.set_index([*keys, SEED]).index.duplicated(keep=False)] if len(pairs) else pairs
    if pairs.empty:
        raise SpecsimError(f"no point is in both sweeps with one seed; expected the same {', '.join([*keys, SEED])}")
    left = len(table) - len(pairs)
    said = f"differences are paired by seed, with 95% intervals{f'; {left} runs have no partner' if left else ''}"
    return Compared(settings, keys, list(_paired_rows(pairs, keys)), said, stand_ins_of(pairs))


def _paired_rows(pairs: DataFrame, keys: Sequence[str]) -> Iterator[Difference]:
    for label, (measure, factor) in OF_SWEEPS.items():
        if measure not in pairs or pairs[measure].isna().any():
            continue
        means = over_seeds(pairs, measure, [SIDE, *keys])
        apart = paired_difference(pairs, measure, "A", keys, of=SIDE)
        for place in range(len(apart)):
            found = apart.iloc[place]
            one, other = (factor * means[means[SIDE] == side]["mean"].iloc[place] for side in SIDES)
            point = tuple(str(found[key]) for key in keys)
            yield Difference(point, label, one, other, factor * found["mean"], factor * found[HALF])
