"""Trees grown, selected and walked, as loops that numba compiles.

Whole numbers are int64 and hashes uint64 throughout, since numba makes a float of one beside the other. Sums of floats
run in the order of `np.cumsum`.
"""

from __future__ import annotations

import numpy as np

from specsim.kernels.compiling import (
    BOOLS,
    FLAG,
    FLOATS,
    INTS,
    NUMBER,
    WHOLE,
    WORD,
    WORDS,
    array_of,
    compiled,
    filled,
    inner,
)
from specsim.kernels.growth import DEPTH, OFF_PATH, PARENT, PATH, PROBABILITY, ROW, SLOT, TOKEN
from specsim.rng import M1, M2, STRIDE

_STRIDE, _M1, _M2 = (np.uint64(int(each)) for each in (STRIDE, M1, M2))
_S30, _S27, _S31 = (np.uint64(each) for each in (30, 27, 31))


@inner
def _mix(word):
    word = (word ^ (word >> _S30)) * _M1
    word = (word ^ (word >> _S27)) * _M2
    return word ^ (word >> _S31)


@inner
def _even(row, reader, begin, end):
    """Return how many nodes of `reader[begin:end]` each row has if all rows up to the last have as many, else 0."""
    rows = row[reader[end - 1]] + 1
    each = (end - begin) // rows
    if each * rows != end - begin:
        return 0
    for slot in range(begin, end):
        if row[reader[slot]] != (slot - begin) // each:
            return 0
    return each


@inner
def _best(ahead, begin, end, beam, best):
    """Fill `best` with the places of the highest of `ahead[begin:end]`, ties to the earlier; return their number."""
    kept = 0
    for place in range(begin, end):
        if kept == beam and not ahead[place] > ahead[best[kept - 1]]:
            continue
        kept = min(kept + 1, beam)
        at = kept - 1
        while at > 0 and ahead[best[at - 1]] < ahead[place]:
            best[at] = best[at - 1]
            at -= 1
        best[at] = place
    return kept


@compiled(
    array_of(NUMBER, 2), INTS, FLAG, INTS, INTS, WHOLE, WHOLE,
    INTS, INTS, INTS, FLOATS, WORDS, BOOLS,
    INTS, WHOLE, WHOLE, WHOLE, WHOLE,
    filled(WHOLE, 2), filled(NUMBER, 2), filled(WORD, 2), filled(WHOLE, 2), filled(WHOLE),
    filled(WHOLE, 2), filled(WORD), filled(NUMBER),
)  # fmt: skip
def grow(
    confidence, rank, silent, start, off_start, mask, depths,
    node, front_row, front_depth, front_path, front_key, front_on,
    limit, levels, width, beam, first,
    numbers, odds, words, rows, ends,
    scratch, key, ahead,
):  # fmt: skip
    """Fill `numbers` to `ends` as `specsim.kernels.growth.grow` does, behind the front; return what was read.

    `scratch` (4, room), `key` (room,) and `ahead` (room * width,) may hold anything; `room` is that of the outputs.
    """
    front = len(node)
    row, depth, path = numbers[ROW], numbers[DEPTH], odds[PATH]
    reader, member, on, best = scratch[0], scratch[1], scratch[2], scratch[3]
    for each in range(front):
        row[each], depth[each], path[each] = front_row[each], front_depth[each], front_path[each]
        key[each], on[each], member[each] = front_key[each], front_on[each], each
    low, high, read = 0, front, 0
    for level in range(levels):
        begin = read
        for each in range(low, high):
            if depth[each] < limit[row[each]]:
                hashed = _mix(key[each])
                at = np.int64(hashed & np.uint64(mask)) + (start if on[each] else off_start)[member[each]]
                at += min(depth[each], depths - 1) * (mask + 1)
                words[0, read], words[1, read], rows[0, read] = key[each], hashed, at
                rows[1, read] = rank[at] if on[each] else OFF_PATH
                for token in range(width):
                    ahead[read * width + token] = confidence[at, token] * path[each]
                reader[read] = each
                read += 1
        low = high
        even = _even(row, reader, begin, read) if beam and begin < read else 0
        whole = beam == 0 or 0 < even * width <= beam
        group = begin
        while group < read:
            slot, group = group, read if whole else group + 1
            while group < read and row[reader[group]] == row[reader[slot]]:
                group += 1
            kept = (group - slot) * width if whole else _best(ahead, slot * width, group * width, beam, best)
            for each in range(kept):
                place = slot * width + each if whole else best[each]
                if silent and not ahead[place] > 0:
                    continue
                behind, token = place // width, place % width
                above, right = reader[behind], rows[1, behind] == token
                row[high], depth[high], numbers[TOKEN, high] = row[above], depth[above] + 1, token
                numbers[PARENT, high] = node[above] if above < front else first + above - front
                numbers[SLOT, high] = behind
                odds[PROBABILITY, high], path[high] = confidence[rows[0, behind], token], ahead[place]
                wrong = words[1, behind] + _STRIDE * np.uint64(2 * token + 3)
                key[high] = words[0, behind] + _STRIDE if right else wrong
                on[high], member[high] = right, member[above]
                high += 1
        ends[level] = high - front
    return read


@inner
def _each_once(order, rows):
    """Return whether the order names each row once."""
    if len(order) != rows:
        return False
    named, wrong = np.zeros(rows, dtype=np.bool_), False
    for row in order:
        if row < 0 or row >= rows:
            return False
        wrong |= named[row]
        named[row] = True
    return not wrong


@inner
def _by_row(row, rows):
    """Return the nodes row by row, in their order, and where each row begins."""
    begins, filled = np.zeros(rows + 1, dtype=np.int64), np.empty(rows, dtype=np.int64)
    nodes = np.empty(len(row), dtype=np.int64)
    for node in range(len(row)):
        begins[row[node] + 1] += 1
    for each in range(rows):
        filled[each] = begins[each]
        begins[each + 1] += begins[each]
    for node in range(len(row)):
        nodes[filled[row[node]]] = node
        filled[row[node]] += 1
    return nodes, begins


@inner
def _take_needed(path, nodes, need, most, chosen):
    """Mark the likeliest of `nodes`, ties to the earlier one, until 1 + their paths reach `need`; return how many.

    At most `most` are taken.
    """
    reached, taken, wanted = 0.0, 0, need > 1.0
    while wanted and taken < most:
        best = -1
        for node in nodes:
            if not chosen[node] and (best < 0 or path[node] > path[best]):
                best = node
        if best < 0:
            break
        chosen[best] = True
        taken += 1
        reached += path[best]
        wanted = 1.0 + reached < need
    return taken


@inner
def _highest(values, count):
    """Return the `count`-th highest of the values, which it moves about (Hoare's selection)."""
    low, high, place = 0, len(values) - 1, count - 1
    while low < high:
        pivot, left, right = values[(low + high) // 2], low, high
        while left <= right:
            while values[left] > pivot:
                left += 1
            while values[right] < pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left, right = left + 1, right - 1
        if place <= right:
            high = right
        elif place >= left:
            low = left
        else:
            break
    return values[place]


@inner
def _take_likeliest(path, chosen, count):
    """Mark the `count` likeliest nodes that are not marked, ties to the earlier one."""
    rest, others = np.empty(len(path)), 0
    for node in range(len(path)):
        if not chosen[node]:
            rest[others] = path[node]
            others += 1
    least = _highest(rest[:others], count) if 0 < count < others else 0.0
    ties = count
    for node in range(len(path)):
        ties -= not chosen[node] and path[node] > least
    for node in range(len(path)):
        if not chosen[node] and count > 0 and (count >= others or path[node] > least):
            chosen[node] = True
        elif not chosen[node] and path[node] == least and ties > 0:
            chosen[node] = True
            ties -= 1


@compiled(INTS, FLOATS, FLOATS, INTS, WHOLE, WHOLE, FLAG)
def select(row, path, need, order, most_nodes, budget, fill):
    """See `specsim.schedulers.parts.selection.selected`; return nothing where a row is wrong or named twice."""
    rows, chosen = len(need), np.zeros(len(row), dtype=np.bool_)
    if not _each_once(order, rows) or (len(row) and (row.min() < 0 or row.max() >= rows)):
        return chosen[:0]
    nodes, begins = _by_row(row, rows)
    left = budget - rows
    for place in range(rows):
        request = order[place]
        own = nodes[begins[request] : begins[request + 1]]
        left -= _take_needed(path, own, need[request], min(most_nodes, left), chosen)
    if fill:
        _take_likeliest(path, chosen, left)
    return chosen


@compiled(INTS, INTS, WHOLE, WHOLE, WORDS, WHOLE, INTS, INTS, filled(WHOLE, 2))
def rounds(rank, start, mask, depths, key, depth, left, room, matched):
    """Fill `matched` (most, n) as `specsim.kernels.growth.rounds` does; return how many rounds there are."""
    emitted = np.zeros(len(key), dtype=np.int64)
    for each in range(len(matched)):
        ended = False
        for row in range(len(key)):
            if emitted[row] >= room[row]:
                return each
        for row in range(len(key)):
            right = 0
            while right < depth:
                hashed = _mix(key[row] + _STRIDE * np.uint64(emitted[row] + right))
                pool = start[row] + min(right, depths - 1) * (mask + 1)
                if rank[pool + np.int64(hashed & np.uint64(mask))]:
                    break
                right += 1
            matched[each, row] = right
            emitted[row] += right + 1
            ended |= emitted[row] >= left[row]
        if ended:
            return each + 1
    return len(matched)
