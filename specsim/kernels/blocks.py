"""Blocks of cache that requests hold."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from specsim.kernels.arrays import Ints


def numpy_hold(held: Ints, ids: Ints, tokens: Ints, block_tokens: int, most: int) -> int:
    """Let each request hold the blocks of so many tokens, unless that takes more than `most` further blocks.

    Return how many further blocks it takes, below 0 where some are freed.

    Parameters
    ----------
    held : (N,) blocks of every request; only those of `ids` (n,), each named once, are written to.
    tokens : (n,).
    """
    size, up = _constants(block_tokens)
    blocks = (tokens + up) // size
    before = held[ids]
    if blocks.tobytes() == before.tobytes():
        return 0  # Few passes fill a block: this is the quicker half.
    more = int(np.add.reduce(blocks - before))
    if more <= most:
        held[ids] = blocks
    return more


def numpy_growth(blocks: Ints, ids: Ints, target: Ints, draft: Ints, block_tokens: int, sizes: tuple[int, int]) -> Ints:
    """Return the further bytes that each request needs to hold so many tokens of its own, (n,) or what broadcasts.

    Parameters
    ----------
    blocks : (2, N) of every request, by model. target, draft : tokens of either model.
    sizes : bytes of a block of either model.
    """
    size, up = _constants(block_tokens)
    more = np.maximum((target + up) // size - blocks[0, ids], 0), np.maximum((draft + up) // size - blocks[1, ids], 0)
    growth: Ints = more[0] * sizes[0] + more[1] * sizes[1]
    return growth


@lru_cache(maxsize=16)
def _constants(block_tokens: int) -> tuple[Ints, Ints]:
    """Return 0-d arrays: numpy adds one to a short array in about half the time of a Python integer."""
    return np.array(block_tokens, dtype=np.int64), np.array(block_tokens - 1, dtype=np.int64)
