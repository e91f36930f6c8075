"""What the target says: how many tokens of each tree, or of chain after chain, are its own, and what it then emits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from specsim.kernels.arrays import Bools, Ints
from specsim.kernels.growth import DEPTH, ROW, SLOT, TOKEN, Pooled
from specsim.rng import STRIDE, Words, mix


def numpy_walk(numbers: Ints, rows: int, rank: Ints) -> Ints:
    """Return the depth of the deepest right node of each row, (rows,); 0 where none is.

    Parameters
    ----------
    numbers : (5, nodes) of a forest; a parent stands before its children, which are right only where it is.
    rank : (slots,) the token that is right in each slot.
    """
    matched = np.zeros(rows, dtype=np.int64)
    right = rows + (rank[numbers[SLOT, rows:]] == numbers[TOKEN, rows:]).nonzero()[0]
    matched[numbers[ROW].take(right)] = numbers[DEPTH].take(right)
    return matched


Answer = tuple[Ints, Ints, Ints, Bools]
"""Tokens emitted, draft tokens accepted, draft tokens that were right, rows that finish; (n,) each."""


class Texts(NamedTuple):
    """Columns of all requests, (N,) each: how far each is read and emitted, and how long its output will be."""

    prompt_tokens: Ints
    emitted_tokens: Ints
    target_cached: Ints
    output_tokens: Ints


def numpy_answer(texts: Texts, ids: Ints, chunks: Ints, numbers: Ints, rank: Ints) -> Answer:
    """Return what a verification emits of requests `ids` (n,), `chunks` (n,) pending tokens and a forest.

    A row whose chunk is all that is pending emits its right tokens and one more, up to its end. `numbers` and `rank`
    are as in `numpy_walk`.
    """
    emitted, rows = texts.emitted_tokens[ids], len(ids)
    complete = chunks == texts.prompt_tokens[ids] + emitted - texts.target_cached[ids]
    matched = numpy_walk(numbers, rows, rank) if numbers.shape[1] > rows else np.zeros(rows, dtype=np.int64)
    left = texts.output_tokens[ids] - emitted
    tokens = np.minimum(matched + 1, left) * complete
    return tokens, np.minimum(matched, tokens), matched, tokens == left


def numpy_rounds(text: Pooled, key: Words, depth: int, left: Ints, room: Ints, most: int) -> Ints:
    """Return how many tokens of each row's chain are right, (rounds, n), one chain of `depth` behind the other.

    The rounds end with the first that ends a row, before one that is no longer to begin, or after `most`, at least 1.

    Parameters
    ----------
    text : of the rows, (n,). key : (n,) of the text behind each row.
    left : (n,) tokens that each row emits until its end. room : (n,) no round begins once a row has emitted as many.
    """
    places = np.arange(most * (depth + 1))
    hashed = mix(key[:, None] + STRIDE * places.astype(np.uint64))
    wrong = text.rank[text.start[:, None] + (hashed & np.uint64(text.mask)).view(np.int64)] != 0
    stops = np.where(wrong, places, len(places))
    np.minimum.accumulate(stops[:, ::-1], axis=1, out=stops[:, ::-1])
    ahead = np.minimum(stops - places, depth).ravel()
    at = np.arange(0, ahead.size, len(places))
    matched = np.empty((most, len(key)), dtype=np.int64)
    for each in matched:
        ahead.take(at, out=each)
        at += each
        at += 1
    after = np.cumsum(matched + 1, axis=0)
    ended = np.logical_or.reduce(after >= left, axis=1)
    begun = np.logical_and.reduce(after - matched <= room, axis=1)
    count = int(ended.argmax()) + 1 if ended.any() else most
    return matched[: count if begun[:count].all() else int(begun.argmin())]
