"""Which requests a replica refuses when they arrive, since it has too much to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from specsim.pass_shape import PassShape
from specsim.replica.ledger import Ledger
from specsim.replica.protocols import Belief
from specsim.replica.request import Requests

WAITING, TTFT = "shed_waiting", "shed_ttft"
"""The reasons of requests that are refused since a replica has too much to do."""
CONTEXT_LENGTH = "context_length"
"""The reason of a request that is longer than the target's context."""


class Shedding(NamedTuple):
    """When a replica refuses a request.

    Attributes
    ----------
    waiting : a request that meets so many that hold no cache is refused; None: however many.
    ttft : whether a request is refused that would miss its TTFT objective even if the target read, in one pass, all
        that is unread of the texts before it and its own prompt. Seconds are those that schedulers believe in.
    """

    waiting: int | None = None
    ttft: bool = False

    def reason(
        self, request: int, told: Requests, ledger: Ledger, unseen: Sequence[int], belief: Belief, now_s: float
    ) -> str | None:
        """Return why a request is refused that arrives now, None if it is not; `unseen` wait for the engine's door."""
        if self.waiting is not None and len(ledger.roster.waiting) + len(unseen) >= self.waiting:
            return WAITING
        left_s = float(told.ttft_slo_s[request] + told.arrival_s[request]) - now_s
        if self.ttft and self._reading_s(request, told, ledger, unseen, belief) > left_s:
            return TTFT
        return None

    def _reading_s(self, request: int, told: Requests, ledger: Ledger, unseen: Sequence[int], belief: Belief) -> float:
        """Return the seconds of the pass that reads what is unread; a decoding request has read its text."""
        here = np.concatenate((np.array(ledger.roster.waiting, dtype=np.int64), ledger.roster.running))
        new = np.array([*unseen, request], dtype=np.int64)
        cached = np.concatenate((ledger.progress.target_cached[here], told.cached_tokens[new]))
        lacks = np.concatenate((ledger.known(here), told.prompt_tokens[new])) - cached
        reading = (lacks > 1) | (np.arange(len(lacks)) == len(lacks) - 1)
        chunks = lacks[reading]
        return belief.target.seconds(PassShape.of(cached[reading], chunks, prefill_tokens=int(np.add.reduce(chunks))))
