"""First come, first served in static batches.

Paper: the baseline that Orca (Yu et al. 2022) and vLLM (Kwon et al. 2023) argue against.
Idea: fill a batch from the head of the queue, prefill it, decode until its last request ends, then fill the next.
Deviations: no paper specifies it. The prompts of a batch run as one pass of any size. Memory for `max_tokens` is
reserved, so nothing is preempted. "FCFS" in LAPS-SD (an order) and in AdaServe v1 (SLO-aware) are other policies.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from math import inf

import numpy as np

from specsim.core.passes import TargetPass
from specsim.core.protocols import Step, View
from specsim.core.trees import Forest
from specsim.schedulers.parts.protocols import Batching, Sequences, at_least, sequences_of


@dataclass(frozen=True, slots=True)
class StaticBatches(Batching):
    """A batching part: static batches of at most `max_num_seqs`."""

    max_num_seqs: int

    def __post_init__(self) -> None:
        at_least(1, max_num_seqs=self.max_num_seqs)

    def sequences(self, view: View, drafting: bool, draft_tokens: int = 0) -> Sequences:
        """Return the batch, which decodes; when it is empty, the prompts of the next batch."""
        batch = view.running
        if len(batch):
            return sequences_of(view, batch, view.pending(batch))
        chosen: list[int] = []
        free_bytes = view.free_bytes
        for request in islice(view.waiting, self.max_num_seqs):
            ids = np.array([request])
            most = view.prompt_tokens[ids] + view.max_tokens[ids]
            free_bytes -= int(view.growth_bytes(ids, most, most * drafting)[0])
            if free_bytes < 0:
                break
            chosen.append(request)
        batch = np.array(chosen, dtype=np.int64)
        return sequences_of(view, batch, view.pending(batch))


@dataclass(frozen=True, slots=True)
class Fcfs(StaticBatches):
    """Static batches of at most `max_num_seqs`, without speculation."""

    stationary = True
    drafts = False

    def step(self, view: View) -> Step:
        """Decode the batch; when it is empty, prefill the next."""
        decoding = bool(len(view.running))
        sequences = self.sequences(view, drafting=False)
        forest = Forest.roots(len(sequences.requests))
        yield TargetPass(
            sequences.requests, sequences.scheduled_tokens, forest, stationary_until_s=inf if decoding else -inf
        )
