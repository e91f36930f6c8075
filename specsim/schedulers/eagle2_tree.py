"""Draft trees that grow where the drafter is confident, one tree of the same size for each request.

Paper: EAGLE-2 (Li et al., EMNLP 2024, arXiv 2406.16858), section 4: expansion and reranking; parameters as SGLang names
them.
Idea: a node's value is the product of the confidences along its path. In each level the k nodes of highest value are
extended by their k likeliest tokens. Of all nodes, extended or not, the likeliest are verified.
Deviations:
- The paper serves one request at a time. Here each request of a batch has its own tree, of the same size.
- SGLang counts the root among `speculative_num_draft_tokens`; so does this. It corrects that number to a chain's where
  `speculative_eagle_topk` is 1; here a smaller one cuts the chain.
- The defaults are SGLang's for Llama targets, (5, 4, 8); the paper's are 6 levels, k = 10 and 60 nodes at batch 1.
- When memory is short, all trees lose their last levels until they fit.
"""

from __future__ import annotations

from dataclasses import dataclass

from specsim.core.protocols import View
from specsim.core.request import Ints
from specsim.core.trees import Forest
from specsim.kernels.growth import likeliest
from specsim.schedulers.parts.growth import grow_sequences, sequences_fit
from specsim.schedulers.parts.protocols import Growing, Sequences, Speculation, at_least, draft_length
from specsim.schedulers.parts.selection import likeliest_each


@dataclass(frozen=True, slots=True)
class DynamicTrees(Speculation):
    """A speculation part: each request verifies the likeliest nodes of a tree grown along its likeliest nodes.

    Parameters
    ----------
    speculative_num_steps : levels of a tree, a draft pass each.
    speculative_eagle_topk : nodes of a level that are extended, and children of each.
    speculative_num_draft_tokens : most tokens of a verified tree, root included.
    """

    speculative_num_steps: int
    speculative_eagle_topk: int
    speculative_num_draft_tokens: int

    def __post_init__(self) -> None:
        draft_length(speculative_num_steps=self.speculative_num_steps)
        at_least(1, speculative_eagle_topk=self.speculative_eagle_topk)
        at_least(1, speculative_num_draft_tokens=self.speculative_num_draft_tokens)

    @property
    def drafts(self) -> bool:
        """Whether it drafts: always, unless the trees have no level or no token beside the root."""
        return self.draft_tokens(1) > 0

    @property
    def max_width(self) -> int:
        """The most children of a node."""
        return self.speculative_eagle_topk

    def draft_tokens(self, requests: int) -> int:
        """Return the nodes of a verified tree, root excluded."""
        return min(self.speculative_num_draft_tokens - 1, self._candidates(self.speculative_num_steps))

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Yield a draft pass per level and return each request's likeliest nodes."""
        depth = self.speculative_num_steps
        while depth and not sequences_fit(view, sequences, self._candidates(depth)):
            depth -= 1
        forest = yield from grow_sequences(view, sequences, (self.speculative_eagle_topk,) * depth, self._best)
        return forest.subset(likeliest_each(forest, self.draft_tokens(1))) if forest.draft_nodes else forest

    def _best(self, forest: Forest, leaves: Ints) -> Ints:
        """Return the leaves of highest value of each row."""
        return leaves[likeliest(forest.row[leaves], forest.path_probability[leaves, None], self.speculative_eagle_topk)]

    def _candidates(self, depth: int) -> int:
        """Return the drafted nodes of a tree of so many levels: k below the root, k below each of k from there on."""
        k = self.speculative_eagle_topk
        return k + (depth - 1) * k * k if depth else 0
