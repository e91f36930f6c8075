"""Trees that are there already, for numba: cut, extended further, walked by the target.

See `specsim.kernels.subset`, `layers` and `acceptance` for what they do, and `specsim.kernels.loops` for how.
"""

from __future__ import annotations

import numpy as np

from specsim.kernels.compiling import BOOLS, INTS, NUMBER, WHOLE, array_of, compiled, filled
from specsim.kernels.growth import DEPTH, PARENT, PATH, PROBABILITY, ROW, SLOT, TOKEN

NUMBERS = array_of(WHOLE, 2)


@compiled(NUMBERS, array_of(NUMBER, 2), WHOLE, BOOLS, filled(WHOLE, 2), filled(NUMBER, 2))
def subset(numbers, odds, rows, keep, some, probabilities):
    """Fill `some` (5, kept) and `probabilities` (2, kept) as `specsim.kernels.subset.numpy_subset` does; or False."""
    renamed, kept = np.empty(len(keep), dtype=np.int64), 0
    for node in range(len(keep)):
        renamed[node], parent = -1, numbers[PARENT, node]
        if node >= rows and not keep[node]:
            continue
        # A parent stands before its children.
        if node >= rows and (parent < 0 or parent >= node or renamed[parent] < 0):
            return False
        renamed[node] = kept
        for column in range(5):
            some[column, kept] = numbers[column, node]
        some[PARENT, kept] = renamed[parent] if node >= rows else parent
        probabilities[PROBABILITY, kept], probabilities[PATH, kept] = odds[PROBABILITY, node], odds[PATH, node]
        kept += 1
    return True


@compiled(NUMBERS, INTS, INTS, INTS, INTS, INTS, INTS, INTS, filled(WHOLE, 2), filled(BOOLS.dtype))
def answer(numbers, rank, prompt_tokens, emitted_tokens, target_cached, output_tokens, ids, chunks, told, finished):
    """Fill `told` (3, n) and `finished` (n,) as `specsim.kernels.acceptance.numpy_answer` says.

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
        complete = chunks[row] == prompt_tokens[request] + emitted_tokens[request] - target_cached[request]
        tokens[row] = min(matched[row] + 1, left) if complete else 0
        accepted[row], finished[row] = min(matched[row], tokens[row]), tokens[row] == left
    return True


@compiled(NUMBERS, INTS, INTS, INTS, filled(WHOLE, 2), filled(WHOLE), filled(WHOLE))
def layers(numbers, ends, deepest, cached, counts, extended, nodes):
    """See `specsim.kernels.layers.numpy_layers`; return how many passes run, and how many nodes they extend.

    `counts` (levels, 4) is filled with the context, nodes, rows and repeated tokens of each, `nodes` (n,) is scratch.
    """
    low = many = level = 0
    while level < len(counts) and low < ends[level]:
        nodes[:] = 0
        before, context, requests, seen = many, 0, 0, 0
        for node in range(low, ends[level]):
            row = numbers[ROW, node]
            if len(deepest) and numbers[DEPTH, node] >= deepest[row]:
                continue
            extended[many] = node
            many += 1
            seen += cached[row]
            if not nodes[row]:
                context += cached[row]
                requests += 1
            nodes[row] += 1
        if many == before:
            break
        counts[level, 0], counts[level, 1], counts[level, 2] = context, many - before, requests
        counts[level, 3] = seen - context
        low = ends[level]
        level += 1
    return level, many
