"""SmartSpec from two parts: which prompts are read, and which prefix of the decoding requests runs with what drafts.

Paper: SmartSpec (Liu et al. 2024), Algorithm 2 and section 5, "Prefill disabling".
Idea: prompts first; then a proposal chooses a prefix and its drafts at once, which `Composed` decides one after the
other. Draft prefill stops while proposals are empty.
Deviations: the paper's vLLM reads prompts first. On an engine that mixes, all decodes run beside prompts, the proposal
chooses the length alone, and the drafter reads every prompt. For the others see chains.py.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, cast

import numpy as np

from specsim.core.passes import NOBODY, DraftPass, Emitted, TargetPass
from specsim.core.protocols import Beginning, Oracle, Step, UsesOracle, View
from specsim.core.request import Ids, Ints
from specsim.core.trees import Forest
from specsim.schedulers.composed import Composed
from specsim.schedulers.continuous import PrefillFirst
from specsim.schedulers.parts.batching import (
    Scheduled,
    catch_up_tokens,
    keeping_cache,
    oldest_first,
    read_along,
    unread,
)
from specsim.schedulers.parts.growth import grow, useful_depth
from specsim.schedulers.parts.protocols import Batching, Sequences, Speculation, at_least, draft_length, evicting
from specsim.schedulers.sarathi import TokenBudget
from specsim.schedulers.smartspec.goodput import Batch


class Proposal(NamedTuple):
    """Trees of the first `forest.rows` requests of the batch, and how many tokens count as proposed."""

    forest: Forest
    proposed: int


Proposing = Generator[DraftPass, Forest, Proposal]
"""Yields draft passes, is sent their forests, returns what to verify."""


@dataclass
class PrefillFeedback:
    """Draft prefill, switched off while more than `threshold` of the past decode steps proposed nothing (section 5).

    A request prefilled meanwhile is never speculated on: its steps then propose nothing either, which raises the share.
    A preempted one is asked about anew when its prompt is read again. `plain` (N,) are those never speculated on.
    """

    threshold: float
    steps: int = field(default=0, init=False)
    idle: int = field(default=0, init=False)

    @property
    def drafting(self) -> bool:
        """Whether a prompt read now is read by the drafter too."""
        return not self.steps or self.idle / self.steps <= self.threshold

    def begin(self, requests: int) -> None:
        """Make the state of so many requests."""
        self.plain = np.zeros(requests, dtype=np.bool_)

    def update(self, proposed: int) -> None:
        """Count a decode step in which so many tokens were proposed."""
        self.steps += 1
        self.idle += not proposed


class Proposer(Protocol):
    """A `Speculation` that chooses among the rows, too: the prefix that runs, and its trees.

    A part that derives from this learns nothing unless it defines `on_verified`.
    """

    @property
    def max_depth(self) -> int:
        """The most draft tokens of a path, V in the paper; 0 where it never drafts."""

    @property
    def max_width(self) -> int:
        """The most children of one node that it ever asks for; 1 where a part does not say."""
        return 1

    def propose(self, view: View, batch: Batch) -> Proposing:
        """Yield draft passes, the first of which feeds what the prefix lacks, and return the trees of the prefix."""

    def on_verified(self, view: View, sequences: Sequences, forest: Forest, answer: Emitted) -> None:
        """Hear what was accepted of `forest`."""


class ChainProposer(Proposer):
    """A `Proposer` of chains of at most `num_speculative_tokens` draft tokens."""

    num_speculative_tokens: int

    def __post_init__(self) -> None:
        draft_length(num_speculative_tokens=self.num_speculative_tokens)

    @property
    def max_depth(self) -> int:
        """The most draft tokens of a chain."""
        return self.num_speculative_tokens


@dataclass
class SmartSpec:
    """One step: prompts where some fit, else the drafts and the verification of the prefix that the proposal chooses.

    Parameters
    ----------
    batching : which prompts are read, and when: `PrefillFirst`, or `TokenBudget` beside the decodes.
    proposal : which prefix of the decoding requests runs, and its drafts.
    prefill_threshold : share of past decode steps without a proposal above which new prompts are kept from the drafter
        and their requests never speculated on; 1 never.
    """

    batching: Batching
    proposal: Proposer
    prefill_threshold: float
    _mixed: Composed | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        at_least(0, prefill_threshold=self.prefill_threshold)
        self.feedback = PrefillFeedback(self.prefill_threshold)
        if isinstance(self.batching, TokenBudget) and hasattr(self.proposal, "grow"):
            self._mixed = Composed(self.batching, cast(Speculation, self.proposal))
        elif not isinstance(self.batching, PrefillFirst):
            named, part = type(self.proposal).__name__, type(self.batching).__name__
            raise ValueError(f"batching: {part} does not go with {named}; expected PrefillFirst")

    @property
    def drafts(self) -> bool:
        """Whether it ever drafts."""
        return self.proposal.max_depth > 0

    @property
    def max_width(self) -> int:
        """The most children of one node that a draft pass is ever asked for."""
        return self.proposal.max_width

    def begin(self, requests: int) -> None:
        """Have the parts make their state of so many requests."""
        for part in (self.batching, self.proposal, self.feedback):
            if isinstance(part, Beginning):
                part.begin(requests)

    def step(self, view: View) -> Step:
        """Yield a prefill of both models where possible, else draft passes and one verification of a prefix."""
        if self._mixed is not None:
            yield from self._mixed.step(view)
            return
        # A drafter without a cache of its own reads no prompts: there is nothing to spare.
        drafting = self.proposal.max_depth > 0 and (self.feedback.drafting or not view.cost_model.draft.cached)
        assert isinstance(self.batching, PrefillFirst)
        requests, tokens = self.batching.prompts(view, drafting)
        if len(requests):
            self.feedback.plain[requests] = not drafting
        if unread(view, Scheduled(requests, tokens)):
            roots, catch_up = Forest.roots(len(requests)), read_along(view, Scheduled(requests, tokens))
            if drafting and catch_up.any():
                yield DraftPass(requests, catch_up, roots)
            yield TargetPass(requests, tokens, roots)
            return
        batch = self._batch(view, requests)
        proposing, evicted = self.proposal.propose(view, batch), batch.evicted
        most_tokens = self.batching.max_num_batched_tokens
        if len(evicted) or int(np.add.reduce(batch.catch_up)) > most_tokens:
            (forest, proposed), evicted = yield from evicting(proposing, evicted, most_tokens=most_tokens)
        else:
            forest, proposed = yield from proposing
        self.feedback.update(proposed)
        n = forest.rows
        sequences = Sequences(batch.requests[:n], np.ones(n, dtype=np.int64), n, batch.catch_up[:n])
        answer = yield TargetPass(sequences.requests, sequences.scheduled_tokens, forest, evicted)
        self.proposal.on_verified(view, sequences, forest, answer)

    def _batch(self, view: View, joining: Ids) -> Batch:
        """Return all residents, who all decode, by age: one let in again after a preemption keeps its place.

        So do those `joining` (m,), who were read on another replica, where there is memory for all. Where the oldest
        has no slot to decode in, the youngest give way until all others have.
        """
        requests, evicted = np.concatenate((view.running, joining)) if len(joining) else view.running, NOBODY
        if len(joining) and not keeping_cache(view, requests, np.ones_like(requests))[0].all():
            requests = view.running
        requests = requests[oldest_first(view, requests)]
        if not has_slot(view, requests[:1]):
            keep, _ = keeping_cache(view, requests, np.ones_like(requests))
            requests, evicted = requests[keep], requests[~keep]
        longest = np.minimum(useful_depth(view, requests), self.proposal.max_depth)
        longest[self.feedback.plain[requests]] = 0
        return Batch(
            requests,
            view.target_cached[requests],
            view.draft_cached[requests],
            catch_up_tokens(view, requests),
            longest,
            evicted,
        )


@dataclass(slots=True)
class SmartSpecWithOracle(SmartSpec):
    """The same with a proposal that is told of the future (`oracle: true`)."""

    def use_oracle(self, oracle: Oracle) -> None:
        """Hand the oracle to the proposal, where it takes it."""
        if isinstance(self.proposal, UsesOracle):
            self.proposal.use_oracle(oracle)


def has_slot(view: View, request: Ids) -> bool:
    """Return whether the cache has a slot for one more token of the target of `request` (1,)."""
    if view.surely_fits(1, 1, 0):
        return True
    growth = view.growth_bytes(request, view.target_cached[request] + 1, view.draft_cached[request])
    return int(growth[0]) <= view.free_bytes


def propose_chains(batch: Batch, prefix: int, lengths: Ints) -> Proposing:
    """Yield draft passes and return chains of `lengths` (prefix,) for the first requests of the batch."""
    catch_up = np.where(lengths > 0, batch.catch_up[:prefix], 0)
    forest = yield from grow(batch.requests[:prefix], catch_up, lengths, (1,) * int(lengths.max(initial=0)))
    return Proposal(forest, int(lengths.sum()))
