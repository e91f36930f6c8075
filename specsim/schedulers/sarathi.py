"""Chunked prefill mixed with decodes.

Paper: Sarathi-Serve (Agrawal et al., OSDI 2024); Orca (Yu et al., OSDI 2022) mixes whole prompts; vLLM's V1 engine.
Idea: every pass has all decodes, and prompt chunks in the rest of a token budget, so no decode waits.
Deviations: a prompt is admitted when all of it fits, but takes its cache chunk by chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

import numpy as np

from specsim.core.passes import MOST_AT_ONCE, NOBODY
from specsim.core.protocols import View
from specsim.core.request import Bools, Ids, Ints
from specsim.schedulers.parts.batching import (
    Admission,
    Reserves,
    Scheduled,
    catch_up_tokens,
    decoding,
    keeping_cache,
    prompt_chunks,
)
from specsim.schedulers.parts.due_chunk import DueChunk
from specsim.schedulers.parts.protocols import Batching, Sequences, at_least, probability, sequences_of


@dataclass(frozen=True, slots=True)
class TokenBudget(Batching):
    """A batching part: all decodes and their drafts, then prompt chunks in the rest of a budget (vLLM V1).

    The budget keeps room for the drafts of each decode. Where they exceed it, only the first decodes run.

    Parameters
    ----------
    max_num_seqs : most requests that hold cache. watermark : share of the cache left free on admission.
    max_num_batched_tokens : most tokens of a pass, draft tokens included.
    lookahead : whether each decode keeps cache for what it verifies and for as many drafts behind that; the youngest
        yield where it lacks. vLLM asks `allocate_slots` for the scheduled tokens and `num_lookahead_tokens`.
    reserves : what has cache at admission, a key of `RESERVES`.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    watermark: float
    lookahead: bool = False
    reserves: Reserves = "prompt"
    stationary = True

    def __post_init__(self) -> None:
        at_least(1, max_num_seqs=self.max_num_seqs, max_num_batched_tokens=self.max_num_batched_tokens)
        probability(watermark=self.watermark)

    def sequences(self, view: View, drafting: bool, draft_tokens: int = 0) -> Sequences:
        """Return decodes and prompt chunks."""
        decodes = decoding(view, view.running)
        count, budget = int(np.count_nonzero(decodes)), self.max_num_batched_tokens
        runnable = budget // (1 + draft_tokens)
        budget = budget - count * draft_tokens if count <= runnable else runnable
        lookahead = draft_tokens if self.lookahead else 0
        admission = Admission(self.max_num_seqs, self.watermark, drafting, draft_tokens, lookahead, self.reserves)
        return chunked(view, decodes, budget, admission)


@dataclass(frozen=True, slots=True)
class Chunked(Batching):
    """A batching part: all decodes, and prompt chunks beside or before them.

    Parameters
    ----------
    max_num_seqs : most requests that hold cache. watermark : share of the cache left free on admission.
    prefill_tokens : prompt tokens of a pass, or what follows the batch and the prompts' objectives.
    prefill : "mixed" puts chunks beside the decodes, "first" lets them run alone first.
    """

    max_num_seqs: int
    prefill_tokens: int | DueChunk
    prefill: Literal["mixed", "first"]
    watermark: float
    stationary = True

    def __post_init__(self) -> None:
        at_least(1, max_num_seqs=self.max_num_seqs)
        if isinstance(self.prefill_tokens, int):
            at_least(1, prefill_tokens=self.prefill_tokens)
        probability(watermark=self.watermark)

    def sequences(self, view: View, drafting: bool, draft_tokens: int = 0) -> Sequences:
        """Return decodes and prompt chunks."""
        decodes = decoding(view, view.running)
        budget = int(np.count_nonzero(decodes)) + self._chunk(view, decodes, drafting, draft_tokens)
        admission = Admission(self.max_num_seqs, self.watermark, drafting)
        return chunked(view, decodes, budget, admission, first=self.prefill == "first")

    def _chunk(self, view: View, decodes: Bools, drafting: bool, draft_tokens: int) -> int:
        if isinstance(self.prefill_tokens, int):
            return self.prefill_tokens
        if self.prefill == "first":
            return self.prefill_tokens.max_num_batched_tokens
        return self.prefill_tokens(view, decodes, self.max_num_seqs, draft_tokens if drafting else None)


def chunked(view: View, decodes: Bools, budget: int, admission: Admission, *, first: bool = False) -> Sequences:
    """Return the rows of a pass of `budget` tokens beside drafts; with `first`, prompts run alone if there are any."""
    (requests, tokens), evicted = mixed(view, decodes, budget, admission)
    if len(requests) == len(decodes) and decodes.all():
        catch_up, most = catch_up_tokens(view, requests), len(requests) * (1 + admission.lookahead) * (MOST_AT_ONCE + 2)
        roomy = not admission.lookahead or view.surely_fits(len(requests), most, most)
        return Sequences(requests, tokens, len(requests), catch_up, evicted, stationary_until_s=inf if roomy else -inf)
    return sequences_of(view, requests, tokens, evicted, first=first)


def mixed(view: View, decodes: Bools, budget: int, admission: Admission) -> tuple[Scheduled, Ids]:
    """Return the chunks of a pass of `budget` tokens, and the preempted; if any is preempted, none is admitted.

    Running requests that decode, `decodes` (n,), go first, then begun prompts, then new ones.
    """
    resident, ahead = view.running, 2 * admission.lookahead
    sizes = chunk_sizes(view.pending(resident), decodes, budget)
    more = len(resident) * (1 + ahead)
    if not view.waiting and decodes.all() and view.surely_fits(len(resident), more, more if ahead else 0):
        run = sizes > 0
        return Scheduled(resident[run], sizes[run]), NOBODY
    kept = sizes + ahead * decodes
    keep, free_bytes = keeping_cache(view, resident, kept, kept if ahead else 0)
    run = keep & (sizes > 0)
    running = Scheduled(resident[run], sizes[run])
    if view.waiting and keep.all():
        new = prompt_chunks(view, admission, budget - int(np.add.reduce(running.tokens)), free_bytes)
        if not len(new.requests):
            return running, NOBODY
        running = Scheduled(*(np.concatenate(both) for both in zip(running, new, strict=True)))
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
