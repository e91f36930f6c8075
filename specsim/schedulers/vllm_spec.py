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
from specsim.schedulers.parts.growth import grow_chains
from specsim.schedulers.parts.protocols import Chains, Growing, Sequences


@dataclass(frozen=True, slots=True)
class FixedChains(Chains):
    """A speculation part: every request drafts a chain of `num_speculative_tokens` in every step; 0 never drafts."""

    num_speculative_tokens: int
    stationary = True

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Yield a draft pass per token and return the chains; none if they do not all fit."""
        return grow_chains(view, sequences, self.num_speculative_tokens)
