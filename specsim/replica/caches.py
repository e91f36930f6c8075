"""Where the cache of each request lies: in the pool, with others, on the host or nowhere; and how it gets there."""

from __future__ import annotations

import numpy as np

from specsim.replica.draft_cache import DraftCache
from specsim.replica.elsewhere import HOST, OTHERS, Elsewhere
from specsim.replica.kv_pool import DRAFT, TARGET, KvPool
from specsim.replica.prefix_cache import PrefixCache
from specsim.replica.request import Ids, Ints, Prefixes
from specsim.replica.state import Rows


class Caches:
    """Moves caches in and out of the pool; `elsewhere` are those of waiting requests, `prefix` what prompts share.

    Parameters
    ----------
    rows, pool, draft_cache : of the ledger.
    prefixes : of all prompts, where their blocks are kept for others; None: no block is.
    """

    def __init__(self, rows: Rows, pool: KvPool, draft_cache: DraftCache, prefixes: Prefixes | None) -> None:
        self._progress, self._pool, self._draft_cache = rows.progress, pool, draft_cache
        self.elsewhere = Elsewhere()
        self.prefix: PrefixCache | None = None
        if prefixes is not None and rows.prefix is not None:
            self.prefix = PrefixCache(prefixes, rows.facts.prompt_tokens, pool, rows.prefix)

    def enter(self, request: int, cached_tokens: int) -> None:
        """Note what is cached of a request that arrives: so many tokens, or what its prompt shares."""
        if self.prefix is not None:
            self._look_up(self.prefix, [request])
        elif cached_tokens:
            self._progress.target_cached[request] = cached_tokens
            self._draft_cache.share(request, cached_tokens)
            self.elsewhere.with_others(request)
        self._draft_cache.follow(np.array([request]))

    def come(self, request: int, target_cached: int, draft_cached: int) -> None:
        """Note what has come over a link with a request that arrives, of its prompt, in either model's cache."""
        self._progress.target_cached[request] = target_cached
        self._draft_cache.share(request, draft_cached)
        self.elsewhere.over_link(request)
        self._draft_cache.follow(np.array([request]))

    def _look_up(self, prefix: PrefixCache, waiting: list[int]) -> None:
        """Note what is cached of the prompts of waiting requests."""
        for request in waiting:
            self._progress.target_cached[request], drafted = prefix.wait(request)
            self._draft_cache.share(request, drafted)
            self.elsewhere.with_others(request)
        self._draft_cache.follow(np.array(waiting, dtype=np.int64))

    def publish(self, model: int, ids: Ids) -> None:
        """Let others use what these requests have cached of their prompts."""
        if self.prefix is None or not (model == TARGET or self._draft_cache.feeds):
            return
        cached = self._progress.target_cached if model == TARGET else self._progress.draft_cached
        self.prefix.publish(model, ids, cached[ids])

    def settle(self) -> None:
        """Bring what waiting requests share up to date, between two steps."""
        if self.prefix is not None:
            self._look_up(self.prefix, self.prefix.settle())

    def freed_bytes(self, ids: Ids) -> Ints:
        """Return the bytes that would surely be free without each request, (n,); at least 1 where it has any cache."""
        own = self._pool.held_bytes(ids)
        if self.prefix is None:
            return own
        freed: Ints = np.maximum(own + self.prefix.alone_bytes(ids), self._pool.lent_bytes(ids) > 0)
        return freed

    def drop(self, ids: Ids) -> None:
        """Free all that these requests hold."""
        self._free(ids)
        for request in ids.tolist() if self.elsewhere else ():
            self.elsewhere.forget(request)
        self._progress.target_cached[ids] = self._progress.draft_cached[ids] = 0

    def _free(self, ids: Ids) -> None:
        self._pool.release(ids)
        if self.prefix is not None:
            self.prefix.end(ids.tolist())
        self._draft_cache.forget(ids)

    def evict(self, ids: Ids, transfer: bool) -> int:
        """Take these requests' blocks; return the bytes that go to the host, 0 where they are dropped."""
        self._progress.preemptions[ids] += 1
        if transfer:
            moved = self._move(ids)
            self._free(ids)
            self.elsewhere.to_host(ids)
            return moved
        self.drop(ids)
        self._draft_cache.follow(ids)
        if self.prefix is not None:
            self._look_up(self.prefix, ids.tolist())
        return 0

    def bring_back(self, ids: Ids, drafting: bool) -> int:
        """Take slots for the caches that the rows of a pass have elsewhere; return the bytes that move.

        A drafter that does not read a prompt takes nothing of its beginning either.
        """
        if not self.elsewhere:
            return 0
        progress = self._progress
        back, where = self.elsewhere.taken(ids)
        shared = back[where == OTHERS]
        if not drafting:
            progress.draft_cached[shared] = 0
            self._draft_cache.follow(back)
        if self.prefix is not None:
            self.prefix.begin(shared, progress.target_cached[shared], self._draft_cache.fed(shared))
        self._pool.hold(TARGET, back, progress.target_cached[back])
        self._pool.hold(DRAFT, back, progress.draft_cached[back])
        return self._move(back[where == HOST])

    def _move(self, ids: Ids) -> int:
        """Note that the whole cache of each request moves; return the bytes of all."""
        held = self._pool.held_bytes(ids) + self._pool.lent_bytes(ids)
        self._progress.moved_bytes[ids] += held
        return int(held.sum())
