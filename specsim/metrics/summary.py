"""The summary of a run: statistics of its requests, its passes and its time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from specsim.core.request import Floats
from specsim.errors import SpecsimError
from specsim.metrics.load import load
from specsim.metrics.requests import NOTED, PER_POSITION, SCHEMA_VERSION, RequestRows, RunTotals, Window, counts
from specsim.metrics.statistics import Sketched

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pandas import DataFrame


def duration(arrival_s: Floats, finish_s: Floats, cancelled_s: Floats | None) -> float:
    """Return the seconds from the first arrival of requests (N,) to the last arrival, finish or cancellation.

    No pass ends later: whose rows it has end or are cancelled when it has ended, or afterwards. `finish_s` (N,) is NaN
    for requests that do not finish, `cancelled_s` (m,) for those that are not cancelled; None: none is.
    """
    ends_s = [arrival_s, finish_s] if cancelled_s is None else [arrival_s, finish_s, cancelled_s]
    return float(max(np.fmax.reduce(each, initial=-np.inf) for each in ends_s) - arrival_s.min())


FEW = 1000
"""Values that are sorted sooner than numpy answers."""


def statistics_ms(name: str, values_s: Floats | Sketched) -> dict[str, float | None]:
    """Return what ``vllm bench serve`` says of values in seconds, in milliseconds.

    They are (n,), NaN left out, or were only counted, since there were too many to keep.
    """
    found: list[float | None]
    if isinstance(values_s, Sketched):
        found = [1000 * each for each in (values_s.mean, values_s.median, values_s.std, values_s.p99)]
    else:
        values_ms = 1000 * values_s[~np.isnan(values_s)]
        std_ms = float(np.std(values_ms)) if len(values_ms) else None
        found = [mean_of(values_ms), percentile(values_ms, 50), std_ms, percentile(values_ms, 99)]
    return dict(zip((f"{each}_{name}_ms" for each in ("mean", "median", "std", "p99")), found, strict=True))


def peak(start_s: Floats, end_s: Floats) -> int:
    """Return the most half-open intervals ``[start, end)`` that overlap at one time."""
    times = np.concatenate([end_s, start_s])
    change = np.repeat([-1, 1], [len(end_s), len(start_s)])
    order = np.argsort(times, kind="stable")
    return int(np.cumsum(change[order]).max(initial=0))


def mean_of(values: Floats) -> float | None:
    """Return the mean of values (n,), NaN left out."""
    values = values[~np.isnan(values)]
    return float(np.mean(values)) if len(values) else None


def percentile(values: Floats, percent: float) -> float | None:
    """Return a percentile of values (n,), NaN left out, as numpy interpolates it."""
    values = values[~np.isnan(values)]
    if not len(values):
        return None
    return _of_few(values, percent / 100) if len(values) <= FEW else float(np.percentile(values, percent))


def _of_few(values: Floats, share: float) -> float:
    """Return a quantile of values (n,), to the last bit that of numpy, which takes twenty times as long to ask."""
    ordered = np.sort(values)
    place = (len(ordered) - 1) * share
    below = int(place)
    beyond, low, high = place - below, float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    return low + (high - low) * beyond if beyond < 0.5 else high - (high - low) * (1 - beyond)


def ratio(part: float, whole: float | None) -> float | None:
    """Return the share; None of nothing."""
    return part / whole if whole else None


def plain(value: float) -> float | None:
    """Return the number; None for NaN."""
    return None if np.isnan(value) else float(value)


ATTAINMENTS = {"slo": "slo_ok", "ttft": "ttft_ok", "tpot": "decode_tpot_ok"}
"""The column that each attainment counts, over all arrived requests; "tpot" is AdaServe's measure."""


def summarise(
    table: DataFrame | Mapping[str, NDArray[Any]], totals: RunTotals, window: Window | None = None
) -> dict[str, Any]:
    """Return ``metrics.json``: the keys of ``vllm bench serve`` and a block ``specsim``; a missing value is None.

    ``window`` keeps the requests with ``window[0] <= arrival_s <= window[1]``; most totals are of the whole run.
    Inter-token latencies are missing if the totals hold those of another window.

    Raises
    ------
    SpecsimError
        When the window selects no request.
    """
    every = RequestRows.of(table)
    load_block = load(every, totals, window)
    rows = every if window is None else _select(every, window)
    itl_s = totals.itl_s if totals.itl_window == window else np.empty(0)
    done = rows.where(rows["rejected_reason"] == "")
    span = _span(rows)
    duration_s = span.duration_s
    metrics = _throughput(rows, done, duration_s)
    for name, values in (
        ("ttft", done["ttft_s"]),
        ("tpot", done["tpot_s"]),
        ("itl", itl_s),
        ("e2el", done["e2el_s"]),
    ):
        metrics |= statistics_ms(name, values)
    metrics |= _acceptance(rows)
    classes = _classes(rows, span)
    rejected = Counter(str(reason) for reason in rows["rejected_reason"] if reason)
    metrics["specsim"] = {
        "schema_version": SCHEMA_VERSION,
        "window": None if window is None else [float(edge) for edge in window],
        "arrived": len(rows),
        "completed": len(done),
        "rejected": dict(sorted(rejected.items())),
        **_service(rows, span),
        **_worst(classes),
        "requests_by_replica": np.bincount(rows["replica"], minlength=totals.replicas).tolist(),
        "load": load_block,
        "p99_ttft_s": percentile(done["ttft_s"], 99),
        "p99_e2el_s": percentile(done["e2el_s"], 99),
        "mean_decode_tpot_s": mean_of(done["decode_tpot_s"]),
        "p99_decode_tpot_s": percentile(done["decode_tpot_s"], 99),
        "itl_relative_error": itl_s.relative_error if isinstance(itl_s, Sketched) else 0.0,
        "preemptions": int(rows["preemptions"].sum()),
        **_engine(totals),
        **_split(every, totals),
        **_noted(done),
        "classes": classes,
    }
    return metrics


def _throughput(rows: RequestRows, done: RequestRows, duration_s: float | None) -> dict[str, Any]:
    input_tokens = int(done["prompt_tokens"].sum())
    output_tokens = int(done["output_tokens"].sum())
    has_slo = any((~np.isnan(rows[name])).any() for name in ("slo_tpot_s", "slo_ttft_s"))
    return {
        "duration": duration_s,
        "completed": len(done),
        "failed": len(rows) - len(done),
        "total_input_tokens": input_tokens,
        "total_output_tokens": output_tokens,
        "request_throughput": ratio(len(done), duration_s),
        "request_goodput": ratio(int(done["slo_ok"].sum()), duration_s) if has_slo else None,
        "output_throughput": ratio(output_tokens, duration_s),
        "total_token_throughput": ratio(input_tokens + output_tokens, duration_s),
        "max_concurrent_requests": peak(done["arrival_s"], done["finish_s"]),
    }


def _acceptance(rows: RequestRows) -> dict[str, Any]:
    drafts, nodes = int(rows["speculations"].sum()), int(rows["draft_tokens"].sum())
    accepted = int(rows["accepted_tokens"].sum())
    # As vLLM counts and logs them: drafts that were right up to each position.
    right = [int(rows[name].sum()) for name in rows.columns if name.startswith(PER_POSITION)] if drafts else []
    return {
        "spec_decode_acceptance_rate": 100 * accepted / nodes if nodes else None,
        "spec_decode_acceptance_length": 1 + accepted / drafts if drafts else None,
        "spec_decode_num_drafts": drafts,
        "spec_decode_draft_tokens": nodes,
        "spec_decode_accepted_tokens": accepted,
        "spec_decode_num_accepted_tokens_per_pos": right,
        "spec_decode_per_position_acceptance_rates": [each / drafts for each in right],
    }


class _Span(NamedTuple):
    """First and last arrival in seconds, and how long the requests took in all; None for no time."""

    first_arrival_s: float
    last_arrival_s: float
    duration_s: float | None


def _span(rows: RequestRows) -> _Span:
    arrival_s = rows["arrival_s"]
    whole_s = duration(arrival_s, rows["finish_s"], rows.cancelled_s)
    return _Span(float(arrival_s.min()), float(arrival_s.max()), whole_s or None)


def _service(rows: RequestRows, span: _Span) -> dict[str, Any]:
    """Return the metrics that a whole run and each of its classes have."""
    output_tokens = rows["output_tokens"]
    slo_ok: NDArray[np.bool_] = rows["slo_ok"]
    in_time = slo_ok & (rows["finish_s"] <= span.last_arrival_s)
    pauses_s = rows["longest_pause_s"]
    return {
        **{f"{name}_attainment": ratio(int(rows[column].sum()), len(rows)) for name, column in ATTAINMENTS.items()},
        "missed": _missed(rows),
        "slo_goodput_tokens_per_s": ratio(int(output_tokens[slo_ok].sum()), span.duration_s),
        "slo_goodput_in_arrivals_tokens_per_s": ratio(
            int(output_tokens[in_time].sum()), span.last_arrival_s - span.first_arrival_s
        ),
        "generated_tokens_per_s": ratio(int(output_tokens.sum()), span.duration_s),
        "longest_pause_s": plain(np.fmax.reduce(pauses_s, initial=np.nan)),
        "mean_tokens_per_verification": ratio(int(rows["decoded_tokens"].sum()), int(rows["verifications"].sum())),
        "mean_draft_tokens_per_verification": ratio(int(rows["draft_tokens"].sum()), int(rows["verifications"].sum())),
    }


def _missed(rows: RequestRows) -> dict[str, int]:
    """Return the counts of requests that missed each objective, and of rejected ones; a request may miss two."""
    rejected = rows["rejected_reason"] != ""
    late = {name: ~rows[f"{name}_ok"] & ~rejected for name in ("ttft", "tpot")}
    return {**{name: int(missed.sum()) for name, missed in late.items()}, "rejected": int(rejected.sum())}


def _worst(classes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the class with the lowest attainment; of equals the first by name."""
    name = min(classes, key=lambda each: classes[each]["slo_attainment"])
    return {"worst_class": name, "worst_class_attainment": classes[name]["slo_attainment"]}


def _classes(rows: RequestRows, span: _Span) -> dict[str, Any]:
    blocks: dict[str, Any] = {}
    for name in sorted(set(rows["slo_class"])):
        part = rows.where(rows["slo_class"] == name)
        done = part.where(part["rejected_reason"] == "")
        block = {
            "requests": len(part),
            "completed": len(done),
            "rejected": len(part) - len(done),
            **_service(part, span),
            **_noted(done),
        }
        for column in ("tpot_s", "decode_tpot_s", "ttft_s", "e2el_s"):
            values = done[column]
            block |= {f"mean_{column}": mean_of(values), f"p99_{column}": percentile(values, 99)}
        for column in ("slo_tpot_s", "slo_ttft_s"):
            block |= _objective(column, part[column])
        blocks[str(name)] = block
    return blocks


def _objective(column: str, seconds: Floats) -> dict[str, Any]:
    """Return the objective if all requests of a class share it, and the least and the largest objective."""
    given = seconds[~np.isnan(seconds)]
    shared = given[0] if len(given) == len(seconds) and np.all(given == given[0]) else np.nan
    name = column.removesuffix("_s")
    return {column: plain(shared), f"{name}_range_s": [float(given.min()), float(given.max())] if len(given) else None}


def _engine(totals: RunTotals) -> dict[str, Any]:
    parts = ("prefill", "draft", "selection", "verify", "idle")
    seconds = {part: float(getattr(totals, f"{part}_s")) for part in parts}
    whole = sum(seconds.values())
    return {
        "iterations": int(totals.iterations),
        "draft_passes": int(totals.draft_passes),
        "out_of_range_passes": int(totals.out_of_range_passes),
        "prefix_cache_queries": totals.prefix_queries,
        "prefix_cache_hits": totals.prefix_hits,
        "prefix_cache_hit_rate": ratio(totals.prefix_hits, totals.prefix_queries),
        "moving_s": float(totals.moving_s),
        "moving_overhead": ratio(totals.moving_s, whole - seconds["idle"] - seconds["selection"] - totals.moving_s),
        "time_s": seconds,
        "time_shares": {part: ratio(spent, whole) for part, spent in seconds.items()},
    }


def _split(rows: RequestRows, totals: RunTotals) -> dict[str, Any]:
    """Return what moved between the pools of a split run; nothing where no run is split."""
    if "split.moving_s" not in rows.columns:
        return {}
    moving_s = rows["split.moving_s"]
    first = np.bincount(rows["split.prefill_replica"], minlength=totals.replicas)
    return {
        "split": {
            "requests_by_prefill_replica": first.tolist(),
            "moved_requests": int(np.count_nonzero(~np.isnan(moving_s))),
            "moved_bytes": int(rows["split.moved_bytes"].sum()),
            "mean_moving_s": mean_of(moving_s),
            "p99_moving_s": percentile(moving_s, 99),
        }
    }


def _noted(done: RequestRows) -> dict[str, Any]:
    """Return the mean of what is finite in each column that the scheduler noted, by name; nothing if it noted none.

    It is None where nothing is finite, or the mean is too large for a float.
    """
    means: dict[str, float | None] = {}
    for name in (each for each in done.columns if each.startswith(NOTED)):
        column = done[name]
        with np.errstate(over="ignore"):
            mean = mean_of(column[np.isfinite(column)])
        means[name.removeprefix(NOTED)] = mean if mean is not None and isfinite(mean) else None
    return {NOTED.removesuffix("."): means} if means else {}


def _select(rows: RequestRows, window: Window) -> RequestRows:
    arrival_s = rows["arrival_s"]
    inside = counts(window, arrival_s)
    if not inside.any():
        span = f"{arrival_s.min():g} s to {arrival_s.max():g} s" if len(arrival_s) else "nothing"
        raise SpecsimError(f"warmup=[{window[0]:g},{window[1]:g}] selects no request; arrivals span {span}")
    return rows.where(inside)
