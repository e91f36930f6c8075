"""Blocks of the KV caches of target and drafter in one pool."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np

from specsim.core.request import Bools, Ids, Ints, Requests
from specsim.kernels.ledger import Room

TARGET, DRAFT = 0, 1
ENDLESS = 1 << 62
"""More blocks than there ever are."""
KV_CAPACITY = "kv_capacity"
"""The reason of a request that never fits."""
Tokens = TypeVar("Tokens", int, Ints)


class OutOfMemory(Exception):
    """A pass would hold more cache than the pool has."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Size of a replica's key-value pool: bytes of capacity, tokens per block, bytes per token of each model.

    `drafter_bytes` are those of the drafter's weights, which hold cache while it is on the host.
    """

    capacity_bytes: int
    block_tokens: int
    target_token_bytes: int
    draft_token_bytes: int
    drafter_bytes: int = 0

    def bytes_of(self, target_cached: Tokens, draft_cached: Tokens) -> Tokens:
        """Return the bytes that so many cached tokens of each model occupy, whole blocks counted; or (n,) of each."""
        blocks = -(-target_cached // self.block_tokens), -(-draft_cached // self.block_tokens)
        return self.block_tokens * (blocks[0] * self.target_token_bytes + blocks[1] * self.draft_token_bytes)

    def holds(self, told: Requests) -> Bools:
        """Return which requests fit, alone and to their last token that may be emitted, (N,)."""
        most = told.prompt_tokens + told.max_tokens
        return self.bytes_of(most, most) <= self.capacity_bytes


class KvPool:
    """Blocks held per request and model; never more than the capacity (PagedAttention, Kwon et al. 2023).

    `capacity_bytes` are those of the memory, and the drafter's weights' while `drafter_away`; `most_bytes` the most
    that was ever held.
    `blocks` and `lent` (2, N) are columns of `specsim.kernels.ledger.Books`, by model: the blocks that each request
    holds of its own, and its tokens in blocks that are lent to it.
    """

    def __init__(self, memory: Memory, blocks: Ints, lent: Ints) -> None:
        self.memory = memory
        self.capacity_bytes = memory.capacity_bytes
        self.used_bytes = self.most_bytes = 0
        self._block_bytes = (
            memory.block_tokens * memory.target_token_bytes,
            memory.block_tokens * memory.draft_token_bytes,
        )
        self.blocks, self.lent = blocks, lent
        self._of_model = tuple(blocks)
        self._sharing = False

    @property
    def free_bytes(self) -> int:
        """Bytes that no request holds."""
        return self.capacity_bytes - self.used_bytes

    @property
    def drafter_away(self) -> bool:
        """Whether the drafter's weights are on the host, and their bytes part of the pool."""
        return self.capacity_bytes > self.memory.capacity_bytes

    def place_drafter(self, away: bool) -> int:
        """Have the drafter's weights leave for the host, or come back if their bytes are free; return those that do."""
        more = self.memory.drafter_bytes
        if away == self.drafter_away or (not away and more > self.free_bytes):
            return 0
        self.capacity_bytes += more if away else -more
        return 0 if away else more

    def room(self) -> str:
        """Return in words how much of the pool is free."""
        return f"{_gib(self.free_bytes)} of {_gib(self.capacity_bytes)} free"

    def left(self) -> Room:
        """Return how many further blocks fit, of each model alone."""
        free = max(self.capacity_bytes - self.used_bytes, 0)
        target, draft = self._block_bytes
        most = free // target if target else ENDLESS
        return Room(self.memory.block_tokens, most, free // draft if draft else ENDLESS)

    def growth_bytes(self, ids: Ids, target_cached: Ints, draft_cached: Ints) -> Ints:
        """Return the further bytes that each request needs to hold so many tokens of each model, (n,)."""
        if self._sharing:
            lent = self.lent[:, ids]
            target_cached, draft_cached = target_cached - lent[TARGET], draft_cached - lent[DRAFT]
        size, up = _constants(self.memory.block_tokens)
        target = np.maximum((target_cached + up) // size - self.blocks[TARGET, ids], 0)
        draft = np.maximum((draft_cached + up) // size - self.blocks[DRAFT, ids], 0)
        growth: Ints = target * self._block_bytes[TARGET] + draft * self._block_bytes[DRAFT]
        return growth

    def surely_fits(self, requests: int, target_cached: int, draft_cached: int) -> bool:
        """Return True only if so many more tokens of so many requests fit, whatever blocks they fall into: quick."""
        slack = requests * (self.memory.block_tokens - 1)
        target_bytes = (target_cached + slack) * self.memory.target_token_bytes
        return target_bytes + (draft_cached + slack) * self.memory.draft_token_bytes <= self.free_bytes

    def surely_more(self, requests: int, *, drafting: bool = False) -> int:
        """Return how many more tokens of each request surely fit, in both caches or the target's; see `surely_fits`."""
        token_bytes = self.memory.target_token_bytes + self.memory.draft_token_bytes * drafting
        return self.free_bytes // token_bytes // requests - (self.memory.block_tokens - 1)

    def held_bytes(self, ids: Ids) -> Ints:
        """Return the bytes that each request holds alone, (n,)."""
        target, draft = self.blocks[:, ids]
        held: Ints = target * self._block_bytes[TARGET] + draft * self._block_bytes[DRAFT]
        return held

    def hold(self, model: int, ids: Ids, tokens: Ints) -> None:
        """Make each request hold exactly the blocks of `tokens` (n,) cached tokens of a model that are not lent to it.

        Raises
        ------
        OutOfMemory
            When the pool has too few; nothing is changed then.
        """
        if self._sharing:
            tokens = tokens - self.lent[model][ids]
        size, up = _constants(self.memory.block_tokens)
        blocks, held = (tokens + up) // size, self._of_model[model]
        before = held[ids]
        # Few passes fill a block.
        if blocks.tobytes() != before.tobytes():
            self.take(model, int(np.add.reduce(blocks - before)))
            held[ids] = blocks

    def take(self, model: int, blocks: int) -> None:
        """Count further blocks of a model, which `self.blocks` tells of already; fewer than 0 are given back.

        Raises
        ------
        OutOfMemory
            When the pool has too few. A caller that may ask for too many looks at `left` first, and notes none then.
        """
        more = blocks * self._block_bytes[model]
        if more > 0 and more > self.free_bytes:
            raise OutOfMemory(f"{_gib(more)} more cache wanted, {self.room()}")
        self.used_bytes += more
        if self.used_bytes > self.most_bytes:
            self.most_bytes = self.used_bytes

    def bytes_of(self, model: int, tokens: int) -> int:
        """Return the bytes of so many tokens of one model, whole blocks."""
        return tokens // self.memory.block_tokens * self._block_bytes[model]

    def lent_bytes(self, ids: Ids) -> Ints:
        """Return the bytes of the blocks that are lent to each request, (n,)."""
        target, draft = self.lent[:, ids] // self.memory.block_tokens
        lent: Ints = target * self._block_bytes[TARGET] + draft * self._block_bytes[DRAFT]
        return lent

    def lend(self, model: int, request: int, tokens: int) -> None:
        """Note that the blocks of a request's first `tokens` of one model are not its own."""
        self.lent[model, request] = tokens
        self._sharing = True

    def hand_over(self, model: int, request: int, tokens: int) -> None:
        """Free a request's own blocks of so many tokens of one model, and lend it as many more."""
        self.blocks[model, request] -= tokens // self.memory.block_tokens
        self.used_bytes -= self.bytes_of(model, tokens)
        self.lend(model, request, int(self.lent[model, request]) + tokens)

    def release(self, ids: Ids) -> None:
        """Free everything that these requests hold."""
        held = self.blocks[:, ids].sum(axis=1)
        self.used_bytes -= int(held[TARGET]) * self._block_bytes[TARGET]
        self.used_bytes -= int(held[DRAFT]) * self._block_bytes[DRAFT]
        self.blocks[:, ids] = 0


@lru_cache(maxsize=16)
def _constants(block_tokens: int) -> tuple[Ints, Ints]:
    """Return 0-d arrays: numpy adds one to a short array in about half the time of a Python integer."""
    return np.array(block_tokens, dtype=np.int64), np.array(block_tokens - 1, dtype=np.int64)


def _gib(count: int) -> str:
    return f"{count / 2**30:.4g} GiB"
