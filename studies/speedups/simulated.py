"""One side of a row simulated: its profile composed, the settings and the command of its run, what the run gives."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from functools import cache
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profiler.compose.profile import compose_profile
from profiler.text import write, yaml_text
from specsim.api import simulate
from specsim.errors import say
from studies.speedups.measured import OPEN, STUDY, TPOT, PublishedRow, Side, about

if TYPE_CHECKING:
    from pandas import DataFrame

PROFILES = Path("results/runs/speedups/profiles")
STAGE_S = 120
"""Seconds that llm-d's client sends at one rate."""
MATCH = "acceptance.categories.default.match"
LEAST_TOKENS = 4000
"""Output tokens at least that a closed loop measures: acceptance scatters by 1% then."""


class Measures(NamedTuple):
    """Measures of a run: tokens/s, seconds, and tokens of a verification."""

    throughput: float
    total_throughput: float
    tpot_s: float
    ttft_s: float
    e2e_s: float
    length: float

    def of(self, row: PublishedRow) -> float:
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


def composed(row: PublishedRow, side: Side) -> dict[str, Any]:
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


def compose(arguments: Mapping[str, Any]) -> Path:
    """Compose a profile where its file is missing, and return the file."""
    file = profile_file(arguments)
    say(f"composing {file}")
    profile = compose_profile(**arguments, name=file.stem)
    write(file, yaml_text(profile, "Written by `python -m studies.speedups`."))
    return file


def settings(row: PublishedRow, side: Side | None, load: float, rate: float | None) -> dict[str, Any]:
    """Return the settings of a run of a side, None for no speculation, whose drafts are right at a conditional rate."""
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
        **about("engines", row.version).get("run", {}),
        **about("sources", row.source).get("run", {}),
    }
    if row.kind == OPEN:
        given |= {"trace": "gamma", "trace.cv": 0.02, "rps": load, "requests": int(STAGE_S * load)}
    else:
        clients = int(load)
        requests = 2 * clients + max(ceil(LEAST_TOKENS / row.lengths[1]), 2 * clients)
        given |= {"trace": "poisson", "concurrency": clients, "requests": requests}
    if side is None:
        return {"scheduler": "vllm", **given}
    wide = {"acceptance.width": side.shape.topk} if side.shape.topk > 1 else {}
    accepts = {"acceptance": rate, "acceptance.categories.default.spread": 0, **_matches(row, side, rate), **wide}
    return {**_drafting(side), **given, **accepts}


def _matches(row: PublishedRow, side: Side, rate: float | None) -> dict[str, Any]:
    match = match_of(row, side, rate)
    return {} if match == 1 else {MATCH: round(match, 4)}


def match_of(row: PublishedRow, side: Side, rate: float | None) -> float:
    """Return the share of steps with a match of a lookup whose first draft is right at a rate; 1 of other drafters.

    With q the share of matches among steps that accept nothing, which the source states, it is m = r m + q (1 - r m).
    """
    stated = STUDY["drafters"][side.drafter].get("matches_without_acceptance")
    if stated is None or rate is None:
        return 1.0
    share = float(stated[row.dataset])
    return share / (1 - rate * (1 - share))


def _longest(row: PublishedRow) -> tuple[int, int]:
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


def compose_command(arguments: Mapping[str, Any]) -> str:
    """Return the command line that composes a profile."""
    options = (f"--{key.replace('_', '-')} {value}" for key, value in arguments.items())
    return " ".join(["specsim profile compose", *options, f"--out {profile_file(arguments)}"])


def _typed(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_typed(each)}' for key, each in value.items())}}}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def ran(given: Mapping[str, Any]) -> Measures:
    """Run settings and return their measures; of a closed loop between its 2B-th request and the last that is sent."""
    return _ran(json.dumps(given))


@cache
def _ran(text: str) -> Measures:
    given = json.loads(text)
    scheduler, trace = given.pop("scheduler"), given.pop("trace")
    run = simulate(scheduler, trace, **given)
    table, clients = run.requests, given.get("concurrency")
    of_drafts = float(run.metrics.get("spec_decode_acceptance_length") or 1.0)
    length = 1 + given.get(MATCH, 1.0) * (of_drafts - 1)
    throughput = float(run.metrics["output_throughput"])
    if clients is not None:
        arrivals = np.sort(table["arrival_s"].to_numpy())
        begin, end = arrivals[2 * clients], arrivals[-1]
        throughput = _tokens_between(table, begin, end) / (end - begin)
        table = table[table["arrival_s"].between(begin, end)]
    both = float(table[["prompt_tokens", "output_tokens"]].to_numpy().sum() / table["output_tokens"].sum())
    tpot_s = table["tpot_s"].mean() if clients is not None else table["tpot_s"].median()
    ttft_s, e2e_s = (float(table[column].median()) for column in ("ttft_s", "e2el_s"))
    return Measures(throughput, both * throughput, float(tpot_s), ttft_s, e2e_s, length)


def _tokens_between(table: DataFrame, begin: float, end: float) -> float:
    """Return the output tokens between two times, those after a request's first one evenly up to its last."""
    first, last = table["first_token_s"].to_numpy(), table["finish_s"].to_numpy()
    inside = np.clip(np.minimum(last, end) - np.maximum(first, begin), 0, None)
    share = inside / np.maximum(last - first, 1e-12)
    whole = np.sum((first >= begin) & (first < end))
    return float(whole + ((table["output_tokens"].to_numpy() - 1) * share).sum())
