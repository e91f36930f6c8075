"""Continuous batching, whole prompts first.

Paper: vLLM (Kwon et al., SOSP 2023), as its V0 engine schedules without chunked prefill.
Idea: requests join and leave between iterations. While a waiting prompt fits, it is prefilled and decodes wait.
Deviations: a preempted request is recomputed (vLLM's default for single sequences), never swapped. A prompt longer
than a pass goes alone (vLLM refuses it), with `chunked_prefill` in several passes (SGLang, which fills each pass with a
part of a prompt).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from specsim.core.passes import NOBODY, TargetPass
from specsim.core.protocols import View
from specsim.core.request import Ids
from specsim.core.trees import Forest
from specsim.schedulers.parts.batching import (
    NONE_SCHEDULED,
    Admission,
    Reserves,
    Scheduled,
    catch_up_tokens,
    keeping_cache,
    read_along,
    unread,
    whole_prompts,
)
from specsim.schedulers.parts.protocols import Batching, Sequences, at_least, probability


@dataclass(frozen=True, slots=True)
class PrefillFirst(Batching):
    """A batching part: whole prompts if some fit, else all decoding requests.

    Newcomers with nothing left to read, whose prompts were read on another replica, decode beside the others.

    Parameters
    ----------
    max_num_seqs : most requests that hold cache (vLLM's max_num_seqs).
    max_num_batched_tokens : most prompt tokens of one prefill pass; a longer prompt goes alone.
    watermark : share of the cache left free on admission.
    chunked_prefill : whether a longer prompt goes in several passes, one after the other.
    reserves : what has cache at admission, a key of `RESERVES`.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    watermark: float
    chunked_prefill: bool = False
    reserves: Reserves = "prompt"
    stationary = True

    def __post_init__(self) -> None:
        at_least(1, max_num_seqs=self.max_num_seqs, max_num_batched_tokens=self.max_num_batched_tokens)
        probability(watermark=self.watermark)

    def prompts(self, view: View, drafting: bool) -> Scheduled:
        """Return the prompts of the next pass; none if none fits."""
        if not view.waiting and not self.chunked_prefill:
            return NONE_SCHEDULED
        admission = Admission(self.max_num_seqs, self.watermark, drafting, reserves=self.reserves)
        return whole_prompts(view, admission, self.max_num_batched_tokens, cut=self.chunked_prefill)

    def sequences(self, view: View, drafting: bool, draft_tokens: int = 0) -> Sequences:
        """Return waiting prompts if some fit, else all decoding requests."""
        prompts = self.prompts(view, drafting)
        if unread(view, prompts):
            return Sequences(*prompts, 0, read_along(view, prompts))
        plain = decode(view, prompts.requests, stationary_until_s=inf)
        ids, until_s = plain.requests, plain.stationary_until_s
        return Sequences(
            ids, plain.scheduled_tokens, len(ids), catch_up_tokens(view, ids), plain.evict, stationary_until_s=until_s
        )


def decode(view: View, joining: Ids = NOBODY, *, stationary_until_s: float = -inf) -> TargetPass:
    """Return one decode pass of every running request; preempts the youngest if memory is short.

    `joining` (m,) are waiting requests with nothing left to read, who decode too where there is memory for all.
    `stationary_until_s` is as in `TargetPass`.
    """
    running, evicted = view.running, NOBODY
    everybody = np.concatenate((running, joining)) if len(joining) else running
    if len(joining) and keeping_cache(view, everybody, np.ones_like(everybody))[0].all():
        running = everybody
    elif not view.surely_fits(len(running), len(running), 0):
        keep, _ = keeping_cache(view, running, np.ones_like(running))
        running, evicted = running[keep], running[~keep]
    roots = Forest.roots(len(running))
    return TargetPass(running, np.ones_like(running), roots, evicted, stationary_until_s=stationary_until_s)
