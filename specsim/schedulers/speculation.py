"""How far to speculate: growing a batch's token trees by beam search."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from specsim.replica.passes import NOBODY, DraftPass
from specsim.replica.protocols import View
from specsim.replica.request import Ids, Ints
from specsim.replica.trees import Forest
from specsim.schedulers.parts import Rows
from specsim.schedulers.tree_shape import TreeShape


def grow_trees(
    view: View, requests: Ids, chunks: Ints, growing: int, depth: int, width: int
) -> Generator[DraftPass, Forest, Forest]:
    """Yield `depth` draft passes and return the candidate trees: a layer a pass, a request's likeliest `width` nodes.

    Width 1 gives chains (AdaServe, section 4.3, step 1). No tree grows deeper than its request may still emit.

    Parameters
    ----------
    requests : (n,) rows of the coming verification; the first `growing` of them get a tree.
    chunks : (n,) tokens for the drafter's cache, fed in the first pass; by a pass of their own where no tree grows.
    """
    forest = Forest.roots(len(requests))
    useful = useful_depth(view, requests)
    shallowest = int(useful[:growing].min()) if growing else 0
    leaves = np.arange(growing)
    if depth and not shallowest:
        leaves = leaves[useful[:growing] > 0]
        if not len(leaves) and chunks.any():
            yield DraftPass(requests, chunks, forest)
    for level in range(depth):
        if level and level >= shallowest:
            leaves = leaves[useful[forest.row[leaves]] > level]
        if not len(leaves):
            break
        before = len(forest)
        forest = yield DraftPass(requests, chunks, forest, leaves, width, beam=width if width > 1 else None)
        leaves = np.arange(before, len(forest))
        chunks = NOBODY
    return forest


def useful_depth(view: View, requests: Ids) -> Ints:
    """Return how many draft tokens each request could still emit beside the bonus token, (n,)."""
    return view.max_tokens[requests] - view.emitted_tokens[requests] - 1


def trees_fit(
    view: View, requests: Ids, chunks: Ints, growing: int, nodes: int, fed: Ints, evicted: Ids = NOBODY
) -> bool:
    """Return whether the first `growing` rows can hold `nodes` tree tokens each in both caches during this step.

    `chunks` (n,) are the target's, `fed` (n,) the drafter's; `evicted` (m,) give up their cache before the trees grow.
    """
    fresh, trees = int(np.add.reduce(chunks)), growing * nodes
    if view.surely_fits(len(requests), fresh + trees, int(np.add.reduce(fed)) + trees):
        return True
    tree = nodes if growing == len(requests) else np.where(np.arange(len(requests)) < growing, nodes, 0)
    need = view.growth_bytes(
        requests, view.target_cached[requests] + chunks + tree, view.draft_cached[requests] + fed + tree
    )
    freed = int(view.held_bytes(evicted).sum()) if len(evicted) else 0
    return int(np.add.reduce(need)) <= view.free_bytes + freed


def rows_fit(view: View, rows: Rows, nodes: int) -> bool:
    """Return whether each row that decodes can hold `nodes` tree tokens in both caches, once the evicted have left."""
    return trees_fit(view, rows.requests, rows.chunks, rows.decoding, nodes, rows.fed, rows.evicted)


def fitting_shape(view: View, rows: Rows, shape: TreeShape) -> TreeShape:
    """Return the largest shape, narrowed first and then shortened, whose trees fit the free memory; depth 0 if none."""
    depth, width = shape
    while depth and not rows_fit(view, rows, depth * width):
        depth, width = (depth, width - 1) if width > 1 else (depth - 1, width)
    return TreeShape(depth, width)


def believed_verify_s(view: View, requests: Ids, chunks: Ints, tree_tokens: int) -> float:
    """Return the seconds that a verification of these rows and so many tree tokens is believed to take."""
    cached = view.target_cached[requests]
    context = int(cached.sum())
    pairs = float(np.dot(chunks, cached) + np.dot(chunks, chunks + 1) / 2) + tree_tokens * context / len(cached)
    return view.belief.target.seconds(context, int(chunks.sum()) + tree_tokens, pairs, len(requests) + tree_tokens)
