"""The clock of a run run again: its decisions with other seconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from specsim.core.request import Floats


class Step(NamedTuple):
    """A pass: who is in it, the tokens that each emits at its end (none: empty), and its seconds."""

    requests: tuple[int, ...]
    emitted: tuple[int, ...]
    seconds: float


class Times(NamedTuple):
    """When each request emitted its first and its last token, in seconds, NaN for none, and how many tokens, (N,)."""

    first_token_s: Floats
    finish_s: Floats
    tokens: Floats

    def means(self, arrival_s: Floats) -> dict[str, float]:
        """Return the means of TTFT, TPOT and E2E latency in seconds, of requests that arrive at `arrival_s` (N,)."""
        with np.errstate(invalid="ignore"):
            tpot_s = (self.finish_s - self.first_token_s) / np.where(self.tokens > 1, self.tokens - 1, np.nan)
        whole = {
            "ttft_s": self.first_token_s - arrival_s,
            "tpot_s": tpot_s,
            "e2el_s": self.finish_s - arrival_s,
        }
        return {name: float(np.nanmean(each)) if np.isfinite(each).any() else np.nan for name, each in whole.items()}


def accounted(steps: Iterable[Step], arrival_s: Floats) -> Times:
    """Return the times at which tokens come if passes take these seconds, in this order.

    A pass begins when the one before has ended and all of its requests (N, by index of `arrival_s`) have arrived.
    """
    now = 0.0
    first, last, count = np.full(len(arrival_s), np.nan), np.full(len(arrival_s), np.nan), np.zeros(len(arrival_s))
    for requests, emitted, seconds in steps:
        ids = np.array(requests, dtype=np.int64)
        now = max(now, float(arrival_s[ids].max(initial=0.0))) + seconds
        if emitted:
            tokens = np.array(emitted)
            ids, tokens = ids[tokens > 0], tokens[tokens > 0]
            first[ids[count[ids] == 0]] = now
            last[ids] = now
            count[ids] += tokens
    return Times(first, last, count)
