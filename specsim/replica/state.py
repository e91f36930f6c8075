"""What the ledger writes down of each request: what was told at its arrival, and what has happened since."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from specsim.replica.request import Floats, Ints


@dataclass(frozen=True, slots=True)
class Facts:
    """What was told at arrival, (N,) each; a row is empty until its request has arrived."""

    arrival_s: Floats
    prompt_tokens: Ints
    max_tokens: Ints
    slo_class: Ints
    tpot_slo_s: Floats
    ttft_slo_s: Floats


@dataclass(frozen=True, slots=True)
class Progress:
    """What has happened to each request, (N,) each: tokens, seconds (NaN until it happens) and counts."""

    emitted_tokens: Ints
    target_cached: Ints
    draft_cached: Ints
    first_token_s: Floats
    first_decode_s: Floats
    last_token_s: Floats
    finish_s: Floats
    decoded_tokens: Ints
    draft_tokens: Ints
    accepted_tokens: Ints
    verifications: Ints
    speculations: Ints
    preemptions: Ints


def no_facts(n: int) -> Facts:
    """Return empty rows for `n` requests."""
    return Facts(_times(n), _numbers(n), _numbers(n), _numbers(n), _times(n), _times(n))


def no_progress(n: int) -> Progress:
    """Return rows of `n` requests to which nothing has happened."""
    arrays: dict[str, Any] = {
        name: _times(n) if name.endswith("_s") else _numbers(n) for name in Progress.__dataclass_fields__
    }
    return Progress(**arrays)


def _numbers(n: int) -> Ints:
    return np.zeros(n, dtype=np.int64)


def _times(n: int) -> Floats:
    return np.full(n, np.nan)
