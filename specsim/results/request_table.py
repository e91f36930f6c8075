"""The rows of ``requests.parquet``: what happened to each request, and which of its objectives it met."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.results.schema import REQUEST_COLUMNS, FloatArray, IntArray, RequestColumns

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pandas import DataFrame

# Latencies are differences of clock readings: one that equals its SLO on paper may differ in the last bits.
SLO_RELATIVE_TOLERANCE = 1e-9


def request_table(columns: RequestColumns) -> DataFrame:
    """Return the columns of `REQUEST_COLUMNS`, one row per arrived request.

    ``slo_ok`` needs every objective: TTFT, and TPOT as vLLM measures it. ``decode_tpot_ok`` is AdaServe's measure,
    decode latency per token alone.
    """
    import pandas as pd

    c = columns
    tpot_s = _divide(c.finish_s - c.first_token_s, c.output_tokens - 1)
    decode_tpot_s = _divide(c.finish_s - c.first_decode_s, c.decoded_tokens)
    ttft_s = c.first_token_s - c.arrival_s
    completed = c.rejected_reason == 0
    single = c.output_tokens <= 1
    ttft_ok = completed & _meets(ttft_s, c.ttft_slo_s)
    tpot_ok = completed & (_meets(tpot_s, c.tpot_slo_s) | single)
    values: dict[str, Any] = {
        "slo_class": np.array(c.slo_class_names, dtype=object)[c.slo_class],
        "ttft_s": ttft_s,
        "tpot_s": tpot_s,
        "decode_tpot_s": decode_tpot_s,
        "e2el_s": c.finish_s - c.arrival_s,
        "slo_tpot_s": c.tpot_slo_s,
        "slo_ttft_s": c.ttft_slo_s,
        "slo_ok": ttft_ok & tpot_ok,
        "ttft_ok": ttft_ok,
        "tpot_ok": tpot_ok,
        "decode_tpot_ok": completed & (_meets(decode_tpot_s, c.tpot_slo_s) | single),
        "rejected_reason": np.array(c.rejected_reason_names, dtype=object)[c.rejected_reason],
    }
    return pd.DataFrame({name: values[name] if name in values else getattr(c, name) for name in REQUEST_COLUMNS})


def _meets(latency_s: FloatArray, slo_s: FloatArray) -> NDArray[np.bool_]:
    return np.isnan(slo_s) | (latency_s <= slo_s * (1 + SLO_RELATIVE_TOLERANCE))


def _divide(span_s: FloatArray, tokens: IntArray) -> FloatArray:
    quotient = np.full(len(span_s), np.nan)
    np.divide(span_s, tokens, out=quotient, where=tokens > 0)
    return quotient
