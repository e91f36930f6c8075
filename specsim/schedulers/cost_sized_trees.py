"""Draft trees of the size that brings the most tokens a second at this batch size, and none where none pays.

Paper: none; the idea that EAGLE-4 announced (October 2026): trees sized by batch size and hardware from measured draft
and verification costs. Written from that sentence alone, never from its code. CAST (arXiv 2510.26577) has the same aim.
Idea: the estimated seconds of d draft passes of w nodes a request and of a verification of m nodes a request are known
before the step. So are the tokens to expect of the m likeliest of these nodes, from what drafting found so far. The
step takes the (d, w, m) with the most tokens a second. The nodes are those of highest cumulative confidence.
Deviations, since no rule has been published:
- Drafting keeps each level's w likeliest nodes a request. The m nodes a request are the likeliest of the whole batch.
- The node at place j of level d, by cumulative confidence, has a running mean of its confidence, as a share of the
  level above. A correction of each level is the share of tokens that were right of those that confidences promised.
- Both forget with a window of steps, towards first values that suppose `first_acceptance`. So after a long time without
  drafts one is tried again where it would pay at that acceptance.
- The drafter's first pass is priced at one token a request: tokens that a drafter lacks after steps without it, read
  once, count as no cost of the size.
- Prompts are work of their own: the seconds that they add to a verification without drafts do not count.
- A token budget keeps room for the nodes that the step before asked for, and no more are verified.
- When memory is short, the candidate trees are made narrower, then shallower, until they fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from specsim.core.passes import Emitted
from specsim.core.protocols import View
from specsim.core.request import Floats, Ints
from specsim.core.trees import Forest
from specsim.pass_shape import PassShape, PassShapes
from specsim.schedulers.parts.growth import fitting_shape, grow_trees, max_depths, plain_shape
from specsim.schedulers.parts.protocols import Growing, Sequences, Speculation, at_least, draft_length, probability
from specsim.schedulers.parts.selection import likeliest_of_all
from specsim.schedulers.parts.tree_shape import TreeShape


class TreeSize(NamedTuple):
    """Depth and width of a request's candidate tree, and how many nodes a request are verified; 0 nodes: no tree."""

    depth: int
    width: int
    nodes: int


@dataclass
class CostSizedTrees(Speculation):
    """A speculation part: trees as deep, as wide and of as many nodes as bring the most expected tokens a second.

    Parameters
    ----------
    speculative_num_steps, speculative_eagle_topk : greatest depth and width of a tree (SGLang's names).
    speculative_num_draft_tokens : most tokens of a verified tree, root included.
    first_acceptance : acceptance rate supposed at first: a level's j-th child is right with a (1 - a)^j, j = 0, 1, ...
    window : steps after which what was found counts 1/e.
    """

    speculative_num_steps: int
    speculative_eagle_topk: int
    speculative_num_draft_tokens: int
    first_acceptance: float
    window: int

    def __post_init__(self) -> None:
        draft_length(speculative_num_steps=self.speculative_num_steps)
        at_least(1, speculative_eagle_topk=self.speculative_eagle_topk, window=self.window)
        at_least(1, speculative_num_draft_tokens=self.speculative_num_draft_tokens)
        probability(first_acceptance=self.first_acceptance)
        depth, width = self.speculative_num_steps, self.speculative_eagle_topk
        self._found, self._right = np.zeros((2, depth, width)), np.zeros((2, depth))
        self._most = self._room = min(self.speculative_num_draft_tokens - 1, depth * width)

    @property
    def drafts(self) -> bool:
        """Whether it drafts: always, unless the greatest trees have no level or no token beside the root."""
        return min(self.speculative_num_steps, self.speculative_num_draft_tokens - 1) > 0

    @property
    def max_width(self) -> int:
        """The most children of a node."""
        return self.speculative_eagle_topk

    def draft_tokens(self, requests: int) -> int:
        """Return the nodes a request that the step before asked for; at first the most there are."""
        return self._room

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Yield the draft passes of the best size and return the likeliest nodes; no pass where no size pays."""
        depth, width, nodes = self._step_size(view, sequences) if sequences.decoding else TreeSize(1, 1, 0)
        depth, width = fitting_shape(view, sequences, TreeShape(depth, width))
        forest = yield from grow_trees(view, sequences.requests, sequences.catch_up, sequences.decoding, depth, width)
        if not forest.draft_nodes:
            return forest
        self._note(forest, np.minimum(max_depths(view, sequences.requests, sequences.decoding), depth), width)
        return forest.subset(likeliest_of_all(forest, nodes * sequences.decoding))

    def on_verified(self, view: View, sequences: Sequences, forest: Forest, answer: Emitted) -> None:
        """Add how many rows were right at each depth, and how many the confidences of the verified nodes promised."""
        if not forest.draft_nodes:
            return
        most = self.speculative_num_steps + 1
        self._right[0] += np.cumsum(np.bincount(answer.matched, minlength=most)[:0:-1])[::-1]
        self._right[1] += np.bincount(forest.depth, weights=forest.path_probability, minlength=most)[1:]

    def size(self, view: View, sequences: Sequences, most: int) -> TreeSize:
        """Return the size with the most expected tokens a second, of at most `most` nodes a request."""
        n, plain = sequences.decoding, plain_shape(view, sequences)
        context = int(view.draft_cached[sequences.requests[:n]].sum())
        widths = np.arange(1, self.speculative_eagle_topk + 1)
        levels = PassShapes(context, n * widths, widths * (context + n), n * widths, n, (widths - 1) * context)
        draft = view.cost_model.draft
        later = np.zeros(len(widths)) if draft.one_pass else draft.seconds_array(levels)
        deepest = min(self.speculative_num_steps, draft.max_depth)
        passes = draft.seconds(PassShape.decode(context, n)) + np.arange(deepest)[:, None] * later
        nodes = np.arange(most + 1)
        seen = int(view.target_cached[sequences.requests[:n]].sum()) + 2 * n
        verify_s = view.cost_model.target.seconds_array(PassShapes.with_nodes(plain, nodes * n, nodes * seen))
        if n < len(sequences.requests):
            alone = PassShape.of_decoding(view.target_cached[sequences.requests[:n]])
            verify_s += view.cost_model.target.seconds(alone) - verify_s[0]
        rate = self.expected()[:deepest, :, : most + 1] / (passes[..., None] + verify_s)
        best = int(np.argmax(rate))
        if rate.ravel()[best] <= 1 / verify_s[0]:
            return TreeSize(0, 1, 0)
        depth, width, kept = np.unravel_index(best, rate.shape)
        return TreeSize(int(depth) + 1, int(width) + 1, int(kept))

    def expected(self) -> Floats:
        """Return the tokens to expect of a verification, (depths, widths, nodes + 1), of the first 0, 1, ... nodes.

        Level d of a tree of width w holds at place j the share g(d, j) of the level above it. So that node is right
        with c(d) g(d, j) times the product over i < d of g(i, 0) + ... + g(i, w - 1), c(d) the correction.
        """
        depth, width = self.speculative_num_steps, self.speculative_eagle_topk
        first = self.first_acceptance * (1 - self.first_acceptance) ** np.arange(width)
        share = (self._found[0] + first) / (self._found[1] + 1)
        right = (self._right[0] + 1) / (self._right[1] + 1)
        above = np.ones((depth, width))
        np.cumprod(np.cumsum(share, axis=1)[:-1], axis=0, out=above[1:])
        # Axes: width of the tree, level, place in the level.
        each = (right[:, None] * above).T[:, :, None] * share * np.tri(width)[:, None, :]
        trees = np.tri(depth)[:, None, :, None] * each
        ranked = -np.sort(-trees.reshape(depth, width, -1), axis=2)
        return 1 + np.concatenate((np.zeros((depth, width, 1)), np.cumsum(ranked, axis=2)), axis=2)

    def _step_size(self, view: View, sequences: Sequences) -> TreeSize:
        """Return the size of a step, and note what it asked for."""
        forget = 1 - 1 / self.window
        self._found *= forget
        self._right *= forget
        wanted, room = self.size(view, sequences, self._most), self._room
        self._room = wanted.nodes
        return wanted if wanted.nodes <= room else self.size(view, sequences, room)

    def _note(self, forest: Forest, max_depth: Ints, width: int) -> None:
        """Add the path probabilities by level and place, and those of the level above, of trees of `max_depth` (n,)."""
        depth, max_width = self._found.shape[1:]
        group = forest.row * (depth + 1) + forest.depth
        order = np.lexsort((-forest.path_probability, group))
        group, path = group[order], forest.path_probability[order]
        place = np.arange(len(group)) - np.searchsorted(group, group)
        levels = np.zeros((forest.rows, depth + 1, max_width))
        levels[group // (depth + 1), group % (depth + 1), place] = path
        tried = max_depth[:, None] > np.arange(depth)
        self._found[0] += levels[:, 1:].sum(axis=0)
        self._found[1, :, :width] += (levels[:, :-1].sum(axis=2) * tried).sum(axis=0)[:, None]
