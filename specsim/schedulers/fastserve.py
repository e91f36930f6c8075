"""Least attained service: skip-join multi-level feedback queues (FastServe), and LAS itself.

Paper: FastServe (Wu et al. 2023), as a baseline of AdaServe (EuroSys '26), Figure 1; LAS as a baseline of LAPS-SD.
Constants and a queue's order are those of the authors' release (LLMServe/FastServe 6da4b75, fastserve/scheduler.py).
Idea: a request that has used up the quantum of its queue moves to the next queue. A long prompt's first pass would use
up more than one quantum, so a request joins the end of the first queue whose quantum covers that pass. Each request of
a batch returns to the front of its queue, the last one foremost. A request that has not run for `starvation_s` moves to
the front of the top queue, with what it has spent.
Deviations:
- FastServe moves the caches of preempted requests to the host ahead of time. Here they are kept while memory lasts,
  recomputed, or moved between passes (`batch_slots.switching`).
- The time of the first pass, for the tokens that are not cached, is estimated, not profiled.
- A prompt of more than `prefill_tokens` takes several passes, in which it is first of all.
- Quanta are counted at the end of a pass, and each request in it is charged the whole pass. Moving a cache is no
  service.
- The release has queues without number. Here the last of 16 has no quantum; that before it has 164 s.
- Each step moves the starved, who wait from their arrival on. The release moves them at every 1,000th step, where each
  request that has never run is starved.
- LAS counts service in whole quanta of `quantum_s`; of equals the earliest runs. 0 is pure LAS, which switches between
  equals at every pass. LAPS-SD does not state its quantum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.core.passes import Emitted
from specsim.core.protocols import View
from specsim.core.request import Ids
from specsim.core.trees import Forest
from specsim.pass_shape import PassShapes
from specsim.schedulers.parts.protocols import Sequences, at_least
from specsim.schedulers.parts.queues import BatchSlots, live, ranked

_NEW = -1.0


@dataclass
class SkipJoin:
    """A batching part: FastServe's queues.

    Parameters
    ----------
    batch_slots : batch slots and memory. queues : at least 1. first_quantum_s, quantum_ratio : quantum j is first *
        ratio^(j-1) s.
    starvation_s : seconds without service after which a request moves to the front of the first queue.

    Attributes
    ----------
    level : (N,) queue of each request from 0; -1: not joined. spent_s : (N,) seconds spent of its queue's quantum.
    """

    batch_slots: BatchSlots
    queues: int
    first_quantum_s: float
    quantum_ratio: float
    starvation_s: float

    def __post_init__(self) -> None:
        at_least(1, queues=self.queues, quantum_ratio=self.quantum_ratio)
        at_least(0, first_quantum_s=self.first_quantum_s, starvation_s=self.starvation_s)
        self._quanta_s = self.first_quantum_s * self.quantum_ratio ** np.arange(self.queues - 1, dtype=np.float64)

    def begin(self, requests: int) -> None:
        """Make the state of so many requests."""
        self.level = np.full(requests, _NEW)
        self.spent_s, self._place, self._served_s = np.zeros((3, requests))
        self._front = 0

    def sequences(self, view: View, drafting: bool, draft_tokens: int = 0) -> Sequences:
        """Return the requests that get batch slots: highest queues first, each from its front."""
        ids = live(view)
        new = ids[self.level[ids] == _NEW]
        if len(new):
            self._join(view, new)
        self._rescue(ids, view.now_s)
        order = ranked(view, ids, (self.level[ids], self._place[ids], ids), self.batch_slots.max_num_seqs)
        return self.batch_slots.sequences(view, order, drafting)

    def on_verified(self, view: View, sequences: Sequences, forest: Forest, answer: Emitted, service_s: float) -> None:
        """Charge the passes to their requests; a used-up quantum moves a request to the front of the next queue."""
        ids = sequences.requests
        self._to_front(ids)
        self.spent_s[ids] += service_s
        self._served_s[ids] = view.now_s
        upper = ids[self.level[ids] < len(self._quanta_s)]
        sunk = upper[self.spent_s[upper] > self._quanta_s[self.level[upper].astype(np.int64)]]
        self.level[sunk] += 1
        self.spent_s[sunk] = 0.0

    def _to_front(self, ids: Ids) -> None:
        """Put requests to the front of their queues, one after another in the order in which they stood."""
        stood = ids[np.lexsort((ids, self._place[ids], self.level[ids]))]
        self._front -= len(ids)
        self._place[stood] = self._front + np.arange(len(ids))[::-1]

    def _join(self, view: View, ids: Ids) -> None:
        """Put new requests to the end of the first queue whose quantum covers their estimated first pass."""
        first_s = view.cost_model.target.seconds_array(PassShapes.each(view.target_cached[ids], view.pending(ids)))
        self.level[ids] = np.searchsorted(self._quanta_s, first_s, side="left")
        self._place[ids] = self._served_s[ids] = view.arrival_s[ids]

    def _rescue(self, ids: Ids, now_s: float) -> None:
        starved = ids[now_s - self._served_s[ids] >= self.starvation_s]
        self._to_front(starved)
        self.level[starved] = 0.0
        self._served_s[starved] = now_s


@dataclass
class LeastAttained:
    """A batching part: least attained service first, preemptive; `attained_s` (N,) counts in quanta of `quantum_s`."""

    batch_slots: BatchSlots
    quantum_s: float

    def __post_init__(self) -> None:
        at_least(0, quantum_s=self.quantum_s)

    def begin(self, requests: int) -> None:
        """Make the state of so many requests."""
        self.attained_s = np.zeros(requests)

    def sequences(self, view: View, drafting: bool, draft_tokens: int = 0) -> Sequences:
        """Return the requests with the fewest quanta of service; of equals the earliest."""
        ids = live(view)
        attained = self.attained_s[ids]
        if self.quantum_s:
            attained = attained // self.quantum_s
        order = ranked(view, ids, (attained, view.arrival_s[ids], ids), self.batch_slots.max_num_seqs)
        return self.batch_slots.sequences(view, order, drafting)

    def on_verified(self, view: View, sequences: Sequences, forest: Forest, answer: Emitted, service_s: float) -> None:
        """Charge the step's passes to each request that ran in it."""
        self.attained_s[sequences.requests] += service_s
