"""Chunked prefill mixed with decodes.

Paper: Sarathi-Serve (Agrawal et al., OSDI 2024); vLLM's chunked prefill.
Idea: every pass carries all decodes and fills what is left of a token budget with prompt chunks, so no decode waits.
Deviations: none known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.forest import Forest
from specsim.protocols import Step, View
from specsim.request import Bools, Ints
from specsim.schedulers.batching import Admission, decoding, prompt_chunks, seats
from specsim.schedulers.parameters import at_least, share
from specsim.work import Verify


@dataclass(frozen=True, slots=True)
class Sarathi:
    """Decodes first, then chunks of prompts up to the budget.

    Parameters
    ----------
    max_requests : most requests that hold cache.
    token_budget : batched tokens of a pass.
    watermark : share of the cache left free on admission.
    """

    max_requests: int
    token_budget: int
    watermark: float

    def __post_init__(self) -> None:
        at_least(1, max_requests=self.max_requests, token_budget=self.token_budget)
        share(watermark=self.watermark)

    def step(self, view: View) -> Step:
        """Yield one mixed pass."""
        resident = view.resident
        sizes = chunk_sizes(view.pending(resident), decoding(view, resident), self.token_budget)
        keep, free_bytes = seats(view, resident, sizes)
        running = keep & (sizes > 0)
        requests, tokens = resident[running], sizes[running]
        if view.waiting and keep.all():
            admission = Admission(self.max_requests, self.watermark)
            prompts = prompt_chunks(view, admission, self.token_budget - int(tokens.sum()), free_bytes)
            requests = np.concatenate((requests, prompts.requests))
            tokens = np.concatenate((tokens, prompts.tokens))
        yield Verify(requests, tokens, Forest.roots(len(requests)), resident[~keep])


def chunk_sizes(pending: Ints, decodes: Bools, budget: int) -> Ints:
    """Return the tokens (n,) that each resident feeds within `budget`: `decodes` (n,) one each, then the prompts."""
    left = budget - int(np.count_nonzero(decodes))
    if left >= 0 and decodes.all():
        return pending
    sizes = np.where(decodes, 0, pending)
    before = np.cumsum(sizes) - sizes
    sizes = np.clip(left - before, 0, sizes)
    seated = np.cumsum(decodes) <= budget
    return np.where(decodes, seated.astype(np.int64), sizes)
