"""Speculation with a fixed number of draft tokens.

Paper: vLLM-Spec(k) as AdaServe (EuroSys '26, section 6.1) and SmartSpec compare with it; Leviathan et al. 2023.
Idea: continuous batching, whole prompts first; every decoding step drafts k tokens a request and verifies the chain.
Deviations: where memory is short for k tokens the step decodes plainly instead of preempting; the drafter's prefill
runs as a pass of its own before the target's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.forest import Forest
from specsim.protocols import Step, View
from specsim.schedulers.batching import Admission, Chunks, lag, whole_prompts
from specsim.schedulers.continuous import decode
from specsim.schedulers.parameters import at_least, share
from specsim.schedulers.parts import Growing, Rows, Speculation
from specsim.schedulers.speculation import grow_trees, trees_fit
from specsim.work import Draft, Verify


@dataclass(frozen=True, slots=True)
class VllmSpec:
    """Chains of `draft_tokens` for everybody, always.

    Parameters
    ----------
    draft_tokens : k, at least 0; 0 is plain continuous batching.
    max_requests, prefill_tokens, watermark : as in `Continuous`.
    """

    draft_tokens: int
    max_requests: int
    prefill_tokens: int
    watermark: float

    def __post_init__(self) -> None:
        at_least(0, draft_tokens=self.draft_tokens)
        at_least(1, max_requests=self.max_requests, prefill_tokens=self.prefill_tokens)
        share(watermark=self.watermark)

    def step(self, view: View) -> Step:
        """Yield a prefill of both models where possible, else k draft passes and a verification."""
        if view.waiting:
            admission = Admission(self.max_requests, self.watermark, drafting=self.draft_tokens > 0)
            prompts = whole_prompts(view, admission, self.prefill_tokens)
            if len(prompts.requests):
                yield from prefill(view, prompts, drafting=self.draft_tokens > 0)
                return
        running = view.resident
        ones, fed = np.ones(len(running), dtype=np.int64), lag(view, running)
        if not self.draft_tokens or not trees_fit(view, running, ones, len(running), self.draft_tokens, fed):
            yield decode(view)
            return
        forest = yield from grow_trees(view, running, fed, len(running), self.draft_tokens, width=1)
        yield Verify(running, ones, forest)


@dataclass(frozen=True, slots=True)
class FixedChains(Speculation):
    """A speculation part: chains of `draft_tokens` for everybody, always; 0 never drafts."""

    draft_tokens: int

    def __post_init__(self) -> None:
        at_least(0, draft_tokens=self.draft_tokens)

    @property
    def drafts(self) -> bool:
        """Unless the chains are empty."""
        return self.draft_tokens > 0

    def grow(self, view: View, rows: Rows) -> Growing:
        """Yield a draft pass per token and return the chains; none where they do not all fit."""
        depth = self.draft_tokens
        if not trees_fit(view, rows.requests, rows.chunks, rows.decoding, depth, rows.fed):
            depth = 0
        return grow_trees(view, rows.requests, rows.fed, rows.decoding, depth, width=1)


def prefill(view: View, prompts: Chunks, drafting: bool) -> Step:
    """Yield the drafter's and the target's prefill of whole prompts."""
    roots = Forest.roots(len(prompts.requests))
    fed = lag(view, prompts.requests)
    if drafting and fed.any():
        yield Draft(prompts.requests, fed, roots)
    yield Verify(prompts.requests, prompts.tokens, roots)
