"""A paged KV cache for transformers' models, the pages of each row in it, and free memory of a device."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from profiler.attention.packing import Ints, Packed, Work
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
    whole pools, which the attention of `profiler.attention.planning` reads.
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


def copy_tensors(mine: Any, its: Any) -> None:
    """Copy the tensors of a dataclass into those of another of equal sizes, in place."""
    for each in fields(mine):
        if isinstance(held := getattr(mine, each.name), torch.Tensor):
            held.copy_(getattr(its, each.name))


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


_BROKEN = ("cuda error", "triton error [cuda]")
_SAID = ("can't allocate memory", "out of memory", "alloc_failed")


def free_bytes(device: torch.device) -> int:
    """Return the free bytes of a device; on the CPU those of the operating system's available pages.

    On CUDA torch's cache is given back first, so that it counts as free.
    """
    give_back(device)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def give_back(device: torch.device) -> None:
    """Collect unused objects, and on CUDA give their memory back to the driver."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out: CUDA's, Python's, or one of the CPU allocator."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _SAID)


def breaks_the_device(error: BaseException) -> bool:
    """Return whether an error is CUDA's and not of memory; after most of these nothing runs until a new start.

    An error of capturing is none of them: the device works, but every point would fail alike.
    """
    said = str(error).lower()
    if not isinstance(error, RuntimeError) or is_out_of_memory(error) or "captur" in said:
        return False
    return said.startswith(_BROKEN)


@contextmanager
def memory_for(what: str, device: torch.device) -> Iterator[None]:
    """Turn an out-of-memory error inside the context into one line.

    Raises
    ------
    SpecsimError
        Naming `what` needed the memory.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise SpecsimError(f"{what}: too little memory on {device}") from None
