"""Continuous batching in batches small enough for their objectives: FCFS and STTA.

Paper: AdaServe v1 (arXiv 2025), section 6.3, Figure 7: two preemptive strategies, "SLO-aware, dynamically adjusting
batch size limits to accommodate TPOT SLOs".
Idea: order the requests, first come or closest to violation first. Run the longest prefix of that order whose decode
step is estimated to meet the tightest TPOT objective. The others pause.
Deviations, since the paper does not say:
- "When urgent requests exist, batch sizes are kept small": the tightest objective is that of the batch
  (`tightest: batch`) or of all live requests (`live`). A batch of one runs even if it is too slow.
- Closest to violation means the least time until the mean latency per token exceeds the objective. The time is negative
  for a late request, one TPOT objective for a prompt, and infinite without an objective.
- The step is estimated to decode one token for each request of the prefix. Passes that read prompts are not limited.
- Preempted requests keep their cache while memory lasts, or recompute it (`batch_slots.switching`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from specsim.core.protocols import View
from specsim.core.request import Floats, Ids
from specsim.pass_shape import PassShapes
from specsim.schedulers.parts.protocols import Batching, Sequences
from specsim.schedulers.parts.queues import BatchSlots, live, ranked

Order = Callable[[View, Ids], Floats]
"""Returns sort keys (n,) of live requests (n,) from the view; the smallest runs first, of equals the earliest."""


@dataclass(frozen=True, slots=True)
class SloLimited(Batching):
    """A batching part: the longest prefix of `order` that decodes within the tightest objective.

    Parameters
    ----------
    batch_slots : the largest batch. order : sort keys. tightest : objective of the "batch" or of all "live" requests.
    """

    batch_slots: BatchSlots
    order: Order
    tightest: Literal["batch", "live"]

    def sequences(self, view: View, drafting: bool, draft_tokens: int = 0) -> Sequences:
        """Return the rows of the prefix, at least one."""
        ids = live(view)
        order = ranked(view, ids, (self.order(view, ids), view.arrival_s[ids], ids), self.batch_slots.max_num_seqs)
        cut = replace(self.batch_slots, max_num_seqs=self.limit(view, order, ids))
        return cut.sequences(view, order, drafting)

    def limit(self, view: View, order: Ids, ids: Ids) -> int:
        """Return the size of the longest prefix whose estimated decode step meets the objective, at least 1.

        `ids` (n,) are all live requests.
        """
        head = order[: self.batch_slots.max_num_seqs]
        context = np.cumsum(view.prompt_tokens[head] + np.maximum(view.emitted_tokens[head] - 1, 0))
        sizes = np.arange(1, len(head) + 1)
        seconds = view.cost_model.target.seconds_array(PassShapes.decode(context, sizes))
        if self.tightest == "batch":
            objective = np.fmin.accumulate(view.tpot_slo_s[head])
        else:
            objective = np.fmin.reduce(view.tpot_slo_s[ids])
        met = np.flatnonzero(~(seconds > objective))
        return int(met[-1]) + 1 if len(met) else 1


def first_come(view: View, ids: Ids) -> Floats:
    """Return the arrival of each request, (n,) seconds: FCFS."""
    return view.arrival_s[ids]


def closest_to_violation(view: View, ids: Ids) -> Floats:
    """Return the seconds until each request's mean latency per token exceeds its objective, (n,): STTA.

    They are (o + 1) t_TPOT - l, with o tokens decoded in the l seconds since the first decoding step began; inf without
    an objective.
    """
    first_s = view.first_decode_s[ids]
    elapsed_s = view.now_s - np.where(np.isnan(first_s), view.now_s, first_s)
    left_s = (np.maximum(view.emitted_tokens[ids] - 1, 0) + 1) * view.tpot_slo_s[ids] - elapsed_s
    return np.where(np.isnan(left_s), np.inf, left_s)
