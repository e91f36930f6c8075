"""The pages that each request holds in one model's cache, and what of it has moved to the host."""

from __future__ import annotations

import numpy as np
import torch

from profiler.attention.packing import Ints
from profiler.attention.pages import NoRoom, PageTables
from profiler.passes.forward import PackedForward
from specsim.server.kv_cache import Memory


def pages_for(memory: Memory, token_bytes: int, page_tokens: int) -> int:
    """Return the pages with which a model's cache holds whatever the pool of a replica may give it, padding included.

    Target and drafter share the pool, so either may have all of it.
    """
    block_bytes = memory.block_tokens * token_bytes
    blocks = memory.capacity_bytes // block_bytes if block_bytes else 0
    return int(blocks * -(-memory.block_tokens // page_tokens)) + 1


class CachedSequences:
    """Rows of requests in the cache of one model.

    Attributes
    ----------
    held : (N,) tokens of each request whose keys are in the cache, nodes of trees left out.

    Parameters
    ----------
    forward : the model with its paged cache. requests : N.
    """

    def __init__(self, forward: PackedForward, requests: int) -> None:
        self.held: Ints = np.zeros(requests, dtype=np.int64)
        self._cache = forward.cache
        self._page_tokens = forward.cache.shape.page_tokens
        self._free = list(range(forward.cache.shape.pages - 1))[::-1]
        self._pages: dict[int, list[int]] = {}
        self._host: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    @property
    def resident(self) -> set[int]:
        """The requests that have pages."""
        return set(self._pages)

    @property
    def away(self) -> set[int]:
        """The requests whose cache is on the host."""
        return set(self._host)

    def reserve(self, request: int, tokens: int) -> None:
        """Make a request hold the pages of so many tokens, no more and no fewer.

        Raises
        ------
        NoRoom
            When there are too few.
        """
        pages = self._pages.setdefault(request, [])
        wanted = -(-tokens // self._page_tokens)
        if wanted - len(pages) > len(self._free):
            raise NoRoom(f"a pass needs {wanted - len(pages)} more pages of KV cache; {len(self._free)} are free")
        while len(pages) < wanted:
            pages.append(self._free.pop())
        while len(pages) > wanted:
            self._free.append(pages.pop())

    def drop(self, request: int) -> None:
        """Forget all that a request holds, here and on the host."""
        self._free += self._pages.pop(request, [])
        self._host.pop(request, None)
        self.held[request] = 0

    def tables(self, requests: list[int]) -> PageTables:
        """Return the pages of these requests as a pass reads them."""
        lists = [self._pages[request] for request in requests]
        pages = np.full((len(lists), max(map(len, lists))), -1, dtype=np.int64)
        for row, each in enumerate(lists):
            pages[row, : len(each)] = each
        return PageTables(pages, self._page_tokens)

    def copy(self, source: Ints, target: Ints) -> None:
        """Copy the keys and values of slots (n,) to other slots (n,), which may overlap them."""
        if not len(source):
            return
        device = self._cache.keys[0].device
        read, write = torch.from_numpy(source).to(device), torch.from_numpy(target).to(device)
        for pool in (*self._cache.keys, *self._cache.values):
            pool.index_copy_(0, write, pool.index_select(0, read))

    def to_host(self, request: int) -> None:
        """Move a request's cache to the host and free its pages; nothing happens where it holds none."""
        if request not in self._pages:
            return
        slots = self._slots(request)
        keys, values = (
            torch.stack([pool.index_select(0, slots) for pool in pools]).cpu()
            for pools in (self._cache.keys, self._cache.values)
        )
        self._free += self._pages.pop(request)
        self._host[request] = keys, values

    def from_host(self, request: int) -> None:
        """Move a request's cache back; nothing happens where it has none on the host."""
        if request not in self._host:
            return
        self.reserve(request, int(self.held[request]))
        slots = self._slots(request)
        for pools, kept in zip((self._cache.keys, self._cache.values), self._host.pop(request), strict=True):
            for pool, layer in zip(pools, kept.to(slots.device), strict=True):
                pool.index_copy_(0, slots, layer)

    def _slots(self, request: int) -> torch.Tensor:
        place = np.arange(self.held[request])
        slots = self.tables([request]).slots(np.zeros_like(place), place)
        return torch.from_numpy(slots).to(self._cache.keys[0].device)
