"""Results of benchmarks under the names of `vllm bench serve`, whichever tool wrote them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from specsim.workload.columns import number
from specsim.workload.readers import lines, utf8

Result = Mapping[str, Any]
BENCH, RATE = "max_concurrency", "request_rate"
TOTALS = {"isl": "total_input_tokens", "osl": "total_output_tokens"}
LENGTHS = ("input_lens", "output_lens")
REQUESTS = "requests"
"""The key of the rows of a GuideLLM benchmark's requests."""
SPECULATED = ("spec_decode_acceptance_rate", "accept_length")
"""Keys of a server that speculates, of vLLM's and SGLang's results."""
NAMES = frozenset({"completed", *TOTALS.values()})


def results(raw: bytes) -> list[Result]:
    """Return the results in a file, none where it holds something else.

    They are those of `vllm bench serve` and sglang.bench_serving, one, a list or one a line, GuideLLM's benchmarks, or
    aiperf's summary.
    """
    found = [each for value in _objects(lines(utf8(raw)[0]).read()) for each in _translated(value)]
    return found if all(NAMES & each.keys() for each in found) else []


def speculation_of(result: Result) -> str | None:
    """Return the key by which a result is of a server that speculates; None: of one that does not."""
    return next((key for key in SPECULATED if result.get(key) is not None), None)


def _objects(text: str) -> list[Any]:
    """Return the JSON values of a text: one, those of a list, or one a line."""
    if text.lstrip()[:1] not in ("{", "["):
        return []
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        try:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            return []
    return value if isinstance(value, list) else [value]


def _translated(value: Any) -> Iterator[Result]:
    if not isinstance(value, Mapping):
        yield {}
    elif isinstance(value.get("benchmarks"), list):
        yield from map(_of_guidellm, value["benchmarks"])
    elif "input_config" in value:
        yield _of_aiperf(value)
    else:
        yield value


def _of_guidellm(benchmark: Any) -> Result:
    """Return a benchmark of GuideLLM, whose inter-token latency is (last - first token) / (tokens - 1)."""
    strategy = _at(benchmark, "config", "strategy") or _at(benchmark, "args", "strategy") or {}
    kind = _at(strategy, "type_")
    names = {"isl": "prompt_token_count", "osl": "output_token_count"}
    names |= {"ttft": "time_to_first_token_ms", "tpot": "inter_token_latency_ms"}
    means = {key: _at(benchmark, "metrics", name, "successful", "mean") for key, name in names.items()}
    return {
        **_result(_at(benchmark, "metrics", "request_totals", "successful"), means),
        BENCH: 1 if kind == "synchronous" else _at(strategy, "streams"),
        RATE: _at(strategy, "rate") if kind in ("poisson", "constant") else inf,
        "burstiness": inf if kind == "constant" else 1.0,
        REQUESTS: _at(benchmark, "requests", "successful"),
    }


def _of_aiperf(summary: Result) -> Result:
    """Return a summary of aiperf, whose inter-token latency is (latency - TTFT) / (tokens - 1)."""
    names = {"isl": "input_sequence_length", "osl": "output_sequence_length"}
    names |= {"ttft": "time_to_first_token", "tpot": "inter_token_latency"}
    means = {key: _at(summary, name, "avg") for key, name in names.items()}
    load = _at(summary, "input_config", "loadgen") or {}
    rate = _at(load, "request_rate")
    sent = {BENCH: _at(load, "concurrency"), RATE: inf if rate is None else rate}
    return {**_result(_at(summary, "request_count", "avg"), means), **sent}


def _result(completed: Any, means: Mapping[str, Any]) -> dict[str, Any]:
    done = number(completed)
    totals = {
        name: None if done is None or (mean := number(means[key])) is None else mean * done
        for key, name in TOTALS.items()
    }
    completed = int(done) if done is not None and done.is_integer() else completed
    return {"completed": completed, **totals, "mean_ttft_ms": means["ttft"], "mean_tpot_ms": means["tpot"]}


def _at(value: Any, *keys: str) -> Any:
    """Return what stands below keys; None: nothing."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
