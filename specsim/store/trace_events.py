"""A run as trace events, for Perfetto and Chrome: a row a replica and a request, counters of accepted drafts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError
from specsim.files.staging import in_one_step
from specsim.metrics.requests import DRAFT_PASS

if TYPE_CHECKING:
    from pandas import DataFrame

    from specsim.store.runs import StoredRun

REPLICAS, REQUESTS = 1, 2
"""Processes of the file: their threads are replicas, and requests."""
PER_PASS = ("requests", "batched_tokens", "context_tokens", "prefill_tokens", "draft_tokens", "depth", "emitted_tokens")
PER_REQUEST = ("slo_class", "prompt_tokens", "output_tokens", "draft_tokens", "accepted_tokens", "verifications")


def write_trace_events(run: StoredRun, file: Path) -> Path:
    """Write a run with ``passes=true`` as JSON that https://ui.perfetto.dev and chrome://tracing open; return the file.

    Times are in microseconds, as the format has them ("Trace Event Format", Google). A request's row shows the wait for
    its first token and its decoding, a replica's its draft and target passes; counters show the waiting requests and
    the draft tokens that were accepted and rejected, pass by pass.

    Raises
    ------
    SpecsimError
        When the run has kept no passes, or its files cannot be read.
    """
    passes = run.passes
    if passes is None:
        raise SpecsimError(f"{run.folder}: no passes are kept; expected a run with passes=true")
    events = [*_names(passes, run.requests), *_passes(passes), *_requests(run.requests)]
    with in_one_step(file) as partial:
        partial.write_text(json.dumps({"displayTimeUnit": "ms", "traceEvents": events}), encoding="utf-8")
    return file


def _names(passes: DataFrame, requests: DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the names of processes and threads."""
    for process, name in ((REPLICAS, "replicas"), (REQUESTS, "requests")):
        yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
    threads = (
        (REPLICAS, "replica", sorted(passes["replica"].unique().tolist())),
        (REQUESTS, "request", requests["request_id"].tolist()),
    )
    for process, name, numbers in threads:
        for number in numbers:
            called = {"name": f"{name} {number}"}
            yield {"ph": "M", "name": "thread_name", "pid": process, "tid": number, "args": called}


def _passes(passes: DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the passes, and the counters at the end of each target pass."""
    for row in passes.to_dict("records"):
        drafts = row["kind"] == DRAFT_PASS
        yield _slice(
            "draft" if drafts else "target",
            (REPLICAS, row["replica"]),
            row["start_s"],
            row["start_s"] + row["seconds"],
            {name: row[name] for name in PER_PASS},
        )
        if not drafts:
            rejected = row["draft_tokens"] - row["accepted_tokens"]
            counters = {
                "draft tokens": {"accepted": row["accepted_tokens"], "rejected": rejected},
                "waiting requests": {"waiting": row["queued"]},
            }
            at = {"pid": REPLICAS, "tid": row["replica"], "ts": 1e6 * (row["start_s"] + row["seconds"])}
            for name, values in counters.items():
                yield {"ph": "C", "name": f"{name}, replica {row['replica']}", **at, "args": values}


def _requests(requests: DataFrame) -> Iterator[dict[str, Any]]:
    """Yield what each request waited for, until it ended or was cancelled, and a mark where it was given up."""
    ends = requests["finish_s"]
    if "cancelled_s" in requests:
        ends = ends.fillna(requests["cancelled_s"])
    ends = ends.fillna(requests["arrival_s"])
    first = requests["first_token_s"].fillna(ends)
    for row, end_s, first_s in zip(requests.to_dict("records"), ends, first, strict=True):
        thread = REQUESTS, row["request_id"]
        for name, start, end, ok in (
            ("first token", row["arrival_s"], first_s, "ttft_ok"),
            ("decode", first_s, end_s, "tpot_ok"),
        ):
            if end > start:
                yield _slice(name, thread, start, end, {each: row[each] for each in (*PER_REQUEST, ok)})
        if reason := row["rejected_reason"]:
            yield {"ph": "i", "s": "t", "name": reason, "ts": 1e6 * end_s, "pid": thread[0], "tid": thread[1]}


def _slice(name: str, thread: tuple[int, int], start_s: float, end_s: float, about: dict[str, Any]) -> dict[str, Any]:
    at = {"pid": thread[0], "tid": thread[1], "ts": 1e6 * start_s, "dur": 1e6 * (end_s - start_s)}
    return {"ph": "X", "name": name, **at, "args": about}
