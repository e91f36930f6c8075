"""Texts whose positions come in easy and hard stretches: neighbours are alike, distant ones are not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.replica.request import Bools, Ints
from specsim.rng import STRIDE, Words, mix, word

STRETCHES = 16
"""Kinds of stretch, from hard to easy, that a request has: a pool of rows for each."""
_POSITION = word(pow(int(STRIDE), -1, 1 << 64))
"""What turns the distance of two keys into one of positions."""
_KINDS, _OFF_PATH_BITS = word(STRETCHES), word(40)


@dataclass(frozen=True, slots=True)
class Stretches:
    """Texts cut into stretches: a hash picks the kind of each stretch, and within it a row for each position.

    Off the target's path every position is of a kind of its own.

    Attributes
    ----------
    start : (N,) first row of the request's `STRETCHES` pools.
    pool_rows : rows of one pool, a power of two.
    tokens : (N,) uint64, positions of a stretch.
    keys : (N,) uint64, the key of each request's position 0.
    luck : (N,) uint64, what the kinds of a request's stretches are hashed from, and where its first one begins.
    """

    start: Ints
    pool_rows: int
    tokens: Words
    keys: Words
    luck: Words

    def rows(self, requests: Ints, keys: Words, hashed: Words, on: Bools) -> Ints:
        """Return the row of each key, (n,); see `specsim.world.tape.Layout`."""
        tokens, luck = self.tokens[requests], self.luck[requests]
        position = (keys - self.keys[requests]) * _POSITION
        stretch = (position + luck % tokens) // tokens
        kind = np.where(on, mix(luck + STRIDE * stretch), hashed >> _OFF_PATH_BITS) % _KINDS
        offset = kind * word(self.pool_rows) + (hashed & word(self.pool_rows - 1))
        return self.start[requests] + offset.view(np.int64)

    def text_rows(self, requests: Ints) -> Ints:
        """Return the rows of the pools of these requests, each once."""
        return (np.unique(self.start[requests])[:, None] + np.arange(STRETCHES * self.pool_rows)).ravel()
