"""The arithmetic of a ledger (a pass takes cache, the target answers, cache is left) as loops that numba compiles.

See `specsim.kernels.ledger` and `acceptance` for what they do, and `tree_loops` for how they are written.
"""

from __future__ import annotations

import numpy as np
from numba import types

from specsim.kernels.compiling import (
    FLAG,
    INTS,
    NUMBER,
    WHOLE,
    array_of,
    compiled,
    filled,
    inner,
)
from specsim.kernels.growth import DEPTH, PARENT, ROW, SLOT, TOKEN
from specsim.kernels.ledger import ILLEGAL

NUMBERS = array_of(WHOLE, 2)
BOOKS = (filled(WHOLE),) * 10
TALLY = (*(filled(WHOLE),) * 2, filled(types.int32, 2), *(filled(WHOLE),) * 3, *(filled(NUMBER),) * 2)
ROOM = (WHOLE,) * 3
NOTHING = (ILLEGAL, 0, 0, 0.0, 0, 0, 0, 0)


@inner
def _blocks(tokens, block_tokens):
    return (tokens + block_tokens - 1) // block_tokens


@inner
def _inside(numbers, rows):
    """Return whether all nodes are of rows that are there: a backend of one's own may say anything."""
    wrong = False
    for node in range(numbers.shape[1]):
        wrong |= numbers[ROW, node] < 0 or numbers[ROW, node] >= rows
    return not wrong


@inner
def _shape(blocks, cached, scheduled, nodes, prefill):
    """Return the blocks, and what `PassShape.of` says of these rows, (n,) each."""
    context = batched = requests = drafted = total = own = read = again = 0
    for row in range(len(cached)):
        queries = scheduled[row] + nodes[row]
        read += queries * (cached[row] + scheduled[row])
        again += cached[row] * (nodes[row] + (scheduled[row] > 0))
        own += scheduled[row] * scheduled[row]
        total += scheduled[row]
        drafted += nodes[row]
        requests += queries > 0
        context += cached[row] if queries > 0 else 0
        batched += scheduled[row] > 0
    pairs = float(read + total + drafted) - float(own + total) / 2
    return blocks, context, total + drafted, pairs, prefill, drafted + batched, requests, again - context


@compiled(*BOOKS, INTS, INTS, NUMBERS, *ROOM, filled(WHOLE), filled(WHOLE))
def reserve(
    prompt_tokens, emitted_tokens, target_cached, draft_cached, target_blocks, draft_blocks,
    target_lent, draft_lent, draft_nodes, draft_depth,
    ids, scheduled, numbers, block_tokens, most, _, tree, cached,
):  # fmt: skip
    """See `specsim.kernels.ledger.reserve`; `tree` (n,) is filled, `cached` (n,) may hold anything."""
    rows = len(ids)
    tree[:] = 0
    if not _inside(numbers, rows):
        return NOTHING
    for node in range(rows, numbers.shape[1]):
        tree[numbers[ROW, node]] += 1
    more = prefill = 0
    for row in range(rows):
        request, size = ids[row], scheduled[row]
        cached[row] = target_cached[request]
        pending = prompt_tokens[request] + emitted_tokens[request] - cached[row]
        if size < 1 or size > pending or (tree[row] > 0 and size < pending):
            return NOTHING
        prefill += 0 if size == 1 and emitted_tokens[request] > 0 else size
        tokens = cached[row] + size + tree[row] - target_lent[request]
        more += _blocks(tokens, block_tokens) - target_blocks[request]
    if more <= most:
        for row in range(rows):
            tokens = cached[row] + scheduled[row] + tree[row] - target_lent[ids[row]]
            target_blocks[ids[row]] = _blocks(tokens, block_tokens)
    return _shape(more, cached, scheduled, tree, prefill)


@inner
def _fit(leaves, numbers, rows, fresh):
    """Return whether all leaves are different nodes without children."""
    nodes = numbers.shape[1]
    rising, low, high = True, nodes, -1
    for leaf in leaves:
        rising &= leaf > high
        low, high = min(low, leaf), max(high, leaf)
    if low < 0 or high >= nodes:
        return False
    if rising and low >= fresh:
        return True
    marked, wrong = np.zeros(nodes, dtype=np.int64), False
    for leaf in leaves:
        marked[leaf] += 1
        wrong |= marked[leaf] > 1
    for node in range(rows, nodes):
        parent = numbers[PARENT, node]
        wrong |= parent < 0 or parent >= nodes or marked[parent] > 0
    return not wrong


@inner
def _feedable(prompt_tokens, emitted_tokens, ids, cached, catch_up, numbers, leaves):
    """Return whether no row gets more than it lacks, and those of the leaves all of it."""
    wrong = False
    for row in range(len(ids)):
        lacking = prompt_tokens[ids[row]] + emitted_tokens[ids[row]] - cached[row]
        wrong |= catch_up[row] < 0 or catch_up[row] > lacking
    for leaf in leaves:
        row = numbers[ROW, leaf]
        wrong |= prompt_tokens[ids[row]] + emitted_tokens[ids[row]] - cached[row] > catch_up[row]
    return not wrong


@inner
def _hold(draft_cached, draft_blocks, draft_lent, draft_nodes, ids, catch_up, nodes, block_tokens):
    """Hold the drafter's blocks of so many more tokens (n,), and more nodes (n,)."""
    for row in range(len(ids)):
        request = ids[row]
        draft_nodes[request] += nodes[row]
        tokens = draft_cached[request] + catch_up[row] + draft_nodes[request] - draft_lent[request]
        draft_blocks[request] = _blocks(tokens, block_tokens)


@inner
def _deepest(draft_depth, ids, numbers, nodes):
    """Note how deep the nodes (m,) lie."""
    for node in nodes:
        request = ids[numbers[ROW, node]]
        draft_depth[request] = max(draft_depth[request], numbers[DEPTH, node])


@compiled(*BOOKS, INTS, INTS, NUMBERS, WHOLE, INTS, *ROOM, filled(WHOLE), filled(WHOLE, 2))
def reserve_draft(
    prompt_tokens, emitted_tokens, target_cached, draft_cached, target_blocks, draft_blocks,
    target_lent, draft_lent, draft_nodes, draft_depth,
    ids, scheduled, numbers, fresh, leaves, block_tokens, _, most, extended, scratch,
):  # fmt: skip
    """See `specsim.kernels.ledger.reserve_draft`; `extended` (m,) is filled, `scratch` (3, n) holds anything."""
    rows, more, prefill, begins = len(ids), 0, 0, len(scheduled) > 0 or not len(leaves)
    if not (_inside(numbers, rows) and _fit(leaves, numbers, rows, fresh)):
        return NOTHING
    cached, catch_up, nodes = scratch[0], scratch[1], scratch[2]
    for row in range(rows):
        cached[row], nodes[row], catch_up[row] = draft_cached[ids[row]], 0, scheduled[row] if len(scheduled) else 0
    for place in range(len(leaves)):
        row = numbers[ROW, leaves[place]]
        extended[place] = ids[row]
        nodes[row] += leaves[place] >= rows
        begins |= leaves[place] < rows
    # Whoever has drafted nodes has caught up.
    if begins and not _feedable(prompt_tokens, emitted_tokens, ids, cached, catch_up, numbers, leaves):
        return NOTHING
    for row in range(rows):
        request = ids[row]
        prefill += catch_up[row] if cached[row] < prompt_tokens[request] else 0
        tokens = cached[row] + catch_up[row] + draft_nodes[request] + nodes[row] - draft_lent[request]
        more += _blocks(tokens, block_tokens) - draft_blocks[request]
    taken = _shape(more, cached, catch_up, nodes, prefill)
    if not taken[2]:
        return NOTHING
    if more <= most:
        _hold(draft_cached, draft_blocks, draft_lent, draft_nodes, ids, catch_up, nodes, block_tokens)
        _deepest(draft_depth, ids, numbers, leaves)
    return taken


@compiled(*BOOKS, INTS, INTS, NUMBERS, INTS, *ROOM, filled(WHOLE, 2))
def deepen(
    prompt_tokens, emitted_tokens, target_cached, draft_cached, target_blocks, draft_blocks,
    target_lent, draft_lent, draft_nodes, draft_depth,
    ids, scheduled, numbers, extended, block_tokens, _, most, scratch,
):  # fmt: skip
    """See `specsim.kernels.ledger.deepen`; `scratch` (2, n) may hold anything."""
    more, nodes, catch_up = 0, scratch[0], scratch[1]
    nodes[:] = 0
    if not _inside(numbers, len(ids)):
        return ILLEGAL
    for node in extended:
        if node < 0 or node >= numbers.shape[1]:
            return ILLEGAL
        nodes[numbers[ROW, node]] += 1
    for row in range(len(ids)):
        request = ids[row]
        catch_up[row] = scheduled[row] if len(scheduled) else 0
        tokens = draft_cached[request] + catch_up[row] + draft_nodes[request] + nodes[row] - draft_lent[request]
        more += _blocks(tokens, block_tokens) - draft_blocks[request]
    if more <= most:
        _hold(draft_cached, draft_blocks, draft_lent, draft_nodes, ids, catch_up, nodes, block_tokens)
        _deepest(draft_depth, ids, numbers, extended)
    return more


@compiled(
    *BOOKS, *TALLY, INTS, INTS, INTS, INTS, INTS, INTS, FLAG, FLAG, NUMBER, WHOLE, filled(WHOLE, 2), filled(NUMBER)
)
def commit(
    prompt_tokens, emitted_tokens, target_cached, draft_cached, target_blocks, draft_blocks,
    target_lent, draft_lent, draft_nodes, draft_depth,
    draft_tokens, accepted_tokens, accepted_at, speculations, verifications, decoded_tokens,
    first_token_s, last_token_s,
    ids, scheduled, tree, tokens, accepted, matched, drafted, feeds, now_s, block_tokens,
    who, gaps_s,
):  # fmt: skip
    """See `specsim.kernels.ledger.commit`; return the further blocks of both models, and how many `who` holds.

    `who` (2, n) is filled with those that emit again, whose gaps are `gaps_s` (n,), and for the first time.
    """
    more = more_draft = later = first = 0
    for row in range(len(ids)):
        request, before, emits = ids[row], emitted_tokens[ids[row]], tokens[row]
        if len(tree):
            draft_tokens[request] += tree[row]
            speculations[request] += tree[row] > 0
            accepted_tokens[request] += accepted[row]
            for position in range(min(matched[row], accepted_at.shape[1]) if tree[row] > 0 else 0):
                accepted_at[request, position] += 1
        if before > 0 and emits > 0:
            verifications[request] += 1
            decoded_tokens[request] += emits
            who[0, later], gaps_s[later] = request, now_s - last_token_s[request]
            later += 1
        elif emits > 0:
            who[1, first], first_token_s[request] = request, now_s
            first += 1
        if emits > 0:
            last_token_s[request] = now_s
        cached = target_cached[request] + scheduled[row] + matched[row]
        target_cached[request] = cached
        held = _blocks(cached - target_lent[request], block_tokens)
        more += held - target_blocks[request]
        target_blocks[request] = held
        if drafted:
            if feeds and draft_cached[request] == prompt_tokens[request] + before:
                draft_cached[request] += min(matched[row], draft_depth[request])
            draft_nodes[request] = draft_depth[request] = 0
            held = _blocks(draft_cached[request] - draft_lent[request], block_tokens)
            more_draft += held - draft_blocks[request]
            draft_blocks[request] = held
        emitted_tokens[request] = before + emits
        if not feeds:
            known = prompt_tokens[request] + before + emits
            draft_cached[request] = known - (known - cached == 1 and before + emits > 0)
    return more, more_draft, later, first


@compiled(NUMBERS, INTS, INTS, INTS, INTS, INTS, INTS, INTS, filled(WHOLE, 2), filled(FLAG))
def answer(numbers, rank, prompt_tokens, emitted_tokens, target_cached, output_tokens, ids, scheduled, told, finished):
    """Fill `told` (3, n) and `finished` (n,) as `specsim.kernels.growth.answer` says.

    Return whether all nodes are of rows and slots that are there.
    """
    rows = len(ids)
    tokens, accepted, matched = told[0], told[1], told[2]
    matched[:] = 0
    for node in range(rows, numbers.shape[1]):
        slot, row = numbers[SLOT, node], numbers[ROW, node]
        if slot < 0 or slot >= len(rank) or row < 0 or row >= rows:
            return False
        if rank[slot] == numbers[TOKEN, node]:
            matched[row] = numbers[DEPTH, node]
    for row in range(rows):
        request = ids[row]
        left = output_tokens[request] - emitted_tokens[request]
        complete = scheduled[row] == prompt_tokens[request] + emitted_tokens[request] - target_cached[request]
        tokens[row] = min(matched[row] + 1, left) if complete else 0
        accepted[row], finished[row] = min(matched[row], tokens[row]), tokens[row] == left
    return True
