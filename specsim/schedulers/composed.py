"""Any batching part with any speculation part.

Paper: none; the parts are those of the papers' schedulers (docs/schedulers.md).
Idea: who runs and how far it speculates are two decisions, and every pair of them is a scheduler.
Deviations: where memory is short for trees, or somebody has to be preempted, the step decodes plainly.
"""

from __future__ import annotations

from dataclasses import dataclass

from specsim.forest import Forest
from specsim.protocols import Step, View
from specsim.schedulers.parts import Batching, Rows, Speculation
from specsim.schedulers.speculation import trees_fit
from specsim.work import Draft, Verify


@dataclass(frozen=True, slots=True)
class Composed:
    """One step: the batching part names the rows, the speculation part grows their trees, the target verifies."""

    batching: Batching
    speculation: Speculation

    @property
    def widest(self) -> int:
        """The most children of one node that a draft pass is ever asked for."""
        return self.speculation.widest

    def step(self, view: View) -> Step:
        """Yield the drafter's passes and one verification."""
        start_s = view.now_s
        rows = self.batching.rows(view, self.speculation.drafts)
        if not len(rows.requests):
            return
        forest = Forest.roots(len(rows.requests))
        if self._may_draft(view, rows):
            if rows.decoding:
                forest = yield from self.speculation.grow(view, rows)
            elif rows.fed.any():
                yield Draft(rows.requests, rows.fed, forest)
        answer = yield Verify(rows.requests, rows.chunks, forest, rows.evicted)
        self.speculation.learn(view, rows, forest, answer)
        self.batching.learn(view, rows, answer, start_s)

    def _may_draft(self, view: View, rows: Rows) -> bool:
        if not self.speculation.drafts or len(rows.evicted):
            return False
        nodes = self.speculation.most_nodes(rows.decoding) if rows.decoding else 0
        return trees_fit(view, rows.requests, rows.chunks, rows.decoding, nodes, rows.fed)
