"""First come, first served in static batches.

Paper: the baseline that Orca (Yu et al. 2022) and vLLM (Kwon et al. 2023) argue against.
Idea: fill a batch from the head of the line, prefill it, decode until its last request ends, then fill the next.
Deviations: none is written down to deviate from. The prompts of a batch run as one pass of any size; memory for
`max_tokens` is reserved, so nothing is preempted. In LAPS-SD "FCFS" is an order only, in AdaServe v1 it is SLO-aware:
neither is this.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np

from specsim.forest import Forest
from specsim.protocols import Step, View
from specsim.schedulers.parameters import at_least
from specsim.work import Verify


@dataclass(frozen=True, slots=True)
class Fcfs:
    """Static batches of at most `batch_requests`."""

    batch_requests: int

    def __post_init__(self) -> None:
        at_least(1, batch_requests=self.batch_requests)

    def step(self, view: View) -> Step:
        """Decode the batch; when it is empty, prefill the next."""
        batch = view.resident
        if len(batch):
            yield Verify(batch, np.ones(len(batch), dtype=np.int64), Forest.roots(len(batch)))
            return
        chosen: list[int] = []
        free_bytes = view.free_bytes
        for request in islice(view.waiting, self.batch_requests):
            ids = np.array([request])
            most = view.prompt_tokens[ids] + view.max_tokens[ids]
            free_bytes -= int(view.growth_bytes(ids, most, np.zeros_like(most))[0])
            if free_bytes < 0:
                break
            chosen.append(request)
        batch = np.array(chosen, dtype=np.int64)
        yield Verify(batch, view.pending(batch), Forest.roots(len(batch)))
