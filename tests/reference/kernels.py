"""The compiled kernels once more, in numpy: the loops equal them to the last bit.

Each function is the one of its name in `specsim.kernels`.
"""

from typing import Any

import numpy as np

from specsim.kernels.growth import (
    ALL,
    DEPTH,
    OFF_PATH,
    PARENT,
    ROW,
    SLOT,
    TOKEN,
    Answer,
    Bools,
    Floats,
    Front,
    Grown,
    Growth,
    Ints,
    Pooled,
    Text,
    Texts,
    likeliest,
    next_keys,
)
from specsim.kernels.ledger import NO_INTS, POSITIONS, Books, ProgressColumns, Room, Taken
from specsim.pass_shape import PassShape
from specsim.rng import STRIDE, Words, mix

ENDLESS = 1 << 62


def grow(text: Text, front: Front, growth: Growth) -> Grown:
    node, row, depth, path, key, on = front
    member, first, read = np.arange(len(node)), growth.first, 0
    numbers, odds, words, rows, ends = [], [], [], [], []
    deep = int(depth.max()) + growth.levels > int(growth.limit.min())
    for _ in range(growth.levels):
        if deep and not (going := depth < growth.limit[row]).all():
            node, row, depth, path = node[going], row[going], depth[going], path[going]
            key, on, member = key[going], on[going], member[going]
        if len(node) * growth.width > growth.most:
            return Grown(*(np.empty(0),) * 5, refused=len(node) * growth.width)
        hashed = mix(key)
        at = text.at(member, key, hashed, on, depth)
        rank = text.rank[at]
        rank[~on] = OFF_PATH
        confidence = text.confidence.take(at, axis=0)[:, : growth.width]
        ahead = confidence * path[:, None]
        kept = likeliest(row, ahead, growth.beam) if growth.beam != ALL and len(row) else np.arange(ahead.size)
        if text.silent:
            kept = kept[ahead.take(kept) > 0]
        behind = kept // growth.width
        token = kept - behind * growth.width
        words.append((key, hashed))
        rows.append((at, rank))
        row, depth, path = row[behind], depth[behind] + 1, ahead.take(kept)
        numbers.append((row, node[behind], depth, token, behind + read))
        odds.append((confidence.take(kept), path))
        on = rank[behind] == token
        key = next_keys(key[behind], hashed[behind], on, token)
        member, node = member[behind], np.arange(first, first + len(kept))
        first, read = first + len(kept), read + len(at)
        ends.append(first - growth.first)
        if not len(kept):
            break
    ends += [ends[-1]] * (growth.levels - len(ends))
    return Grown(_joined(numbers), _joined(odds), _joined(words), _joined(rows), np.array(ends))


def _joined(levels: list[tuple[Any, ...]]) -> Any:
    first = levels[0]
    joined = np.empty((len(first), sum(len(columns[0]) for columns in levels)), dtype=first[0].dtype)
    low = high = 0
    for columns in levels:
        low, high = high, high + len(columns[0])
        for place, column in enumerate(columns):
            joined[place, low:high] = column
    return joined


def select(row: Ints, path: Floats, need: Floats, order: Ints, most_nodes: int, budget: int, fill: bool) -> Bools:
    rows, chosen = len(need), np.zeros(len(row), dtype=np.bool_)
    likeliest = np.argsort(-path, kind="stable")
    by_row = likeliest[np.argsort(row[likeliest].astype(np.uint16), kind="stable")]
    sizes = np.bincount(row, minlength=rows)
    columns = np.arange(int(sizes.max()))
    filled = columns < sizes[:, None]
    ranked = np.zeros(filled.shape)
    ranked[filled] = path[by_row]
    wanted = nodes_for_slo(ranked, need, np.minimum(sizes, most_nodes))
    taken = within_budget(wanted, order, budget - rows)
    chosen[by_row[(columns < taken[:, None])[filled]]] = True
    if not fill:
        return chosen
    left = budget - rows - int(taken.sum())
    chosen[likeliest[~chosen[likeliest]][:left]] = True
    return chosen


def nodes_for_slo(path: Floats, need: Floats, most: Ints) -> Ints:
    reached = 1.0 + np.cumsum(path, axis=1)
    count = (need > 1.0) + (reached < need[:, None]).sum(axis=1)
    wanted: Ints = np.minimum(count, most)
    return wanted


def within_budget(wanted: Ints, order: Ints, budget: int) -> Ints:
    queue = wanted[order]
    before = np.cumsum(queue) - queue
    taken = np.zeros_like(wanted)
    taken[order] = np.minimum(np.maximum(budget - before, 0), queue)
    return taken


def walk(numbers: Ints, rows: int, rank: Ints) -> Ints:
    matched = np.zeros(rows, dtype=np.int64)
    right = rows + (rank[numbers[SLOT, rows:]] == numbers[TOKEN, rows:]).nonzero()[0]
    matched[numbers[ROW].take(right)] = numbers[DEPTH].take(right)
    return matched


def answer(texts: Texts, ids: Ints, chunks: Ints, numbers: Ints, rank: Ints) -> Answer:
    emitted, rows = texts.emitted_tokens[ids], len(ids)
    complete = chunks == texts.prompt_tokens[ids] + emitted - texts.target_cached[ids]
    matched = walk(numbers, rows, rank) if numbers.shape[1] > rows else np.zeros(rows, dtype=np.int64)
    left = texts.output_tokens[ids] - emitted
    tokens = np.minimum(matched + 1, left) * complete
    return tokens, np.minimum(matched, tokens), matched, tokens == left


def rounds(text: Pooled, key: Words, depth: int, left: Ints, room: Ints, most: int) -> Ints:
    found: list[list[int]] = []
    emitted = np.zeros(len(key), dtype=np.int64)
    while len(found) < most and (emitted < room).all() and (emitted < left).all():
        found.append([_right(text, row, key[row], int(emitted[row]), depth) for row in range(len(key))])
        emitted += np.array(found[-1]) + 1
    return np.array(found, dtype=np.int64).reshape(-1, len(key))


def _right(text: Pooled, row: int, key: np.uint64, position: int, depth: int) -> int:
    for ahead in range(depth):
        hashed = mix(np.array([key]) + STRIDE * np.array([position + ahead], dtype=np.uint64))
        at = text.at(np.array([row]), np.array([key]), hashed, np.ones(1, dtype=np.bool_), np.array([ahead]))
        if text.rank[at][0]:
            return ahead
    return depth


def hold(held: Ints, ids: Ints, tokens: Ints, block_tokens: int, most: int) -> int:
    blocks = -(-tokens // block_tokens)
    before = held[ids]
    more = int(np.add.reduce(blocks - before))
    if more <= most:
        held[ids] = blocks
    return more


def reserve(books: Books, ids: Ints, chunks: Ints, numbers: Ints, room: Room) -> Taken:
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
    blocks = hold(books.target_blocks, ids, own, room.block_tokens, room.target_blocks)
    return Taken(blocks, shape, NO_INTS if tree is None else tree)


def reserve_draft(books: Books, ids: Ints, chunks: Ints, numbers: Ints, fresh: int, leaves: Ints, room: Room) -> Taken:
    rows = len(ids)
    if not legal_leaves(numbers, rows, leaves):
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
    blocks = hold(books.draft_blocks, ids, tokens - books.draft_lent[ids], room.block_tokens, room.draft_blocks)
    extended = ids[row]
    if blocks <= room.draft_blocks:
        books.draft_nodes[ids] = held
        np.maximum.at(books.draft_depth, extended, numbers[DEPTH].take(leaves))
    return Taken(blocks, shape, extended)


def legal_leaves(numbers: Ints, rows: int, leaves: Ints) -> bool:
    nodes, count = numbers.shape[1], len(leaves)
    if not count:
        return True
    if np.count_nonzero((leaves < 0) | (leaves >= nodes)):
        return False
    marked = np.zeros(nodes, dtype=np.bool_)
    marked[leaves] = True
    return np.count_nonzero(marked) == count and not np.count_nonzero(marked[numbers[PARENT, rows:]])


def deepen(books: Books, ids: Ints, chunks: Ints, numbers: Ints, extended: Ints, room: Room) -> int:
    row = numbers[ROW].take(extended)
    held = books.draft_nodes[ids] + np.bincount(row, minlength=len(ids))
    cached = books.draft_cached[ids] - books.draft_lent[ids]
    tokens = (cached + chunks if len(chunks) else cached) + held
    blocks = hold(books.draft_blocks, ids, tokens, room.block_tokens, room.draft_blocks)
    if blocks <= room.draft_blocks:
        books.draft_nodes[ids] = held
        np.maximum.at(books.draft_depth, ids[row], numbers[DEPTH].take(extended))
    return blocks


def keep(books: Books, ids: Ints, matched: Ints, feeds: bool, block_tokens: int) -> int:
    cached = books.draft_cached[ids]
    if feeds:
        in_step = cached == books.prompt_tokens[ids] + books.emitted_tokens[ids]
        cached += np.where(in_step, np.minimum(matched, books.draft_depth[ids]), 0)
        books.draft_cached[ids] = cached
    books.draft_nodes[ids] = books.draft_depth[ids] = 0
    return hold(books.draft_blocks, ids, cached - books.draft_lent[ids], block_tokens, ENDLESS)


def follow(books: Books, ids: Ints) -> None:
    emitted = books.emitted_tokens[ids]
    known = books.prompt_tokens[ids] + emitted
    books.draft_cached[ids] = known - ((known - books.target_cached[ids] == 1) & (emitted > 0))


def commit(
    books: Books,
    progress: ProgressColumns,
    ids: Ints,
    chunks: Ints,
    tree: Ints,
    answered: tuple[Ints, Ints, Ints, Bools],
    drafted: bool,
    feeds: bool,
    now_s: float,
    block_tokens: int,
) -> tuple[tuple[int, int], tuple[Ints, Floats], Ints]:
    tokens, accepted, matched, _ = answered
    before = books.emitted_tokens[ids]
    decoding = np.logical_and(before, tokens)
    cached = books.target_cached[ids] + (chunks + matched)
    books.target_cached[ids] = cached
    if len(tree):
        progress.draft_tokens[ids] += tree
        progress.speculations[ids] += tree > 0
        progress.accepted_tokens[ids] += accepted
        progress.accepted_at[ids] += np.arange(POSITIONS) < (matched * (tree > 0))[:, None]
    progress.verifications[ids] += decoding
    progress.decoded_tokens[ids] += decoding * tokens
    draft_blocks = keep(books, ids, matched, feeds, block_tokens) if drafted else 0
    books.emitted_tokens[ids] = before + tokens
    target_blocks = hold(books.target_blocks, ids, cached - books.target_lent[ids], block_tokens, ENDLESS)
    emitting, later, first = ids, ids, NO_INTS
    if np.count_nonzero(decoding) < len(ids):
        emitting, later = ids[tokens > 0], ids[decoding]
        first = ids[(tokens > 0) & ~decoding]
        progress.first_token_s[first] = now_s
    gaps_s = now_s - progress.last_token_s[later]
    progress.last_token_s[emitting] = now_s
    if not feeds:
        follow(books, ids)
    return (target_blocks, draft_blocks), (later, gaps_s), first
