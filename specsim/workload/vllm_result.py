"""The result of ``vllm bench serve --save-result --save-detailed``: one JSON object, a list for each quantity.

Three of its lists make a trace: ``input_lens`` (prompt tokens counted by the server), ``output_lens`` (0 for a failed
request) and ``start_times`` (when a request was sent, in seconds of the client's clock). vLLM writes ``start_times``
since January 2026 (its pull request 32667), and ``queue_times`` since a later version. A queue time is a request's wait
under ``--max-concurrency``: the request arrived that long before it was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from specsim.errors import SpecsimError

ARRIVAL, PROMPT, OUTPUT = LISTS = ("start_times", "input_lens", "output_lens")


def is_result(value: Mapping[str, object]) -> bool:
    """Return whether an object is a benchmark result, detailed or not."""
    return PROMPT in value or {"request_throughput", "total_input_tokens"} <= value.keys()


def requests(value: Mapping[str, object], file: Path) -> tuple[dict[str, object], list[str]]:
    """Return the lists of a result that make a trace, with arrivals, and notes about them.

    Raises
    ------
    SpecsimError
        One line for a result without requests, or without their start times.
    """
    known = {name: value.get(name) for name in LISTS}
    result = f"{file}: a result of `vllm bench serve`"
    missing = [name for name in (PROMPT, OUTPUT) if not isinstance(known[name], list)]
    if missing:
        raise SpecsimError(f"{result} without {missing[0]}; expected one of --save-result --save-detailed")
    sent, waited = known[ARRIVAL], value.get("queue_times")
    if not isinstance(sent, list):
        raise SpecsimError(f"{result} without {ARRIVAL}, so without arrivals; vLLM writes them since January 2026")
    if isinstance(waited, list) and len(waited) == len(sent):
        arrived = [_before(start, wait) for start, wait in zip(sent, waited, strict=True)]
        return {**known, ARRIVAL: arrived}, ["arrivals are start_times less queue_times"] if any(waited) else []
    limit = value.get("max_concurrency")
    if limit is None:
        return known, []
    return known, [f"max_concurrency={limit} held requests back: they arrive here when they were sent"]


def _before(start: object, wait: object) -> object:
    """Return the arrival; if one of the two is damaged, return that one."""
    if not isinstance(start, float | int):
        return start
    return start - wait if isinstance(wait, float | int) else wait
