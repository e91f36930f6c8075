"""Runs of the study: each series of rows simulated with speculation and without; rows of finished series are kept."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profiler.compose.library import version
from profiler.compose.profile import compose_profile
from profiler.latency.text import yaml_text
from profiler.text import write
from specsim.api import simulate
from specsim.errors import say
from specsim.files.yaml_file import shipped
from studies.report import keep, kept
from studies.speedups.measured import (
    CLOSED,
    OPEN,
    STUDY,
    THROUGHPUT,
    TPOT,
    Row,
    Shape,
    Side,
    about,
    data_file,
    measured,
    rows,
)

if TYPE_CHECKING:
    from pandas import DataFrame

KEPT = Path("results/speedups/rows.parquet")
PROFILES = Path("results/runs/speedups/profiles")
SOLVED, SCORED, LINE = "solved", "scored", "line"
"""A row whose speed-up gave the acceptance; one that is predicted; a point of the predicted line, of no row."""
STAGE_S = 120
"""Seconds that llm-d's client sends at one rate."""
LEAST_TOKENS = 6000
"""Output tokens at least that a closed loop measures: acceptance scatters by 1% then."""
LINE_LOADS = (1, 4, 16, 32, 64, 128)
"""Batches at which the line of a series at two loads or more is predicted, too."""
RATES = (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Conditional rates between which the length of a tree is interpolated."""
LEAST_RATE, MOST_RATE, RATE_ERROR = 0.01, 0.99, 4e-3
"""Bounds of the conditional rate of a draft, and how exactly it is solved for."""


class Measures(NamedTuple):
    """What a run gives: tokens/s, seconds, and tokens of a verification."""

    throughput: float
    total_throughput: float
    tpot_s: float
    ttft_s: float
    e2e_s: float
    length: float

    def of(self, row: Row) -> float:
        """Return the measure of a row's metric, in its unit."""
        by_metric = {
            "output tok/s/GPU": self.throughput / row.gpus,
            "total tok/s": self.total_throughput,
            "tok/s/user": 1 / self.tpot_s,
            "TTFT p50 s": self.ttft_s,
            "request latency p50 s": self.e2e_s,
        }
        if row.quantity == TPOT and row.metric != "tok/s/user":
            return 1e3 * self.tpot_s
        return by_metric.get(row.metric, self.throughput)


def composed(row: Row, side: Side) -> dict[str, Any]:
    """Return the arguments of `compose_profile` of a row's target, GPU and drafter."""
    target = {key: value for key, value in STUDY["targets"][row.target].items() if key != "experts"}
    drafter = {key: value for key, value in STUDY["drafters"][side.drafter].items() if key in ("draft", "drafter")}
    given = {"engine": about("engines", row.version)["kernels"], "tp": row.gpus, **target, **drafter}
    further = dict(about("sources", row.source).get("compose", {}))
    given["engine"] = further.pop("kernels", given["engine"])
    return {**given, **further, "gpu": STUDY["gpus"][row.hardware]}


def profile_file(arguments: Mapping[str, Any]) -> Path:
    """Return the file of a composed profile."""
    return PROFILES / f"{'_'.join(str(arguments[key]) for key in sorted(arguments))}.yaml"


def settings(row: Row, side: Side | None, load: float, rate: float | None) -> dict[str, Any]:
    """Return the settings of the run of a side of a row, None for no speculation, `rate` the drafts' conditional rate."""
    prompt, output = ({"distribution": "fixed", "mean": mean} for mean in row.lengths)
    if row.lengths_cv:
        prompt, output = (
            {"distribution": "lognormal", "mean": mean, "cv": row.lengths_cv, "low": low, "high": most}
            for mean, low, most in zip(row.lengths, (10, 10), _longest(row), strict=True)
        )
    given: dict[str, Any] = {
        "profile": str(profile_file(composed(row, side or row.side))),
        "engine": about("engines", row.version)["engine"],
        "slo": "one",
        "trace.prompt_tokens": prompt,
        "trace.output_tokens": output,
        **about("sources", row.source).get("run", {}),
    }
    if row.kind == OPEN:
        given |= {"trace": "gamma", "trace.cv": 0.02, "rps": load, "requests": int(STAGE_S * load)}
    else:
        clients = int(load)
        requests = 2 * clients + max(ceil(LEAST_TOKENS / row.lengths[1]), 3 * clients)
        given |= {"trace": "poisson", "concurrency": clients, "requests": requests}
    if side is None:
        return {"scheduler": "vllm", **given}
    return {**_drafting(side), **given, "acceptance": rate, "acceptance.categories.default.spread": 0}


def _longest(row: Row) -> tuple[int, int]:
    return (4096, 512) if row.kind == OPEN else (8192, 4096)


def _drafting(side: Side) -> dict[str, Any]:
    shape = side.shape
    given = dict(STUDY["drafters"][side.drafter].get("run", {}))
    if shape.topk == 1:
        return {"scheduler": "vllm_spec", "scheduler.num_speculative_tokens": shape.steps, **given}
    keys = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
    sizes = {f"scheduler.{key}": value for key, value in zip(keys, shape, strict=True)}
    return {"scheduler": "eagle2_tree", **sizes, **given}


def command(given: Mapping[str, Any]) -> str:
    """Return the command line of a run's settings."""
    return " ".join(["specsim run", *(shlex.quote(f"{key}={_typed(value)}") for key, value in given.items())])


def _options(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options that compose a profile."""
    yield from (f"--{key.replace('_', '-')} {value}" for key, value in arguments.items())
    yield f"--out {profile_file(arguments)}"


def _typed(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_typed(each)}' for key, each in value.items())}}}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def ran(given: Mapping[str, Any]) -> Measures:
    """Run settings and return their measures; of a closed loop while all clients are busy."""
    return _ran(json.dumps(given))


@cache
def _ran(text: str) -> Measures:
    given = json.loads(text)
    scheduler, trace = given.pop("scheduler"), given.pop("trace")
    run = simulate(scheduler, trace, **given)
    table, clients = run.requests, given.get("concurrency")
    length = float(run.metrics.get("spec_decode_acceptance_length") or 1.0)
    throughput = float(run.metrics["output_throughput"])
    if clients is not None:
        arrivals = np.sort(table["arrival_s"].to_numpy())
        begin, end = arrivals[2 * clients], arrivals[-1]
        throughput = _tokens_between(table, begin, end) / (end - begin)
        table = table[table["arrival_s"].between(begin, end)]
    both = float(table[["prompt_tokens", "output_tokens"]].to_numpy().sum() / table["output_tokens"].sum())
    tpot_s = table["tpot_s"].mean() if clients is not None else table["tpot_s"].median()
    medians = table[["ttft_s", "e2el_s"]].median()
    return Measures(throughput, both * throughput, float(tpot_s), *map(float, medians), length)


def _tokens_between(table: DataFrame, begin: float, end: float) -> float:
    """Return the output tokens between two times, those after a request's first one evenly up to its last."""
    first, last = table["first_token_s"].to_numpy(), table["finish_s"].to_numpy()
    inside = np.clip(np.minimum(last, end) - np.maximum(first, begin), 0, None)
    share = inside / np.maximum(last - first, 1e-12)
    whole = np.sum((first >= begin) & (first < end))
    return float(whole + ((table["output_tokens"].to_numpy() - 1) * share).sum())


def rate_of(row: Row, side: Side, trees: Mapping[Shape, Sequence[float]]) -> float:
    """Return the conditional rate of a side's drafts: stated, of the length, or of the speed-up at batch 1.

    `trees` holds the lengths of shapes at `RATES`.
    """
    if side.length is None and row.rate is not None:
        return row.rate
    if side.length is None:
        assert row.speedup is not None
        return solved(lambda rate: speedup_of(row, 1.0, rate), row.speedup)
    if side.shape.topk == 1:
        return solved(lambda rate: sum(rate**depth for depth in range(side.shape.steps + 1)), side.length)
    return round(float(np.interp(side.length, trees[side.shape], RATES)), 4)


def tree_lengths(row: Row) -> list[float]:
    """Return the tokens that a verification of a row's tree yields at `RATES`."""
    return [ran(settings(row, row.side, 1.0, rate)).length for rate in RATES]


def speedup_of(row: Row, load: float, rate: float) -> float:
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
        if abs(rate - before) < RATE_ERROR or error == error_before:
            break
        following = clipped(rate - error * (rate - before) / (error - error_before))
        before, error_before, rate = rate, error, following
        error = function(rate) - wanted
    return round(rate, 4)


def _ratio(row: Row, fast: Measures, slow: Measures) -> float:
    """Return how much faster the first is, by the row's quantity."""
    if row.quantity == THROUGHPUT:
        return fast.throughput / slow.throughput
    return slow.of(row) / fast.of(row) if row.metric != "tok/s/user" else fast.of(row) / slow.of(row)


def series_rows(those: Sequence[Row], trees: Mapping[Shape, Sequence[float]]) -> list[dict[str, Any]]:
    """Return what a series predicts: a mapping for each row, and for each further point of its line."""
    first = min(those, key=lambda row: (row.load, row.quantity != TPOT))
    rates = [rate_of(first, side, trees) for side in (first.side, first.against) if side is not None]
    solving = first.side.length is None and first.rate is None
    loads = {row.load for row in those}
    found = [_predicted(row, rates, SOLVED if solving and _gave(row, first) else SCORED) for row in those]
    if len(loads) > 1 and first.kind == CLOSED and first.against is None:
        found += [_predicted(first.at(load), rates, LINE) for load in LINE_LOADS if load not in loads]
    return found


def _gave(row: Row, first: Row) -> bool:
    """Return whether a row says no more than the one that gave the acceptance: its load, and not throughput."""
    return row.load == first.load and (row.kind == CLOSED or row.quantity not in (THROUGHPUT, "TTFT"))


def _predicted(row: Row, rates: Sequence[float], role: str) -> dict[str, Any]:
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
        "compose": " ".join(["specsim profile compose", *_options(composed(row, row.side))]),
        "command": command(both[0]),
        "command_without": command(both[1]),
    }


def run(jobs: int) -> DataFrame:
    """Run what the kept rows lack, keep each series as it ends, and return all rows."""
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
    table = table.sort_values(["line", "source", "load"], ignore_index=True)
    table.attrs = about_them
    keep(table, KEPT, about_them)
    return table


def _profiles(found: Sequence[Row]) -> Iterator[Mapping[str, Any]]:
    """Yield the arguments of every profile that rows need, each once."""
    sides = ((row, side) for row in found for side in (row.side, row.against) if side is not None)
    yield from {profile_file(each): each for each in (composed(row, side) for row, side in sides)}.values()


def compose(arguments: Mapping[str, Any]) -> Path:
    """Compose a profile where its file is missing, and return the file."""
    file = profile_file(arguments)
    say(f"composing {file}")
    profile = compose_profile(**arguments, name=file.stem)
    write(file, yaml_text(profile, "Written by `python -m studies.speedups`."))
    return file


def _made_of() -> str:
    """Return a checksum of what the rows depend on: measurements, facts, engines, code and the library's version."""
    package = shipped("conf").parent
    files = [data_file(), Path(__file__).with_name("study.yaml")]
    for folder, pattern in (("conf/engine", "*.yaml"), ("specsim", "**/*.py"), ("profiler/compose", "*.py")):
        files += sorted((package / folder).glob(pattern))
    digest = hashlib.sha256(version().encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()
