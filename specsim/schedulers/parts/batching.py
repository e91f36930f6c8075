"""Rules of admission and preemption, as pure functions of the view."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np

from specsim.core.passes import NOBODY
from specsim.core.protocols import View
from specsim.core.request import Bools, Ids, Ints

TOGETHER = 8
"""Waiting requests that are measured in one call: one alone takes as long."""


class Scheduled(NamedTuple):
    """Requests (n,), and the pending tokens (n,) of each in the next pass."""

    requests: Ids
    tokens: Ints


NONE_SCHEDULED = Scheduled(NOBODY, NOBODY)


class Reserve(NamedTuple):
    """Cache at admission for what may follow: so many tokens of a newcomer at most, a share of them of the others."""

    running_share: float
    most_tokens: int


Reserves = Literal["prompt", "max_tokens", "estimate"]
RESERVES: dict[str, Reserve] = {
    "prompt": Reserve(0.0, 1),
    "max_tokens": Reserve(1.0, 1 << 30),
    "estimate": Reserve(0.098, 4096),
}
"""Engines reserve. vLLM: a prompt. TensorRT-LLM's GUARANTEED_NO_EVICT: all that may follow, so that it never
preempts. SGLang's `PrefillAdder`: 4,096 tokens (CLIP_MAX_NEW_TOKENS_ESTIMATION), of running requests the share that
its `new_token_ratio` reaches after 600 steps (0.7 before, and after a retraction more, which is not modelled)."""


class Admission(NamedTuple):
    """Limits of admission.

    Attributes
    ----------
    most_requests : batch slots, those taken included.
    watermark : share of the pool left free while any request runs (vLLM's 1%), where prompts alone are reserved.
    drafting : whether the drafter will cache the prompt too.
    draft_tokens : what a request with nothing to read may verify at once, beside its own token.
    lookahead : draft tokens that cache is kept for, behind what a request is to verify.
    reserves : a key of `RESERVES`.
    """

    most_requests: int
    watermark: float = 0.01
    drafting: bool = False
    draft_tokens: int = 0
    lookahead: int = 0
    reserves: str = "prompt"

    def candidates(self, view: View, free_bytes: float) -> Iterator[tuple[int, int]]:
        """Yield (request, pending tokens) first come first served while slots and `free_bytes` of cache last."""
        taken = len(view.running)
        share, most_ahead = RESERVES[self.reserves]
        if taken and share:
            free_bytes = min(free_bytes, view.free_bytes - self._reserved_bytes(view))
        elif taken:
            free_bytes -= self.watermark * view.capacity_bytes
        line = islice(view.waiting, max(self.most_requests - taken, 0))
        while some := list(islice(line, TOGETHER)):
            ids = np.array(some)
            need = view.pending(ids)
            # No request needs more slots behind its text than tokens may follow.
            left = view.max_tokens[ids] - view.emitted_tokens[ids]
            ahead = np.minimum(max(1 + self.lookahead, most_ahead), left) if self.lookahead or share else 1
            held = view.target_cached[ids] + need + ahead
            # Who was read on another replica, or lies on the host, comes with both caches even if nothing is drafted;
            # blocks of a prompt that others share stay theirs.
            brought = view.draft_cached[ids] * decoding(view, ids)
            growth = view.growth_bytes(ids, held, held if self.drafting else brought)
            for request, tokens, more in zip(some, need.tolist(), growth.tolist(), strict=True):
                free_bytes -= more
                if free_bytes < 0:
                    return
                yield request, tokens

    def _reserved_bytes(self, view: View) -> float:
        """Return the bytes by which the running requests may grow into what is reserved for them."""
        ids, pending, (share, most) = view.running, view.pending(view.running), RESERVES[self.reserves]
        ahead = np.ceil(share * np.minimum(view.max_tokens[ids] - view.emitted_tokens[ids], most)).astype(np.int64)
        text = view.target_cached[ids] + pending
        drafted = text + ahead if self.drafting else view.draft_cached[ids]
        return float(view.growth_bytes(ids, text + ahead, drafted).sum())


def decoding(view: View, ids: Ids) -> Bools:
    """Return which requests decode, (n,): they have emitted, and only their last token is uncached.

    A prompt with one token left to read does not decode.
    """
    lacking_one: Bools = (view.pending(ids) == 1) & (view.emitted_tokens[ids] > 0)
    return lacking_one


def unread(view: View, scheduled: Scheduled) -> bool:
    """Return whether a request has a text to read; a request read on another replica has none."""
    return len(scheduled.requests) > 0 and not bool(decoding(view, scheduled.requests).all())


def catch_up_tokens(view: View, ids: Ids) -> Ints:
    """Return the tokens that the drafter's cache lacks, (n,); 0 for requests that can no longer use a draft."""
    useful = view.max_tokens[ids] - view.emitted_tokens[ids] > 1
    lacking: Ints = useful * view.draft_pending(ids)
    return lacking


def whole_prompts(view: View, admission: Admission, most_tokens: int, *, cut: bool = False) -> Scheduled:
    """Return the prompts of one prefill pass of at most `most_tokens`; a longer prompt goes alone.

    With `cut` it goes in several passes, and whole prompts fill the last of them.
    """
    free_bytes, chosen = float(view.free_bytes), list[tuple[int, int]]()
    begun = view.running[~decoding(view, view.running)] if cut else NOBODY
    if len(begun):
        pending, cached = view.pending(begun), view.target_cached[begun]
        drafted = np.maximum(view.draft_cached[begun], (cached + pending) * admission.drafting)
        free_bytes -= float(view.growth_bytes(begun, cached + pending, drafted).sum())
        chosen = [
            (request, min(need, most_tokens)) for request, need in zip(begun.tolist(), pending.tolist(), strict=True)
        ]
    left = most_tokens - sum(tokens for _, tokens in chosen)
    for request, need in admission.candidates(view, free_bytes) if left > 0 else ():
        if chosen and need > left:
            break
        chosen.append((request, min(need, most_tokens) if cut else need))
        left -= need
    return _scheduled(chosen)


def read_along(view: View, prompts: Scheduled) -> Ints:
    """Return the tokens of prompts that the drafter reads, (n,): all that it lacks, of a part as many at most."""
    lacking = catch_up_tokens(view, prompts.requests)
    parts = prompts.tokens < view.pending(prompts.requests)
    return np.minimum(lacking, prompts.tokens, out=lacking, where=parts) if parts.any() else lacking


def prompt_chunks(view: View, admission: Admission, most_tokens: int, free_bytes: float) -> Scheduled:
    """Return the waiting prompts that start within `most_tokens`, the last one cut to fit (Sarathi-Serve)."""
    chosen: list[tuple[int, int]] = []
    left = most_tokens
    if left > 0:
        for request, need in admission.candidates(view, free_bytes):
            drafts = admission.draft_tokens if need == 1 and view.emitted_tokens[request] > 0 else 0
            if drafts and need + drafts > left:
                break
            chosen.append((request, min(need, left)))
            left -= need + drafts
            if left <= 0:
                break
    return _scheduled(chosen)


def _scheduled(chosen: list[tuple[int, int]]) -> Scheduled:
    pairs = np.array(chosen, dtype=np.int64).reshape(-1, 2)
    return Scheduled(pairs[:, 0], pairs[:, 1])


def oldest_first(view: View, ids: Ids) -> Ints:
    """Return the places of `ids` (n,) in order of arrival."""
    return np.lexsort((ids, view.arrival_s[ids]))


def keeping_cache(view: View, ids: Ids, target_growth: Ints, draft_growth: Ints | int = 0) -> tuple[Bools, float]:
    """Return which running requests `ids` keep their cache, (n,), when the youngest yield until the others can grow.

    `target_growth` and `draft_growth` (n,) are the tokens that each adds to the caches. Also return the bytes then left
    free.
    """
    target, draft = view.target_cached[ids] + target_growth, view.draft_cached[ids] + draft_growth
    growth = view.growth_bytes(ids, target, draft)
    keep = np.ones(len(ids), dtype=np.bool_)
    left = float(view.free_bytes - growth.sum())
    if left >= 0:
        return keep, left
    held = view.held_bytes(ids)
    for youngest in oldest_first(view, ids)[:0:-1].tolist():
        keep[youngest] = False
        left += int(growth[youngest]) + int(held[youngest])
        if left >= 0:
            break
    return keep, left
