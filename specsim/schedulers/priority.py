"""Priority by objective, preemptive: the classes with the tightest TPOT objective run first.

Paper: vLLM+Priority, a baseline of AdaServe (EuroSys '26), Figure 1: it "attempts to address urgent requests by
constraining batch sizes and preempting non-urgent requests during decoding".
Idea: at every pass the batch holds the most urgent requests; the others pause.
Deviations: the paper gives no batch size; here `batch_slots.max_num_seqs` is a fixed limit. Requests of one class run
first come, first served. Requests without an objective run last. vLLM preempts by recompute (`switching: recompute`);
`keep` recomputes less.
"""

from __future__ import annotations

from dataclasses import dataclass

from specsim.core.protocols import View
from specsim.schedulers.parts.protocols import Batching, Sequences
from specsim.schedulers.parts.queues import BatchSlots, live, ranked


@dataclass(frozen=True, slots=True)
class TightestFirst(Batching):
    """A batching part: the tightest TPOT objective first, then the earliest."""

    batch_slots: BatchSlots

    def sequences(self, view: View, drafting: bool, draft_tokens: int = 0) -> Sequences:
        """Return the most urgent requests, as many as there are batch slots."""
        ids = live(view)
        # NaN (no objective) sorts last.
        order = ranked(view, ids, (view.tpot_slo_s[ids], view.arrival_s[ids], ids), self.batch_slots.max_num_seqs)
        return self.batch_slots.sequences(view, order, drafting)
