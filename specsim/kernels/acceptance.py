"""What the target says: how many tokens of each tree, or of chain after chain, are its own, and what it then emits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from specsim.kernels import compiled_loops
from specsim.kernels.arrays import Bools, Ints
from specsim.kernels.growth import Pooled
from specsim.rng import Words

Answer = tuple[Ints, Ints, Ints, Bools]
"""Tokens emitted, draft tokens accepted, draft tokens that were right, rows that finish; (n,) each."""


class Texts(NamedTuple):
    """Columns of all requests, (N,) each: how far each is read and emitted, and how long its output will be."""

    prompt_tokens: Ints
    emitted_tokens: Ints
    target_cached: Ints
    output_tokens: Ints


def answer(texts: Texts, ids: Ints, chunks: Ints, numbers: Ints, rank: Ints) -> Answer:
    """Return what a verification emits of requests `ids` (n,), `chunks` (n,) pending tokens and a forest.

    A row whose chunk is all that is pending emits its right tokens and one more, up to its end.

    Parameters
    ----------
    numbers : (5, nodes) of a forest; a parent stands before its children, which are right only where it is.
    rank : (slots,) the token that is right in each slot.

    Raises
    ------
    IndexError
        When a node is of a row or a slot that does not exist.
    """
    told, finished = np.empty((3, len(ids)), dtype=np.int64), np.empty(len(ids), dtype=np.bool_)
    if not compiled_loops().answer(numbers, rank, *texts, ids, chunks, told, finished):
        raise IndexError(f"a forest has nodes of other rows than its {len(ids)}, or of other slots than {len(rank)}")
    tokens, accepted, matched = told
    return tokens, accepted, matched, finished


def rounds(text: Pooled, key: Words, depth: int, left: Ints, room: Ints, most: int) -> Ints:
    """Return how many tokens of each row's chain are right, (rounds, n), one chain of `depth` behind the other.

    The rounds end with the first that ends a row, before one that is no longer to begin, or after `most`, at least 1.

    Parameters
    ----------
    text : of the rows, (n,). key : (n,) of the text behind each row.
    left : (n,) tokens that each row emits until its end. room : (n,) no round begins once a row has emitted as many.
    """
    matched = np.empty((most, len(key)), dtype=np.int64)
    count: int = compiled_loops().rounds(text.rank, text.start, text.mask, key, depth, left, room, matched)
    return matched[:count]
