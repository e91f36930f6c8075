"""Blocks of prompts that outlive the requests that computed them, for later prompts that begin alike."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable

import numpy as np

from specsim.replica.kv_pool import DRAFT, TARGET, KvPool
from specsim.replica.request import Ids, Ints, Prefixes
from specsim.replica.state import PrefixRows

Key = tuple[int, int]
"""A model, and the hash of a block and of all before it."""


class PrefixCache:
    """The prompt blocks that one replica has cached: those that requests use, and those that nobody does any more.

    A block that several requests use counts once in the pool. One that nobody uses is free for others: the least
    recently used goes first, of one prompt the end (vLLM's automatic prefix caching). It goes between two steps, so
    that what a scheduler has seen of a waiting request holds when it runs.

    `queries` are the prompt tokens of all that have begun, `hits` those that were found at the first time.

    Parameters
    ----------
    prefixes : of all requests. prompt_tokens : (N,) of each; may be filled in later. pool : the replica's.
    rows : of all requests.
    """

    def __init__(self, prefixes: Prefixes, prompt_tokens: Ints, pool: KvPool, rows: PrefixRows) -> None:
        self._prefixes, self._prompt_tokens, self._pool = prefixes, prompt_tokens, pool
        self._tokens = prefixes.block_tokens
        self._users: dict[Key, int] = {}
        self._idle: OrderedDict[Key, None] = OrderedDict()
        self._idle_bytes = 0
        self._watched: defaultdict[Key, set[int]] = defaultdict(set)
        self._waiting: dict[int, list[Key]] = {}
        self._changed = set[int]()
        self._used, self._begun, self._hit_tokens = rows
        self.queries = self.hits = 0

    def wait(self, request: int) -> tuple[int, int]:
        """Note that a request waits without blocks; return its tokens in the target's and in the drafter's cache.

        At least one token of a prompt is not taken from the cache: the first token of the output is its logits'.
        """
        self._unwatch(request)
        hashes = self._hashes(request, (int(self._prompt_tokens[request]) - 1) // self._tokens)
        keys, blocks = list[Key](), [0, 0]
        for model in (TARGET, DRAFT):
            for each in hashes:
                keys.append((model, each))
                if keys[-1] not in self._users:
                    break
                blocks[model] += 1
        for key in keys:
            self._watched[key].add(request)
        self._waiting[request] = keys
        return blocks[TARGET] * self._tokens, blocks[DRAFT] * self._tokens

    def _hashes(self, request: int, blocks: int) -> list[int]:
        first, count = int(self._prefixes.first[request]), int(self._prefixes.count[request])
        found: list[int] = self._prefixes.hashes[first : first + min(blocks, count)].tolist()
        return found

    def _unwatch(self, request: int) -> None:
        for key in self._waiting.pop(request, ()):
            self._watched[key].discard(request)
            if not self._watched[key]:
                del self._watched[key]

    def begin(self, ids: Ids, target_cached: Ints, draft_cached: Ints) -> None:
        """Let waiting requests use the blocks of their cached tokens, (n,) in either cache.

        Raises
        ------
        OutOfMemory
            When the pool has no room for blocks that nobody used.
        """
        for request, *cached in zip(ids.tolist(), target_cached.tolist(), draft_cached.tolist(), strict=True):
            self._unwatch(request)
            for model in (TARGET, DRAFT):
                keys = [(model, each) for each in self._hashes(request, cached[model] // self._tokens)]
                self._use(keys)
                self._used[model, request] = len(keys)
                self._pool.lend(model, request, len(keys) * self._tokens)
            self._hit_tokens[request] += cached[TARGET]
            if not self._begun[request]:
                self._begun[request] = True
                self.queries += int(self._prompt_tokens[request])
                self.hits += cached[TARGET]

    def publish(self, model: int, ids: Ids, cached: Ints) -> None:
        """Let others use the whole prompt blocks of requests with `cached` tokens, (n,)."""
        used = self._used[model, ids]
        prompt_tokens = self._prompt_tokens[ids]
        whole = np.minimum(np.minimum(cached, prompt_tokens) // self._tokens, self._prefixes.count[ids])
        for place in np.flatnonzero(whole > used).tolist():
            request, blocks = int(ids[place]), int(whole[place])
            keys = [(model, each) for each in self._hashes(request, blocks)[int(used[place]) :]]
            for key in keys:
                if key not in self._users:
                    self._changed |= self._watched.get(key, set())
            # What the request holds of its own is freed, so there is room for what all hold.
            self._pool.hand_over(model, request, len(keys) * self._tokens)
            self._use(keys)
            self._used[model, request] = blocks

    def _use(self, keys: Iterable[Key]) -> None:
        """Count one more user of each block; one that nobody used takes room in the pool."""
        for key in keys:
            users = self._users.get(key, 0)
            if not users:
                self._pool.occupy(key[0], self._tokens)
                if self._users.get(key) == 0:
                    del self._idle[key]
                    self._idle_bytes -= self._pool.bytes_of(key[0], self._tokens)
            self._users[key] = users + 1

    def end(self, ids: Iterable[int]) -> None:
        """Note that requests give up their blocks, or wait no more."""
        for request in ids:
            self._unwatch(request)
            for model in (DRAFT, TARGET):
                if not (blocks := int(self._used[model, request])):
                    continue
                for each in reversed(self._hashes(request, blocks)):
                    self._leave((model, each))
                self._used[model, request] = 0
                self._pool.lend(model, request, 0)

    def _leave(self, key: Key) -> None:
        self._users[key] -= 1
        if not self._users[key]:
            self._pool.occupy(key[0], -self._tokens)
            self._idle[key] = None
            self._idle_bytes += self._pool.bytes_of(key[0], self._tokens)

    def alone_bytes(self, ids: Ids) -> Ints:
        """Return the bytes of the blocks that each request is the only one to use, (n,)."""
        alone = np.zeros(len(ids), dtype=np.int64)
        for place, request in enumerate(ids.tolist()):
            for model in (TARGET, DRAFT):
                used = self._hashes(request, int(self._used[model, request]))
                count = sum(self._users[model, each] == 1 for each in used)
                alone[place] += self._pool.bytes_of(model, count * self._tokens)
        return alone

    def settle(self) -> list[int]:
        """Drop what nobody uses and has no room; return the waiting requests of which more is cached now, or less."""
        while self._idle_bytes > self._pool.free_bytes:
            key, _ = self._idle.popitem(last=False)
            del self._users[key]
            self._idle_bytes -= self._pool.bytes_of(key[0], self._tokens)
            self._changed |= self._watched.get(key, set())
        changed = sorted(self._changed & self._waiting.keys())
        self._changed.clear()
        return changed
