"""What a pass takes of the caches, and what a verification leaves there: the arithmetic of a ledger."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from specsim.kernels.arrays import Bools, Floats, Ints
from specsim.kernels.blocks import numpy_hold
from specsim.kernels.growth import DEPTH, PARENT, ROW
from specsim.pass_shape import PassShape

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


class Tally(NamedTuple):
    """Columns that a verification adds to, (N,) each; as in `specsim.replica.state.Progress`."""

    draft_tokens: Ints
    accepted_tokens: Ints
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
    """What a pass takes.

    Attributes
    ----------
    blocks : further ones, below 0 where some are freed; more than there are: nothing is taken.
    shape : of the pass; None where it is illegal, and nothing is taken.
    rows : of a verification: (n,) drafted nodes of each row. Of a draft: (m,) the request of each extended leaf.
    """

    blocks: int
    shape: PassShape | None
    rows: Ints


class Left(NamedTuple):
    """What a verification leaves.

    Attributes
    ----------
    target_blocks, draft_blocks : further ones that are held, below 0 where some are freed.
    later, gaps_s : (m,) requests that have emitted again, and the seconds since they did before.
    first : (f,) requests that have emitted for the first time.
    """

    target_blocks: int
    draft_blocks: int
    later: Ints
    gaps_s: Floats
    first: Ints


def numpy_reserve(books: Books, ids: Ints, chunks: Ints, numbers: Ints, room: Room) -> Taken:
    """Take the blocks of a verification of `chunks` (n,) and of a forest's nodes, `numbers` (5, nodes).

    It is illegal where a chunk is not between one and all of the pending tokens, or a tree hangs behind fewer.
    """
    rows = len(ids)
    cached, emitted = books.target_cached[ids], books.emitted_tokens[ids]
    pending = books.prompt_tokens[ids] + emitted - cached
    drafted, tree = numbers.shape[1] - rows, None
    if drafted:
        tree = np.bincount(numbers[ROW, rows:], minlength=rows)
    decoding = np.count_nonzero(np.logical_and(chunks == 1, emitted))
    if decoding == rows and np.count_nonzero(pending == 1) == rows:
        shape = PassShape.of_decoding(cached, tree, drafted)
        tokens = cached + 1 if tree is None else cached + tree + 1
    else:
        wrong = (chunks < 1) | (chunks > pending)
        if np.count_nonzero(wrong) or (tree is not None and np.count_nonzero(tree[chunks < pending])):
            return Taken(0, None, NO_INTS)
        shape = PassShape.of(cached, chunks, tree, int(np.add.reduce(chunks)) - int(decoding))
        tokens = cached + (chunks if tree is None else chunks + tree)
    own = tokens - books.target_lent[ids]
    blocks = numpy_hold(books.target_blocks, ids, own, room.block_tokens, room.target_blocks)
    return Taken(blocks, shape, NO_INTS if tree is None else tree)


def numpy_reserve_draft(
    books: Books, ids: Ints, chunks: Ints, numbers: Ints, fresh: int, leaves: Ints, room: Room
) -> Taken:
    """Take the blocks of a draft pass that feeds `chunks`, (n,) or nothing, and extends `leaves` (m,) of a forest.

    It is illegal where a chunk is longer than what the cache lacks, a leaf is no node, stands twice, has children or
    its row has not caught up, or nothing would run. No node from `fresh` on has children.
    """
    rows = len(ids)
    if not legal_leaves(numbers, rows, fresh, leaves):
        return Taken(0, None, NO_INTS)
    cached, inner = books.draft_cached[ids], leaves[leaves >= rows]
    row = numbers[ROW].take(leaves)
    nodes = np.bincount(numbers[ROW].take(inner), minlength=rows)
    held = books.draft_nodes[ids] + nodes
    if not len(chunks) and len(inner) == len(leaves):
        # Whoever has drafted nodes has caught up: there is nothing to feed and nothing to look at.
        tokens, shape = cached + held, PassShape.of_nodes(cached, nodes)
    else:
        fed = chunks if len(chunks) else np.zeros_like(ids)
        prompt = books.prompt_tokens[ids]
        pending = prompt + books.emitted_tokens[ids] - cached
        if np.count_nonzero((fed < 0) | (fed > pending)) or np.count_nonzero((pending > fed)[row]):
            return Taken(0, None, NO_INTS)
        tokens = cached + fed + held
        shape = PassShape.of(cached, fed, nodes if len(inner) else None, int(np.dot(fed, cached < prompt)))
    if not shape.batched_tokens:
        return Taken(0, None, NO_INTS)
    blocks = numpy_hold(books.draft_blocks, ids, tokens - books.draft_lent[ids], room.block_tokens, room.draft_blocks)
    extended = ids[row]
    if blocks <= room.draft_blocks:
        books.draft_nodes[ids] = held
        np.maximum.at(books.draft_depth, extended, numbers[DEPTH].take(leaves))
    return Taken(blocks, shape, extended)


_PLACES = np.arange(1 << 16)


def legal_leaves(numbers: Ints, rows: int, fresh: int, leaves: Ints) -> bool:
    """Return whether all `leaves` (m,) are different nodes without children; see `numpy_reserve_draft`."""
    nodes, count = numbers.shape[1], len(leaves)
    if not count:
        return True
    first = leaves.item(0)
    if fresh <= first <= nodes - count and leaves.tobytes() == _PLACES[first : first + count].tobytes():
        return True
    if np.count_nonzero((leaves < 0) | (leaves >= nodes)):
        return False
    marked = np.zeros(nodes, dtype=np.bool_)
    marked[leaves] = True
    return np.count_nonzero(marked) == count and not np.count_nonzero(marked[numbers[PARENT, rows:]])


def numpy_deepen(books: Books, ids: Ints, chunks: Ints, numbers: Ints, extended: Ints, room: Room) -> int:
    """Take the blocks of nodes (m,) that further passes of a draft extended; return how many, as in `Taken`."""
    row = numbers[ROW].take(extended)
    held = books.draft_nodes[ids] + np.bincount(row, minlength=len(ids))
    cached = books.draft_cached[ids] - books.draft_lent[ids]
    tokens = (cached + chunks if len(chunks) else cached) + held
    blocks = numpy_hold(books.draft_blocks, ids, tokens, room.block_tokens, room.draft_blocks)
    if blocks <= room.draft_blocks:
        books.draft_nodes[ids] = held
        np.maximum.at(books.draft_depth, ids[row], numbers[DEPTH].take(extended))
    return blocks


ENDLESS = 1 << 62
"""More blocks than there ever are."""


def numpy_keep(books: Books, ids: Ints, matched: Ints, feeds: bool, block_tokens: int) -> int:
    """Keep in the drafter's cache what lies on the accepted path, and drop the other nodes; return the further blocks.

    `matched` (n,) draft tokens were right. A row keeps some if the cache held all of its text in this step and the
    drafter `feeds` one.
    """
    cached = books.draft_cached[ids]
    if feeds:
        in_step = cached == books.prompt_tokens[ids] + books.emitted_tokens[ids]
        cached += np.where(in_step, np.minimum(matched, books.draft_depth[ids]), 0)
        books.draft_cached[ids] = cached
    books.draft_nodes[ids] = books.draft_depth[ids] = 0
    return numpy_hold(books.draft_blocks, ids, cached - books.draft_lent[ids], block_tokens, ENDLESS)


def numpy_follow(books: Books, ids: Ints) -> None:
    """Move a drafter without a cache to where the target is: behind all but the root of a decoding request."""
    emitted = books.emitted_tokens[ids]
    known = books.prompt_tokens[ids] + emitted
    books.draft_cached[ids] = known - ((known - books.target_cached[ids] == 1) & (emitted > 0))


def numpy_commit(
    books: Books,
    tally: Tally,
    ids: Ints,
    chunks: Ints,
    tree: Ints,
    answer: tuple[Ints, Ints, Ints, Bools],
    drafted: bool,
    feeds: bool,
    now_s: float,
    block_tokens: int,
) -> Left:
    """Book a verification that ends at `now_s`: only the accepted path stays cached, and no more blocks are held.

    Parameters
    ----------
    tree : (n,) drafted nodes of each row; empty where no row has any.
    answer : as `specsim.replica.passes.Emitted`.
    drafted : whether a draft pass has run in this step. feeds : whether the drafter has a cache of its own.
    """
    tokens, accepted, matched, _ = answer
    before = books.emitted_tokens[ids]
    decoding = np.logical_and(before, tokens)
    cached = books.target_cached[ids] + (chunks + matched)
    books.target_cached[ids] = cached
    if len(tree):
        tally.draft_tokens[ids] += tree
        tally.speculations[ids] += tree > 0
        tally.accepted_tokens[ids] += accepted
    tally.verifications[ids] += decoding
    tally.decoded_tokens[ids] += decoding * tokens
    draft_blocks = numpy_keep(books, ids, matched, feeds, block_tokens) if drafted else 0
    books.emitted_tokens[ids] = before + tokens
    target_blocks = numpy_hold(books.target_blocks, ids, cached - books.target_lent[ids], block_tokens, ENDLESS)
    emitting, later, first = ids, ids, NO_INTS
    if np.count_nonzero(decoding) < len(ids):
        emitting, later = ids[tokens > 0], ids[decoding]
        first = ids[(tokens > 0) & ~decoding]
        tally.first_token_s[first] = now_s
    gaps_s = now_s - tally.last_token_s[later]
    tally.last_token_s[emitting] = now_s
    if not feeds:
        numpy_follow(books, ids)
    return Left(target_blocks, draft_blocks, later, gaps_s, first)
