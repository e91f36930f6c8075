"""Two runs, two sweeps, or a run and a benchmark: the settings in which they differ, and their numbers side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, isclose, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pandas import DataFrame

from specsim.calibration.benchmarks import BENCH, RATE, TOTALS, drafted, results, speculation_of
from specsim.core.request import Floats
from specsim.errors import SpecsimError
from specsim.metrics.capacity import LEAST_SEEDS
from specsim.metrics.requests import counted
from specsim.metrics.seeds import HALF, failed_said, over_seeds, paired_difference, with_partner
from specsim.metrics.statistics import BATCHES, mean_half_width
from specsim.metrics.sweep_table import ALL, CLASS, SEED, SweptRun, differing, sweep_table, values_of
from specsim.metrics.tables import in_digits, stand_ins, stand_ins_of
from specsim.store.runs import read_run
from specsim.store.scan import swept
from specsim.store.sweeps import holds_runs, load_sweep
from specsim.workload.columns import number
from specsim.workload.readers import content

SIDE, SIDES = "side", ("A", "B")
LOAD, DRAFTS, DRAFTED = ("concurrency", "rps"), "spec_decode_num_drafts", "spec_decode_draft_tokens"
STATED = (*LOAD, "requests", "mean prompt tokens", "mean output tokens", "draft tokens a step")
"""Keys that a benchmark states of its requests, and a run has done."""
UNTOLD = ("model", "server", "spread of arrivals")
CLOSE = 0.05
"""The relative difference up to which what a run did is what a benchmark states."""
OF_REQUESTS = ("trace", "seed", "requests", "slo")
"""Settings, with all below them, under which two runs have the same requests."""
OTHERS = "the requests are not the same: differences have no intervals"
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
    """The settings and metrics of a run or a benchmark, and a row for each request, None where they are not kept.

    `picked` names the result among several in a file.
    """

    settings: Mapping[str, Any]
    metrics: Mapping[str, Any]
    requests: DataFrame | None
    picked: str = ""


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

    `stand_ins` has a note for each trace that ships in the place of another, `unknown` what a side does not tell, and
    `picked` each side's result among several. `notes` has what is left out of a side's sweep, or makes its runs differ.
    """

    settings: list[tuple[str, Any, Any]]
    keys: list[str]
    rows: list[Difference]
    said: str
    stand_ins: list[str]
    unknown: Sequence[str] = ()
    picked: Sequence[str] = ("", "")
    notes: Sequence[str] = ()


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
    found = compare_runs(*([swept(*each) for each in zip(side.names, side, strict=False)] for side in loaded))
    told = [[*side.whole_notes, *failed_said(len(side.failures), len(side) + len(side.failures))] for side in loaded]
    return found._replace(notes=[f"{name}: {each}" for name, said in zip(SIDES, told, strict=True) for each in said])


def _run(folder: Path) -> ComparedRun:
    run = read_run(folder)
    return ComparedRun(swept(folder.name, run).settings, run.metrics, counted(run.requests, run.metrics))


def _benchmark(file: Path, like: ComparedRun | None) -> ComparedRun:
    """Return the result in a file; of several, the one with the load of a run and with drafts where the run has."""
    found = [ComparedRun(_load(each), each, _requests(each)) for each in results(content(file))]
    held, count = f"{len(found)} results" if found else "no result of a benchmark", len(found)
    if count > 1 and like is not None:
        load, drafts = _stated(like), bool(like.metrics.get(DRAFTS))
        found = [
            each._replace(picked=f", result {place} of {count} ({_told(each.settings)})")
            for place, each in enumerate(found, 1)
            if bool(speculation_of(each.metrics)) is drafts
        ]
        alike = ([each for each in found if _alike(each.settings, load, LOAD, close)] for close in (0.0, CLOSE))
        found = next(filter(None, alike), [])
        held = f"{held}, {len(found)} with the load of the run ({_told(load)}, with{'' if drafts else 'out'} drafts)"
    if len(found) != 1:
        raise SpecsimError(f"{file}: {held}; expected one, as of `vllm bench serve`, a run or a sweep")
    return found[0]


def _told(load: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {in_digits(load[key])}" for key in LOAD if load.get(key) is not None) or "no load"


def _load(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the load that a result states; a rate without a limit is none where clients wait for answers."""
    clients, rate = result.get(BENCH), result.get(RATE)
    clients, rate = number(clients), inf if rate in (inf, "inf") else number(rate)
    if clients is None and rate is None:
        return {}
    return dict(zip(LOAD, (clients, None if clients and rate == inf else rate), strict=True))


def _stated(side: ComparedRun) -> dict[str, float | None]:
    """Return those of `STATED` that a side tells; None: it has none."""
    metrics, found = side.metrics, dict(side.settings)
    if "specsim" in metrics:
        found = {key: side.settings.get(key) for key in LOAD}
        if side.requests is not None and not any(found.values()):
            span_s = float(np.ptp(side.requests["arrival_s"]))
            found["rps"] = (len(side.requests) - 1) / span_s if span_s else inf
    keys = ("completed", *TOTALS.values(), DRAFTS, DRAFTED)
    count, *totals, drafts, tokens = (number(metrics.get(key)) for key in keys)
    if count:
        told = [count, *(None if total is None else total / count for total in totals)]
        found |= {key: value for key, value in zip(STATED[2:], told, strict=False) if value is not None}
    a_step = tokens / drafts if drafts and tokens is not None else drafted(metrics)[0]
    if not (speculates := speculation_of(metrics) is not None) or a_step is not None:
        found[STATED[-1]] = a_step if speculates else None
    return found


def _alike(one: Mapping[str, Any], other: Mapping[str, Any], keys: Sequence[str], close: float) -> bool:
    """Return whether both have the same values; all but clients may be `close`."""
    for key in keys:
        a, b = one.get(key), other.get(key)
        if a != b and (a is None or b is None or not isclose(a, b, rel_tol=0 if key == LOAD[0] else close)):
            return False
    return True


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
    settings, unknown = _differing(one, other)
    pairs = _pairs(one, other, [key for key, _, _ in settings])
    first, second = _numbers(one), _numbers(other)
    rows = []
    for label, (a, *of) in ((label, each) for label, each in first.items() if label in second):
        b, half = second[label][0], nan if pairs is None else _half_width(*pairs, *of)
        rows.append(Difference((), label, a, b, b - a, half))
    said = OTHERS
    if pairs is not None:
        said = f"{len(pairs[0]):,} requests are the same: 95% intervals of differences by request (batch means)"
    shipped = stand_ins(each.metrics.get("specsim", {}) for each in (one, other))
    return Compared(settings, [], rows, said, shipped, unknown, (one.picked, other.picked))


def _differing(one: ComparedRun, other: ComparedRun) -> tuple[list[tuple[str, Any, Any]], list[str]]:
    """Return the settings that differ, and what a side does not tell.

    Of two runs they are those that no other implies, beside a benchmark what it states and the run did.
    """
    sides = one, other
    if all("specsim" in side.metrics for side in sides):
        rows = (
            SweptRun(name, side.settings, None, None, side.metrics) for name, side in zip(SIDES, sides, strict=True)
        )
        keys = [*differing(sweep_table(rows)), SEED]
        both = [(key, one.settings.get(key), other.settings.get(key)) for key in keys]
        return [each for each in both if each[1] != each[2]], []
    first, second = map(_stated, sides)
    shared = [key for key in STATED if key in first and key in second]
    differ = [(key, first[key], second[key]) for key in shared if not _alike(first, second, [key], CLOSE)]
    return differ, [*(key for key in STATED if key not in shared), *UNTOLD]


def _pairs(one: ComparedRun, other: ComparedRun, differ: Sequence[str]) -> tuple[DataFrame, DataFrame] | None:
    """Return both sides' requests where they are the same, in one order."""
    first, second = one.requests, other.requests
    if first is None or second is None or not _same_requests(differ):
        return None
    return (first, second) if np.array_equal(first["prompt_tokens"], second["prompt_tokens"]) else None


def _same_requests(differ: Sequence[str]) -> bool:
    return not any(key.partition(".")[0] in OF_REQUESTS for key in differ)


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
    intervals = f"with 95% intervals from {LEAST_SEEDS} seeds on"
    rows, said = list(_paired_rows(pairs, keys)), f"differences are paired by seed, {intervals}"
    if not _same_requests([key for key, _, _ in settings]):
        rows, said = [each._replace(half_width=nan) for each in rows], OTHERS
    said += f"; {left} {'run has' if left == 1 else 'runs have'} no partner" if left else ""
    return Compared(settings, keys, rows, said, stand_ins_of(pairs))


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
