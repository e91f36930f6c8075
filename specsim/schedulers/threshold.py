"""Chains that go on while the drafter is sure.

Paper: none; the dynamic length of transformers' assisted generation, with which SpecServe compares (section 7.1).
Idea: a request's chain ends behind the first token whose confidence lies below one threshold, or at a maximum length.
Deviations:
- transformers speculates for one request at a time; here each request of a batch stops on its own, and the next pass
  holds those that go on.
- The token that fell below the threshold is verified too, as there: it has been drafted by then.
- `draft_tokens` is the 8 of SpecServe's section 7.4; transformers' own default is 20, and its threshold 0.4.
- Where memory is short, everybody's chains are shortened until they fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from specsim.replica.passes import NOBODY, DraftPass
from specsim.replica.protocols import View
from specsim.replica.request import Ints
from specsim.replica.trees import Forest
from specsim.schedulers.parameters import at_least
from specsim.schedulers.parts import Growing, Rows, Speculation
from specsim.schedulers.speculation import fitting_shape, useful_depth
from specsim.schedulers.tree_shape import TreeShape

GoingOn = Callable[[Forest, Ints], Ints]
"""Returns those of the leaves that the next draft pass extends, from the forest and its leaves (m,), none if empty."""


@dataclass(frozen=True, slots=True)
class Threshold(Speculation):
    """A speculation part: chains of at most `draft_tokens` that end behind a confidence below `threshold`."""

    threshold: float
    draft_tokens: int

    def __post_init__(self) -> None:
        at_least(0, threshold=self.threshold, draft_tokens=self.draft_tokens)

    @property
    def drafts(self) -> bool:
        """Unless chains have no length."""
        return self.draft_tokens > 0

    def grow(self, view: View, rows: Rows) -> Growing:
        """Yield a draft pass for as long as somebody goes on, and return the chains."""
        return grow_layers(view, rows, fitting_chain(view, rows, self.draft_tokens), self._sure)

    def _sure(self, forest: Forest, leaves: Ints) -> Ints:
        # A root is nobody's guess: the first token is drafted whatever the threshold.
        return leaves[(leaves < forest.rows) | (forest.probability[leaves] >= self.threshold)]


def fitting_chain(view: View, rows: Rows, longest: int) -> tuple[int, ...]:
    """Return the layers of the longest chains, a one for each, that fit the memory for everybody who decodes."""
    return (1,) * fitting_shape(view, rows, TreeShape(longest, 1)).depth


def grow_layers(view: View, rows: Rows, widths: Sequence[int], going_on: GoingOn) -> Growing:
    """Yield at most a draft pass per width and return the trees; each pass gives its leaves so many children.

    Before a pass, `going_on` names the leaves that it extends; no tree grows deeper than its request may still emit.
    Where nobody can use a draft, a pass of its own feeds `rows.fed`; where nobody goes on, the drafter catches up
    later.

    Parameters
    ----------
    widths : children of each leaf, by depth; none asks for no pass at all.
    """
    forest = Forest.roots(len(rows.requests))
    useful = useful_depth(view, rows.requests)
    chunks, leaves = rows.fed, np.flatnonzero(useful[: rows.decoding] > 0)
    if not len(leaves) and len(widths) and chunks.any():
        yield DraftPass(rows.requests, chunks, forest)
    for level, width in enumerate(widths):
        leaves = leaves[useful[forest.row[leaves]] > level]
        leaves = going_on(forest, leaves) if len(leaves) else leaves
        if not len(leaves):
            break
        before = len(forest)
        forest = yield DraftPass(rows.requests, chunks, forest, leaves, width)
        leaves, chunks = np.arange(before, len(forest)), NOBODY
    return forest
