"""Speculation with a fixed number of draft tokens.

Paper: vLLM-Spec(k) as AdaServe (EuroSys '26, section 6.1) and SmartSpec compare with it; Leviathan et al. 2023.
Idea: every decoding step drafts k tokens for each request and verifies the chains; prompts are read as the engine does.
Deviations: a step without memory for k tokens decodes without drafts instead of preempting. Without memory for that,
the youngest request is preempted, and the others draft if they then can. The drafter's prefill is a pass of its own
before the target's.
"""

from __future__ import annotations

from dataclasses import dataclass

from specsim.core.protocols import View
from specsim.schedulers.parts.growth import grow_trees, rows_fit
from specsim.schedulers.parts.protocols import Growing, Rows, Speculation, draft_length


@dataclass(frozen=True, slots=True)
class FixedChains(Speculation):
    """A speculation part: every request drafts a chain of `num_speculative_tokens` in every step; 0 never drafts."""

    num_speculative_tokens: int
    stationary = True

    def __post_init__(self) -> None:
        draft_length(num_speculative_tokens=self.num_speculative_tokens)

    @property
    def drafts(self) -> bool:
        """Whether it drafts: always, unless `num_speculative_tokens` is 0."""
        return self.num_speculative_tokens > 0

    def draft_tokens(self, requests: int) -> int:
        """Return k."""
        return self.num_speculative_tokens

    def grow(self, view: View, rows: Rows) -> Growing:
        """Yield a draft pass per token and return the chains; none if they do not all fit."""
        depth = self.num_speculative_tokens
        if not rows_fit(view, rows, depth):
            depth = 0
        return grow_trees(view, rows.requests, rows.fed, rows.decoding, depth, 1, rows.stationary_until_s)
