"""Chunked prefill mixed with decodes.

Paper: Sarathi-Serve (Agrawal et al., OSDI 2024); vLLM's chunked prefill.
Idea: every pass has all decodes, and prompt chunks in the rest of a token budget, so no decode waits.
Deviations: a prompt is admitted when all of it fits, but takes its cache chunk by chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from specsim.replica.passes import NOBODY, TargetPass
from specsim.replica.protocols import Step, View
from specsim.replica.request import Bools, Ids, Ints
from specsim.replica.trees import Forest
from specsim.schedulers.parts.batching import Admission, Chunks, decoding, lag, prompt_chunks, seats
from specsim.schedulers.parts.parameters import at_least, share
from specsim.schedulers.parts.protocols import Batching, Rows, rows_of


@dataclass(frozen=True, slots=True)
class Sarathi:
    """Decodes first, then chunks of prompts up to the budget.

    Parameters
    ----------
    max_num_seqs : most requests that hold cache.
    token_budget : batched tokens of a pass.
    watermark : share of the cache left free on admission.
    """

    max_num_seqs: int
    token_budget: int
    watermark: float
    repeats = True

    def __post_init__(self) -> None:
        at_least(1, max_num_seqs=self.max_num_seqs, token_budget=self.token_budget)
        share(watermark=self.watermark)

    def step(self, view: View) -> Step:
        """Yield one mixed pass."""
        decodes = decoding(view, view.running)
        (requests, tokens), evicted = mixed(
            view, decodes, self.token_budget, Admission(self.max_num_seqs, self.watermark)
        )
        same = len(requests) == len(decodes) and bool(decodes.all())
        yield TargetPass(requests, tokens, Forest.roots(len(requests)), evicted, repeat=same, beyond_ends=same)


@dataclass(frozen=True, slots=True)
class Chunked(Batching):
    """A batching part: all decodes, and prompt chunks beside or before them.

    Parameters
    ----------
    max_num_seqs : most requests that hold cache. watermark : share of the cache left free on admission.
    prefill_tokens : prompt tokens of a pass.
    prefill : "mixed" puts chunks beside the decodes, "first" lets them run alone first.
    """

    max_num_seqs: int
    prefill_tokens: int
    prefill: Literal["mixed", "first"]
    watermark: float
    repeats = True

    def __post_init__(self) -> None:
        at_least(1, max_num_seqs=self.max_num_seqs, prefill_tokens=self.prefill_tokens)
        share(watermark=self.watermark)

    def rows(self, view: View, drafting: bool) -> Rows:
        """Return decodes and prompt chunks."""
        decodes = decoding(view, view.running)
        budget = int(np.count_nonzero(decodes)) + self.prefill_tokens
        running, evicted = mixed(view, decodes, budget, Admission(self.max_num_seqs, self.watermark, drafting))
        requests, tokens = running
        if len(requests) == len(decodes) and decodes.all():
            fed = lag(view, requests)
            return Rows(requests, tokens, len(requests), fed, evicted, repeat=True, beyond_ends=True)
        return rows_of(view, *running, evicted, first=self.prefill == "first")


def mixed(view: View, decodes: Bools, budget: int, admission: Admission) -> tuple[Chunks, Ids]:
    """Return the chunks of a pass of `budget` tokens, and the preempted; if any is preempted, none is admitted.

    Running requests that decode, `decodes` (n,), go first, then begun prompts, then new ones.
    """
    resident = view.running
    sizes = chunk_sizes(view.pending(resident), decodes, budget)
    if not view.waiting and decodes.all() and view.surely_fits(len(resident), len(resident), 0):
        run = sizes > 0
        return Chunks(resident[run], sizes[run]), NOBODY
    keep, free_bytes = seats(view, resident, sizes)
    run = keep & (sizes > 0)
    running = Chunks(resident[run], sizes[run])
    if view.waiting and keep.all():
        new = prompt_chunks(view, admission, budget - int(np.add.reduce(running.tokens)), free_bytes)
        if not len(new.requests):
            return running, NOBODY
        running = Chunks(*(np.concatenate(both) for both in zip(running, new, strict=True)))
    return running, resident[~keep]


def chunk_sizes(pending: Ints, decodes: Bools, budget: int) -> Ints:
    """Return the tokens (n,) of each running request within `budget`: `decodes` (n,) one each, then the prompts."""
    left = budget - int(np.count_nonzero(decodes))
    if left >= 0 and decodes.all():
        return pending
    sizes: Ints = np.where(decodes, 0, pending)
    before = np.add.accumulate(sizes) - sizes
    sizes = np.minimum(np.maximum(left - before, 0), sizes)
    if left >= 0:
        sizes += decodes
        return sizes
    return np.where(decodes, (np.add.accumulate(decodes, dtype=np.int64) <= budget).astype(np.int64), sizes)
