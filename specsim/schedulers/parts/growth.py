"""Growing the token trees of a batch, and whether they fit the memory."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import takewhile
from math import inf

import numpy as np

from specsim.core.passes import NOBODY, DraftPass
from specsim.core.protocols import View
from specsim.core.request import Ids, Ints
from specsim.core.trees import Forest
from specsim.pass_shape import PassShape
from specsim.schedulers.parts.protocols import Growing, Sequences
from specsim.schedulers.parts.tree_shape import TreeShape

GoingOn = Callable[[Forest, Ints], Ints]
"""Returns the leaves that the next draft pass extends, from the forest and its leaves (m,); empty: no further pass."""


def grow_trees(
    view: View,
    requests: Ids,
    catch_up: Ints,
    growing: int,
    depth: int,
    width: int,
    stationary_until_s: float = -inf,
) -> Generator[DraftPass, Forest, Forest]:
    """Yield draft passes and return candidate trees: `depth` layers of a request's likeliest `width` nodes each.

    Width 1 gives chains (AdaServe, section 4.3, step 1). No tree is deeper than `useful_depth`.

    Parameters
    ----------
    requests : (n,) sequences of the coming verification; the first `growing` of them get a tree.
    catch_up : (n,) tokens for the drafter's cache, in the first pass; in a pass of their own if no tree grows.
    stationary_until_s : as in `DraftPass`.
    """
    max_depth, beam = max_depths(view, requests, growing), width if width > 1 else None
    depth = min(depth, view.cost_model.draft.max_depth)
    return grow(requests, catch_up, max_depth, (width,) * depth, beam=beam, stationary_until_s=stationary_until_s)


def grow(
    requests: Ids,
    catch_up: Ints,
    max_depth: Ints,
    widths: Sequence[int],
    *,
    beam: int | None = None,
    going_on: GoingOn | None = None,
    stationary_until_s: float = -inf,
) -> Generator[DraftPass, Forest, Forest]:
    """Yield draft passes and return the trees; each pass gives every leaf as many children as its width.

    With `going_on` passes are yielded one by one; without, those of the same width together.

    Parameters
    ----------
    requests : (n,) sequences of the coming verification.
    catch_up : (n,) tokens for the drafter's cache, in the first pass; in a pass of their own if no tree can
        grow. If `going_on` stops all trees, theirs are left to a later step; other sequences are fed.
    max_depth : (n,) integers, the greatest depth of each tree.
    widths : children of each leaf, by depth; empty: no pass.
    beam, stationary_until_s : as in `DraftPass`.
    """
    if max_depth.dtype.kind != "i":
        raise TypeError(f"max_depth holds {max_depth.dtype}; expected integers")
    forest = Forest.roots(len(requests))
    leaves = np.flatnonzero(max_depth > 0)
    if not len(leaves) and len(widths) and catch_up.any():
        yield DraftPass(requests, catch_up, forest)
    limit = max_depth if len(leaves) and int(max_depth[leaves].min()) < len(widths) else None
    level = 0
    while level < len(widths) and len(leaves):
        if going_on is not None:
            leaves = going_on(forest, leaves)
            if not len(leaves):
                if not level and (catch_up := np.where(max_depth > 0, 0, catch_up)).any():
                    yield DraftPass(requests, catch_up, forest)
                break
        depth = 1 if going_on is not None else len([*takewhile(widths[level].__eq__, widths[level:])])
        bound = limit if depth > 1 else None
        forest = yield DraftPass(
            requests,
            catch_up,
            forest,
            leaves,
            widths[level],
            beam,
            depth=depth,
            max_depth=bound,
            stationary_until_s=stationary_until_s,
        )
        catch_up, level = NOBODY, level + depth
        if level < len(widths):
            leaves = np.flatnonzero(forest.depth == level)
            if limit is not None:
                leaves = leaves[limit[forest.row[leaves]] > level]
    return forest


def grow_sequences(view: View, sequences: Sequences, widths: Sequence[int], going_on: GoingOn | None = None) -> Growing:
    """Return `grow` for the decoding sequences, with no tree deeper than `useful_depth`."""
    max_depth = max_depths(view, sequences.requests, sequences.decoding)
    return grow(sequences.requests, sequences.catch_up, max_depth, widths, going_on=going_on)


def grow_fitting(view: View, sequences: Sequences, longest: int, going_on: GoingOn | None = None) -> Growing:
    """Return `grow_sequences` for chains, as long as fit the memory for all decoding ones, `longest` at most."""
    return grow_sequences(view, sequences, (1,) * fitting_shape(view, sequences, TreeShape(longest, 1)).depth, going_on)


def grow_chains(view: View, sequences: Sequences, depth: int, *, reads_along: bool = False) -> Growing:
    """Return `grow` for chains of one depth behind all decoding sequences; none if they do not all fit.

    Where no sequence decodes, the drafter is fed whatever the depth; if it `reads_along`, at depth 0, too.
    """
    growing = sequences.decoding if depth or not reads_along else 0
    if not sequences_fit(view, sequences, depth):
        depth = 0
    elif not growing:
        depth = 1
    return grow_trees(view, sequences.requests, sequences.catch_up, growing, depth, 1, sequences.stationary_until_s)


def max_depths(view: View, requests: Ids, growing: int) -> Ints:
    """Return the greatest useful depth of each sequence's tree, (n,); 0 for sequences after the first `growing`."""
    max_depth = useful_depth(view, requests)
    max_depth[growing:] = 0
    return max_depth


def useful_depth(view: View, requests: Ids) -> Ints:
    """Return how many draft tokens each request could still emit beside the bonus token, (n,), as deep as drafts go."""
    left: Ints = view.max_tokens[requests] - view.emitted_tokens[requests] - 1
    return np.minimum(left, view.cost_model.draft.max_depth, out=left)


def trees_fit(
    view: View, requests: Ids, scheduled_tokens: Ints, growing: int, nodes: int, catch_up: Ints, evicted: Ids = NOBODY
) -> bool:
    """Return whether the first `growing` sequences can hold `nodes` tree tokens each in both caches during this step.

    `scheduled_tokens` (n,) are the target's, `catch_up` (n,) the drafter's. `evicted` (m,) lose their cache before.
    """
    fresh, trees = int(np.add.reduce(scheduled_tokens)), growing * nodes
    if view.surely_fits(len(requests), fresh + trees, int(np.add.reduce(catch_up)) + trees):
        return True
    tree = nodes if growing == len(requests) else np.where(np.arange(len(requests)) < growing, nodes, 0)
    need = view.growth_bytes(
        requests, view.target_cached[requests] + scheduled_tokens + tree, view.draft_cached[requests] + catch_up + tree
    )
    freed = int(view.held_bytes(evicted).sum()) if len(evicted) else 0
    return int(np.add.reduce(need)) <= view.free_bytes + freed


def sequences_fit(view: View, sequences: Sequences, nodes: int) -> bool:
    """Return whether each decoding sequence can hold `nodes` tree tokens in both caches, after the evictions."""
    return trees_fit(
        view,
        sequences.requests,
        sequences.scheduled_tokens,
        sequences.decoding,
        nodes,
        sequences.catch_up,
        sequences.evicted,
    )


def fitting_shape(view: View, sequences: Sequences, shape: TreeShape) -> TreeShape:
    """Return the largest shape that fits the free memory, made narrower first, then shallower; depth 0 if none fits."""
    depth, width = shape
    while depth and not sequences_fit(view, sequences, depth * width):
        depth, width = (depth, width - 1) if width > 1 else (depth - 1, width)
    return TreeShape(depth, width)


def plain_shape(view: View, sequences: Sequences) -> PassShape:
    """Return the shape of verifying these sequences without trees."""
    cached = view.target_cached[sequences.requests]
    if sequences.decoding == len(cached):
        return PassShape.of_decoding(cached)
    scheduled = sequences.scheduled_tokens
    return PassShape.of(cached, scheduled, prefill_tokens=int(scheduled[sequences.decoding :].sum()))


def estimated_verify_s(view: View, sequences: Sequences, tree_tokens: int) -> float:
    """Return the estimated seconds of a verification of these sequences with `tree_tokens`."""
    plain = plain_shape(view, sequences)
    pairs = tree_tokens * (plain.context_tokens / len(sequences.requests) + 2)
    return view.cost_model.target.seconds(plain.with_nodes(tree_tokens, pairs))
