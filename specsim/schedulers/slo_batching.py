"""Continuous batching with batches small enough for the objectives in them: FCFS and STTA.

Paper: AdaServe v1 (arXiv 2025), section 6.3, Figure 7: two preemptive strategies, "SLO-aware, dynamically adjusting
batch size limits to accommodate TPOT SLOs".
Idea: put requests in order, first come or closest to violation first; run the longest head of that order whose decoding
step is believed to meet the tightest TPOT objective; the others pause.
Deviations, where the paper is silent:
- "When urgent requests exist, batch sizes are kept small": those in the batch (`tightest: batch`) or all that are
  there (`live`). A batch of one runs even where it is too slow.
- Closest to violation is the least time left until the next token makes the mean latency per token too long; who is
  late already has less than none and goes first. Prompts have one objective left, no objective has for ever.
- The step is believed to decode one token for each of the head; the passes that read prompts are not limited.
- The preempted keep their cache while memory lasts, or recompute it (`seats.switching`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from specsim.pass_shape import PassShapes
from specsim.replica.protocols import View
from specsim.replica.request import Floats, Ids
from specsim.schedulers.parts.protocols import Batching, Rows
from specsim.schedulers.parts.queues import Seats, live

Order = Callable[[View, Ids], Floats]
"""From the view and live requests (n,) to numbers (n,): the smallest first, the earliest among equals."""


@dataclass(frozen=True, slots=True)
class SloLimited(Batching):
    """A batching part: the longest head of `order` that decodes within the tightest objective.

    Parameters
    ----------
    seats : the batch at its largest. order : who comes first. tightest : of the "batch" or of all "live" requests.
    """

    seats: Seats
    order: Order
    tightest: Literal["batch", "live"]

    def rows(self, view: View, drafting: bool) -> Rows:
        """Return the rows of the head, at least one."""
        ids = live(view)
        order = ids[np.lexsort((ids, self.order(view, ids)))]
        limit = self.limit(view, order)
        cut = Seats(limit, self.seats.prefill_tokens, self.seats.prefill, self.seats.watermark, self.seats.switching)
        return cut.rows(view, order, drafting)

    def limit(self, view: View, order: Ids) -> int:
        """Return the size of the longest head whose believed decoding step meets the objective, at least 1."""
        head = order[: self.seats.max_num_seqs]
        context = np.cumsum(view.prompt_tokens[head] + np.maximum(view.emitted_tokens[head] - 1, 0))
        sizes = np.arange(1, len(head) + 1)
        seconds = view.belief.target.seconds_array(PassShapes.decode(context, sizes))
        if self.tightest == "batch":
            objective = np.fmin.accumulate(view.tpot_slo_s[head])
        else:
            objective = np.fmin.reduce(view.tpot_slo_s[order])
        met = np.flatnonzero(~(seconds > objective))
        return int(met[-1]) + 1 if len(met) else 1


def first_come(view: View, ids: Ids) -> Floats:
    """Return when each request arrived, (n,) seconds: FCFS."""
    return view.arrival_s[ids]


def closest_to_violation(view: View, ids: Ids) -> Floats:
    """Return the seconds until each request's mean latency per token is too long, unless it emits, (n,): STTA.

    (o + 1) t_TPOT - l, with o tokens decoded in the l seconds since the first decoding step began; inf without an
    objective.
    """
    first_s = view.first_decode_s[ids]
    elapsed_s = view.now_s - np.where(np.isnan(first_s), view.now_s, first_s)
    left_s = (np.maximum(view.emitted_tokens[ids] - 1, 0) + 1) * view.tpot_slo_s[ids] - elapsed_s
    return np.where(np.isnan(left_s), np.inf, left_s)
