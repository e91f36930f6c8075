"""Token trees of one fixed shape.

Paper: SpecInfer (Miao et al., ASPLOS 2024), as AdaServe v1 batches it (section 6.1): <1,1,3,1,1,1,1,1>, 20 nodes.
Idea: every decoding step drafts the same tree for all requests and verifies all of it, whatever the load.
Deviations:
- One drafter; SpecInfer can merge the trees of several.
- When memory is short, all trees lose their last layers until they fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.core.protocols import View
from specsim.schedulers.parts.growth import grow_sequences, sequences_fit
from specsim.schedulers.parts.protocols import Growing, Sequences, Speculation


@dataclass(frozen=True, slots=True)
class FixedTrees(Speculation):
    """A speculation part: trees whose nodes at depth i have `expansion[i]` children each; empty: no drafts."""

    expansion: list[int]

    def __post_init__(self) -> None:
        given = self.expansion
        whole = isinstance(given, list) and all(isinstance(k, int) and not isinstance(k, bool) for k in given)
        if not whole or any(k < 1 for k in given):
            raise ValueError(f"expansion: {given!r} is no list of whole numbers of at least 1")

    @property
    def drafts(self) -> bool:
        """Whether it drafts: always, unless the expansion is empty."""
        return len(self.expansion) > 0

    @property
    def max_width(self) -> int:
        """The most children of a node."""
        return max(self.expansion, default=1)

    def draft_tokens(self, requests: int) -> int:
        """Return the nodes of the tree."""
        return nodes_of(self.expansion)

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Yield a draft pass per layer and return all of the trees."""
        widths = self.expansion
        while widths and not sequences_fit(view, sequences, nodes_of(widths)):
            widths = widths[:-1]
        return grow_sequences(view, sequences, widths)


def nodes_of(expansion: list[int]) -> int:
    """Return the drafted nodes of a tree: the sum over layers of the product of the widths so far."""
    return int(np.cumprod(expansion).sum())
