"""Virtual token counters: fair shares of the server between tenants.

Paper: VTC (Sheng et al., OSDI 2024), Algorithm 2; a baseline of AdaServe (EuroSys '26), Figure 1, which calls the
tenants services. Here a tenant is a class of requests.
Idea: count the service of each tenant, in weighted input and output tokens. Admit the earliest request of the tenant
with the smallest counter. Lift the counter of a tenant that returns from idling, so that it cannot save up credit.
Deviations: for arrivals during a pass, counters are lifted after the pass's tokens are charged, in order of arrival;
the paper's monitor runs beside the execution. Several tokens of one speculation are charged like as many decodes. The
paper has no preemption. Here a request preempted for memory (the last admitted first) waits in its tenant's queue
again, and its prompt is charged once, whole, whatever of it is cached.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from specsim.core.passes import Emitted
from specsim.core.protocols import View
from specsim.core.request import Bools, Ids
from specsim.core.trees import Forest
from specsim.schedulers.parts.protocols import Sequences, at_least
from specsim.schedulers.parts.queues import BatchSlots, among


@dataclass
class VirtualCounters:
    """A batching part: admits a request of the waiting tenant with the smallest counter.

    Parameters
    ----------
    batch_slots : batch slots and memory. input_weight, output_weight : w_p and w_q, per prompt token and per emitted
        token.

    Attributes
    ----------
    served : the counter of each tenant.
    """

    batch_slots: BatchSlots
    input_weight: float
    output_weight: float
    served: dict[int, float] = field(init=False, default_factory=dict)
    _line: dict[int, Bools] = field(init=False, repr=False, default_factory=dict)
    _last_out: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        at_least(0, input_weight=self.input_weight, output_weight=self.output_weight)

    def begin(self, requests: int) -> None:
        """Make the state of so many requests."""
        self._known, self._charged = np.zeros((2, requests), dtype=np.bool_)

    def sequences(self, view: View, drafting: bool, draft_tokens: int = 0) -> Sequences:
        """Return running requests in order of admission, then those admitted by the counters."""
        inside = view.running
        chosen = self._chosen(view, self._waiting(view), self.batch_slots.max_num_seqs - len(inside))
        sequences = self.batch_slots.sequences(view, np.concatenate((inside, chosen)), drafting)
        if len(chosen) and len(let_in := chosen[among(chosen, sequences.requests)]):
            self._last_out = int(view.slo_class[let_in[-1]])
            for request in let_in[~self._charged[let_in]].tolist():
                self.served[int(view.slo_class[request])] += self.input_weight * int(view.prompt_tokens[request])
            self._charged[let_in] = True
        return sequences

    def on_verified(self, view: View, sequences: Sequences, forest: Forest, answer: Emitted, service_s: float) -> None:
        """Charge the emitted tokens."""
        emitted = np.bincount(view.slo_class[sequences.requests], weights=answer.tokens)
        for tenant in np.flatnonzero(emitted).tolist():
            self.served[tenant] += self.output_weight * float(emitted[tenant])

    def _waiting(self, view: View) -> dict[int, Ids]:
        """Return the waiting requests of each tenant, none empty; a request's tenant is looked at when it arrives."""
        if not len(view.waiting):
            return {}
        ids = np.asarray(view.waiting)
        in_line = {tenant for tenant, those in self._line.items() if those[ids].any()}
        for request in ids[~self._known[ids]].tolist():
            tenant = int(view.slo_class[request])
            if tenant not in in_line:
                self._lift(tenant, in_line)
                in_line.add(tenant)
            self._line.setdefault(tenant, np.zeros_like(self._known))[request] = self._known[request] = True
        return {tenant: ids[self._line[tenant][ids]] for tenant in in_line}

    def _lift(self, tenant: int, in_line: set[int]) -> None:
        """Lift the counter of a tenant that has no request waiting when one of its own arrives (lines 6 to 13)."""
        others = [self.served[each] for each in in_line]
        last = self.served[self._last_out] if self._last_out is not None else 0.0
        self.served[tenant] = max(self.served.get(tenant, 0.0), min(others) if others else last)

    def _chosen(self, view: View, waiting: dict[int, Ids], free: int) -> Ids:
        """Return who would be admitted, the smallest counter first, up to a pass of prompts; each prompt is charged."""
        queues = {tenant: ids[:free][::-1].tolist() for tenant, ids in waiting.items() if free > 0}
        counters = {tenant: self.served[tenant] for tenant in queues}
        chosen: list[int] = []
        tokens = 0
        while queues and len(chosen) < free and tokens < self.batch_slots.prefill_tokens:
            tenant = min(queues, key=lambda each: (counters[each], each))
            request = queues[tenant].pop()
            chosen.append(request)
            prompt = int(view.prompt_tokens[request])
            tokens += prompt
            counters[tenant] += self.input_weight * prompt * (not self._charged[request])
            if not queues[tenant]:
                del queues[tenant]
        return np.array(chosen, dtype=np.int64)
