"""Virtual token counters: fair shares of the server between tenants.

Paper: VTC (Sheng et al., OSDI 2024), Algorithm 2; a baseline of AdaServe (EuroSys '26), Figure 1, which calls the
tenants services. Here a tenant is a class of requests.
Idea: count the service of each tenant, in weighted input and output tokens. Admit the earliest request of the tenant
with the smallest counter. Lift the counter of a tenant that returns from idling, so that it cannot save up credit.
Deviations: for arrivals during a pass, counters are lifted after the pass's tokens are charged, in order of arrival;
the paper's monitor runs beside the execution. Several tokens of one speculation are charged like as many decodes. The
paper has no preemption. Here a request preempted for memory (the last admitted first) waits in its tenant's queue
again, and its prompt is charged once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from specsim.replica.passes import Emitted
from specsim.replica.protocols import View
from specsim.replica.request import Bools, Ids, Ints
from specsim.replica.trees import Forest
from specsim.schedulers.parts.parameters import at_least
from specsim.schedulers.parts.protocols import Rows
from specsim.schedulers.parts.queues import Seats, among, live

HEAD = 4
"""Of a line, the part that is looked at first, in times what would do if tenants took turns."""


class Line(NamedTuple):
    """The waiting requests.

    Attributes
    ----------
    requests, tenants : (n,) in order of arrival. counts : (tenants,) how many of each wait.
    """

    requests: Ids
    tenants: Ints
    counts: Ints

    @classmethod
    def of(cls, waiting: Ids, tenants: Ints) -> Line:
        """Return the line of `waiting` (n,) requests; `tenants` (N,) are those of all."""
        own = tenants[waiting]
        return cls(waiting, own, np.bincount(own))

    def first(self, most: int) -> dict[int, list[int]]:
        """Return the first requests of each tenant that waits, at most so many."""
        there = np.flatnonzero(self.counts).tolist() if most > 0 else []
        found: dict[int, list[int]] = {}
        # The head of a long line mostly holds enough of each.
        for size in (HEAD * most * len(there), len(self.requests)):
            requests, tenants = self.requests[:size], self.tenants[:size]
            found = {tenant: requests[tenants == tenant][:most].tolist() for tenant in there}
            if all(len(found[tenant]) >= min(most, self.counts[tenant]) for tenant in there):
                break
        return found


@dataclass(slots=True)
class VirtualCounters:
    """A batching part: admits a request of the waiting tenant with the smallest counter.

    Parameters
    ----------
    seats : seats and memory. input_weight, output_weight : w_p and w_q, per prompt token and per emitted token.

    Attributes
    ----------
    served : the counter of each tenant.
    """

    seats: Seats
    input_weight: float
    output_weight: float
    served: dict[int, float] = field(init=False, default_factory=dict)
    _known: Bools = field(init=False, default_factory=lambda: np.zeros(0, dtype=np.bool_))
    _last_out: int | None = field(init=False, default=None)
    _charged: Bools = field(init=False, default_factory=lambda: np.zeros(0, dtype=np.bool_))

    def __post_init__(self) -> None:
        at_least(0, input_weight=self.input_weight, output_weight=self.output_weight)

    def rows(self, view: View, drafting: bool) -> Rows:
        """Return running requests in order of admission, then those admitted by the counters."""
        if not len(self._charged):
            self._charged, self._known = np.zeros((2, len(view.arrival_s)), dtype=np.bool_)
        ids = live(view)
        inside, waiting = ids[: len(view.running)], ids[len(view.running) :]
        line = Line.of(waiting, view.slo_class)
        self._lift(line, view.slo_class)
        chosen = self._chosen(view, line, self.seats.max_num_seqs - len(inside))
        rows = self.seats.rows(view, np.concatenate((inside, chosen)), drafting)
        if len(chosen) and len(let_in := chosen[among(chosen, rows.requests)]):
            self._last_out = int(view.slo_class[let_in[-1]])
            self._charge(view, let_in[~self._charged[let_in]])
            self._charged[let_in] = True
        return rows

    def learn(self, view: View, rows: Rows, forest: Forest, answer: Emitted, service_s: float) -> None:
        """Charge the emitted tokens."""
        tenants = view.slo_class[rows.requests]
        for tenant in np.unique(tenants).tolist():
            self.served[tenant] += self.output_weight * int(answer.tokens[tenants == tenant].sum())

    def _lift(self, line: Line, tenants: Ints) -> None:
        """Lift the counters of tenants that had no request waiting when one of theirs arrived (lines 6 to 13).

        `tenants` (N,) are those of all requests.
        """
        arrived = line.requests[~self._known[line.requests]]
        if not len(arrived):
            return
        new = tenants[arrived]
        in_line = set(np.flatnonzero(line.counts - np.bincount(new, minlength=len(line.counts))).tolist())
        for tenant in new.tolist():
            if tenant not in in_line:
                others = [self.served[each] for each in in_line]
                last = self.served[self._last_out] if self._last_out is not None else 0.0
                self.served[tenant] = max(self.served.get(tenant, 0.0), min(others) if others else last)
                in_line.add(tenant)
        self._known[arrived] = True

    def _chosen(self, view: View, line: Line, free: int) -> Ids:
        """Return who would be admitted, the smallest counter first, up to a pass of prompts; each prompt is charged."""
        lines = {tenant: ids[::-1] for tenant, ids in line.first(free).items()}
        counters = {tenant: self.served[tenant] for tenant in lines}
        chosen: list[int] = []
        tokens = 0
        while lines and len(chosen) < free and tokens < self.seats.prefill_tokens:
            tenant = min(lines, key=lambda each: (counters[each], each))
            request = lines[tenant].pop()
            chosen.append(request)
            prompt = int(view.prompt_tokens[request])
            tokens += prompt
            counters[tenant] += self.input_weight * prompt * (not self._charged[request])
            if not lines[tenant]:
                del lines[tenant]
        return np.array(chosen, dtype=np.int64)

    def _charge(self, view: View, ids: Ids) -> None:
        for tenant, prompt in zip(view.slo_class[ids].tolist(), view.prompt_tokens[ids].tolist(), strict=True):
            self.served[tenant] += self.input_weight * prompt
