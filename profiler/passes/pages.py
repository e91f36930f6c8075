"""A paged KV cache for transformers' models, and the pages of each row in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from profiler.passes.packing import Ints, Packed, Work
from specsim.errors import SpecsimError


class NoRoom(SpecsimError):
    """A pass needs more pages than the cache has."""


@dataclass(frozen=True, slots=True)
class CacheShape:
    """The sizes of a cache: those of one token in each layer, and the number of pages.

    The last page belongs to no row: padding tokens write to it.
    """

    layers: int
    kv_heads: int
    head_dim: int
    pages: int
    page_tokens: int

    @property
    def slots(self) -> int:
        """Tokens that fit, the last page included."""
        return self.pages * self.page_tokens

    @property
    def padding_slot(self) -> int:
        """A slot that belongs to no row."""
        return self.slots - 1


class PagedCache:
    """Keys and values of every layer, (slots, kv_heads, head_dim) each; handed to a model as `past_key_values`.

    Set `slots` (T,) before a pass: the slots of the packed queries' keys. `update` writes the keys and returns the
    whole pools, which the attention of `profiler.passes.attention` reads.
    """

    def __init__(self, shape: CacheShape, *, device: torch.device, dtype: torch.dtype) -> None:
        self.shape = shape
        size = (shape.slots, shape.kv_heads, shape.head_dim)
        self.keys = [torch.empty(size, device=device, dtype=dtype) for _ in range(shape.layers)]
        self.values = [torch.empty(size, device=device, dtype=dtype) for _ in range(shape.layers)]
        self.slots = torch.zeros(0, dtype=torch.int64, device=device)

    def fill(self, seed: int) -> None:
        """Draw every entry from a standard normal, since zeros are faster than text."""
        generator = torch.Generator(device=self.keys[0].device).manual_seed(seed)
        for pool in (*self.keys, *self.values):
            pool.normal_(generator=generator)

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write (1, kv_heads, T, head_dim) keys and values of one layer; return its pools."""
        keys, values = self.keys[layer_idx], self.values[layer_idx]
        keys.index_copy_(0, self.slots, key[0].transpose(0, 1))
        values.index_copy_(0, self.slots, value[0].transpose(0, 1))
        return keys, values

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return 0, since every pass has its positions."""
        return 0


@dataclass(frozen=True, slots=True)
class PageTables:
    """The pages of n rows, (n, most) int64 in the order of their tokens; -1 after a row's last page."""

    pages: NDArray[np.int64]
    page_tokens: int

    def widened(self, most: int) -> PageTables:
        """Return the tables with at least so many columns."""
        missing = most - self.pages.shape[1]
        if missing <= 0:
            return self
        return PageTables(np.pad(self.pages, ((0, 0), (0, missing)), constant_values=-1), self.page_tokens)

    def slots(self, row: Ints, place: Ints) -> Ints:
        """Return the slot of each key, given its row and its place among the row's keys."""
        page = self.pages[row, place // self.page_tokens]
        return np.asarray(page * self.page_tokens + place % self.page_tokens, dtype=np.int64)

    def query_slots(self, packed: Packed) -> Ints:
        """Return the slot of each query's own key, (T,)."""
        return self.slots(packed.row, packed.key)


def pages_needed(work: Work, page_tokens: int) -> Ints:
    """Return how many pages each row has after the pass, (n,)."""
    return np.asarray(-(-work.key_tokens // page_tokens), dtype=np.int64)


def deal(work: Work, shape: CacheShape, rng: np.random.Generator) -> PageTables:
    """Deal pages to rows at random, as in a server that has run for a while.

    Raises
    ------
    NoRoom
        When they do not fit.
    """
    needed = pages_needed(work, shape.page_tokens)
    total = int(needed.sum())
    if total > shape.pages - 1:
        raise NoRoom(f"a pass needs {total} pages of KV cache; there are {shape.pages - 1}")
    dealt = rng.permutation(shape.pages - 1)[:total]
    pages = np.full((work.rows, int(needed.max(initial=1))), -1, dtype=np.int64)
    pages[np.arange(pages.shape[1]) < needed[:, None]] = dealt
    return PageTables(pages, shape.page_tokens)
