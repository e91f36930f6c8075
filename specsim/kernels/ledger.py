"""The arithmetic of a ledger: cache that a pass takes, and cache that a verification leaves."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from specsim.kernels import compiled_loops
from specsim.kernels.growth import Answer, Floats, Ints
from specsim.pass_shape import PassShape

ILLEGAL = -(1 << 62)
"""Told by a compiled loop instead of a number of blocks."""
POSITIONS = 16
"""Draft positions at which right drafts are counted."""
NO_INTS: Ints = np.zeros(0, dtype=np.int64)
"""Nothing."""
NO_INTS.flags.writeable = False


class Books(NamedTuple):
    """Columns of a ledger, (N,) each; index = request id.

    Attributes
    ----------
    prompt_tokens, emitted_tokens : of each request.
    target_cached, draft_cached : tokens in either model's cache.
    target_blocks, draft_blocks : blocks that each request holds of its own.
    target_lent, draft_lent : its first tokens that lie in blocks which are not its own.
    draft_nodes, draft_depth : nodes of this step that the drafter's cache holds, and how deep the deepest of them lies.
    """

    prompt_tokens: Ints
    emitted_tokens: Ints
    target_cached: Ints
    draft_cached: Ints
    target_blocks: Ints
    draft_blocks: Ints
    target_lent: Ints
    draft_lent: Ints
    draft_nodes: Ints
    draft_depth: Ints


class ProgressColumns(NamedTuple):
    """Columns that a verification adds to, (N,) each, `accepted_at` (N, POSITIONS): see `server.state.Progress`."""

    draft_tokens: Ints
    accepted_tokens: Ints
    accepted_at: Ints
    speculations: Ints
    verifications: Ints
    decoded_tokens: Ints
    first_token_s: Floats
    last_token_s: Floats


class Room(NamedTuple):
    """Tokens of a block, and how many further blocks of each model there are at most."""

    block_tokens: int
    target_blocks: int
    draft_blocks: int


class Taken(NamedTuple):
    """Cache that a pass takes.

    Attributes
    ----------
    blocks : further ones, below 0 where some are freed; more than there are: nothing is taken.
    shape : of the pass; None where it is illegal, and nothing is taken.
    rows : of a verification: (n,) drafted nodes of each row. Of a draft: (m,) the request of each extended leaf.
    """

    blocks: int
    shape: PassShape | None
    rows: Ints


def reserve(books: Books, ids: Ints, scheduled: Ints, numbers: Ints, room: Room) -> Taken:
    """Take the blocks of a verification of `scheduled` (n,) and of a forest's nodes, `numbers` (5, nodes).

    It is illegal where not between one and all of the pending tokens are scheduled, or a tree hangs behind fewer.
    """
    tree, cached = np.empty((2, len(ids)), dtype=np.int64)
    told = compiled_loops().reserve(*books, ids, scheduled, numbers, *room, tree, cached)
    return _taken(told, tree if numbers.shape[1] > len(ids) else tree[:0])


def reserve_draft(
    books: Books, ids: Ints, scheduled: Ints, numbers: Ints, fresh: int, leaves: Ints, room: Room
) -> Taken:
    """Take the blocks of a draft pass that feeds `scheduled`, (n,) or nothing, and extends `leaves` (m,) of a forest.

    It is illegal where more tokens are scheduled than the cache lacks, a leaf is no node, is named twice, has children
    or its row has not caught up, or nothing would run. No node from `fresh` on has children.
    """
    extended, scratch = np.empty(len(leaves), dtype=np.int64), np.empty((3, len(ids)), dtype=np.int64)
    asked = ids, scheduled, numbers, fresh, np.ascontiguousarray(leaves)
    return _taken(compiled_loops().reserve_draft(*books, *asked, *room, extended, scratch), extended)


def _taken(told: tuple[Any, ...], rows: Ints) -> Taken:
    blocks, *counts = told
    return Taken(0, None, NO_INTS) if blocks == ILLEGAL else Taken(blocks, PassShape(*counts), rows)


def deepen(books: Books, ids: Ints, scheduled: Ints, numbers: Ints, extended: Ints, room: Room) -> int:
    """Take the blocks of nodes (m,) that further passes of a draft extended; return how many, as in `Taken`.

    Raises
    ------
    IndexError
        When a node does not exist, or is of no row.
    """
    scratch, nodes = np.empty((2, len(ids)), dtype=np.int64), np.ascontiguousarray(extended, dtype=np.int64)
    more: int = compiled_loops().deepen(*books, ids, scheduled, numbers, nodes, *room, scratch)
    if more == ILLEGAL:
        raise IndexError(f"a draft extends nodes that are none of its forest of {numbers.shape[1]}")
    return more


def commit(
    books: Books,
    progress: ProgressColumns,
    ids: Ints,
    scheduled: Ints,
    tree: Ints,
    answer: Answer,
    drafted: bool,
    feeds: bool,
    now_s: float,
    block_tokens: int,
) -> tuple[tuple[int, int], tuple[Ints, Floats], Ints]:
    """Book a verification that ends at `now_s`: only the accepted path stays cached, and no more blocks are held.

    Return the further blocks of target and drafter, below 0 where some are freed; the requests (m,) that have emitted
    again, and the seconds (m,) since they did before; and those (f,) that have emitted for the first time.

    Parameters
    ----------
    tree : (n,) drafted nodes of each row; empty where no row has any.
    answer : as `specsim.core.passes.Emitted`.
    drafted : whether a draft pass has run in this step. feeds : whether the drafter has a cache of its own.
    """
    # A backend of one's own may count in other integers.
    tokens, accepted, matched = (np.ascontiguousarray(each, dtype=np.int64) for each in answer[:3])
    who, gaps_s = np.empty((2, len(ids)), dtype=np.int64), np.empty(len(ids))
    asked = ids, scheduled, tree, tokens, accepted, matched, drafted, feeds, now_s
    more, more_draft, later, first = compiled_loops().commit(*books, *progress, *asked, block_tokens, who, gaps_s)
    return (more, more_draft), (who[0, :later], gaps_s[:later]), who[1, :first]
