"""The rows of ``requests.parquet``: facts, progress and met objectives of each request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.replica.request import Bools, Floats, Ints, Requests
from specsim.replica.state import Moves, Progress
from specsim.results.schema import NOTED, REQUEST_COLUMNS, SPLIT_COLUMNS

if TYPE_CHECKING:
    from pandas import DataFrame

# Latencies are differences of clock readings: one that should equal its SLO may differ in the last bits.
SLO_RELATIVE_TOLERANCE = 1e-9


def request_table(
    requests: Requests,
    progress: Progress,
    longest_pause_s: Floats,
    moving_s: Floats,
    noted: Mapping[str, Floats],
    replica_of: Ints,
    rejected: Mapping[int, str],
    moves: Moves | None = None,
) -> DataFrame:
    """Return the columns of `REQUEST_COLUMNS`, those of `SPLIT_COLUMNS` where there are `moves`, and what was noted.

    ``slo_ok`` means that every objective is met: TTFT, and TPOT as vLLM measures it. ``decode_tpot_ok`` is AdaServe's
    measure: decode latency per token alone.

    Parameters
    ----------
    requests, progress : facts known at arrival, and progress, (N,) each.
    longest_pause_s, moving_s : (N,) seconds. noted : (N,) by name. replica_of : (N,) indices.
    rejected : reason by request id.
    """
    import pandas as pd

    reason = np.full(len(requests), "", dtype=object)
    reason[list(rejected)] = list(rejected.values())
    completed = reason == ""
    tpot_s = _divide(progress.finish_s - progress.first_token_s, progress.emitted_tokens - 1)
    decode_tpot_s = _divide(progress.finish_s - progress.first_decode_s, progress.decoded_tokens)
    ttft_s = progress.first_token_s - requests.arrival_s
    single = progress.emitted_tokens <= 1
    ttft_ok = completed & _meets(ttft_s, requests.ttft_slo_s)
    tpot_ok = completed & (_meets(tpot_s, requests.tpot_slo_s) | single)
    values: dict[str, Any] = {
        "request_id": np.arange(len(requests)),
        "slo_class": np.array(requests.class_names, dtype=object)[requests.slo_class],
        "output_tokens": progress.emitted_tokens,
        "longest_pause_s": longest_pause_s,
        "moving_s": moving_s,
        "replica": replica_of,
        "ttft_s": ttft_s,
        "tpot_s": tpot_s,
        "decode_tpot_s": decode_tpot_s,
        "e2el_s": progress.finish_s - requests.arrival_s,
        "slo_tpot_s": requests.tpot_slo_s.copy(),
        "slo_ttft_s": requests.ttft_slo_s.copy(),
        "slo_ok": ttft_ok & tpot_ok,
        "ttft_ok": ttft_ok,
        "tpot_ok": tpot_ok,
        "decode_tpot_ok": completed & (_meets(decode_tpot_s, requests.tpot_slo_s) | single),
        "rejected_reason": reason,
    }
    known = {name: _column(name, values, requests, progress) for name in REQUEST_COLUMNS}
    if moves is not None:
        known |= dict(zip(SPLIT_COLUMNS, moves, strict=True))
    # A copy of all would be the largest thing in memory of a long run. What the requests say is theirs, and copied.
    return pd.DataFrame(known | {f"{NOTED}{name}": column for name, column in noted.items()}, copy=False)


def _column(name: str, values: Mapping[str, Any], told: Requests, done: Progress) -> Any:
    """Return a column: from `values`, else the field of that name of `done`, or a copy of that of `told`."""
    if name in values:
        return values[name]
    return getattr(told, name).copy() if hasattr(told, name) else getattr(done, name)


def _meets(latency_s: Floats, slo_s: Floats) -> Bools:
    return np.isnan(slo_s) | (latency_s <= slo_s * (1 + SLO_RELATIVE_TOLERANCE))


def _divide(span_s: Floats, tokens: Ints) -> Floats:
    quotient = np.full(len(span_s), np.nan)
    np.divide(span_s, tokens, out=quotient, where=tokens > 0)
    return quotient
