"""KV caches that outlive a request: shared prefixes, conversations, and KV offload."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from itertools import count, takewhile

import numpy as np

from specsim.core.request import Bools, Ids, Ints, Prefixes
from specsim.server.kv_cache import DRAFT, TARGET, KvPool
from specsim.server.state import PrefixRows, SharedRows

HOST, OTHERS, LINK = range(3)
"""Where the cached tokens of a waiting request without blocks are."""
BlockKey = tuple[int, int]
"""A model, and the hash of a block and of all before it."""


class PrefixCache:
    """The prompt blocks that one replica has cached: those that requests use, and those that no request uses any more.

    A block that several requests use counts once in the pool. A block without users is free for others: the least
    recently used goes first, of one prompt the end (vLLM's automatic prefix caching). It goes between two steps, so
    that a scheduler's view of a waiting request holds when it runs.

    `queries` are the prompt tokens of all that have begun, `hits` those that were found at the first time.

    Parameters
    ----------
    prefixes : of all requests. prompt_tokens : (N,) of each; may be filled in later. pool : the replica's.
    rows : of all requests.
    """

    def __init__(self, prefixes: Prefixes, prompt_tokens: Ints, pool: KvPool, rows: PrefixRows) -> None:
        self._prefixes, self._prompt_tokens, self._pool = prefixes, prompt_tokens, pool
        self._tokens = prefixes.block_tokens
        self._blocks = self._tokens // pool.memory.block_tokens
        self._users: dict[BlockKey, int] = {}
        self._idle: OrderedDict[BlockKey, None] = OrderedDict()
        self._idle_bytes = 0
        self._watched: defaultdict[BlockKey, set[int]] = defaultdict(set)
        self._waiting: dict[int, list[BlockKey]] = {}
        self._changed = set[int]()
        self._unnamed, self._rest = count(1 << 64), [0, 0]
        self._used, self._begun, self._hit_tokens = rows
        self.queries = self.hits = 0

    def wait(self, request: int) -> tuple[int, int]:
        """Note that a request waits without blocks; return its tokens in the target's and in the drafter's cache.

        At least one token of a prompt is not taken from the cache: the first token of the output is its logits'.
        """
        self._unwatch(request)
        hashes = self._hashes(request, (int(self._prompt_tokens[request]) - 1) // self._tokens)
        keys, blocks = list[BlockKey](), [0, 0]
        for model in (TARGET, DRAFT):
            found = blocks[model] = self._known(model, hashes)
            # Of a prompt the end is dropped first: its last block that is cached, and the next, tell of any change.
            keys += [(model, each) for each in hashes[max(found - 1, 0) : found + 1]]
        for key in keys:
            self._watched[key].add(request)
        self._waiting[request] = keys
        return blocks[TARGET] * self._tokens, blocks[DRAFT] * self._tokens

    def found(self, request: int, prompt_tokens: int) -> int:
        """Return the tokens of a prompt that the target's cache holds now."""
        return self._known(TARGET, self._hashes(request, (prompt_tokens - 1) // self._tokens)) * self._tokens

    def _known(self, model: int, hashes: Sequence[int]) -> int:
        """Return how many of the blocks, from the first on, are cached."""
        unknown = (place for place, each in enumerate(hashes) if (model, each) not in self._users)
        return next(unknown, len(hashes))

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
            When the pool has no room for blocks that no request used.
        """
        for request, *cached in zip(ids.tolist(), target_cached.tolist(), draft_cached.tolist(), strict=True):
            self._unwatch(request)
            for model in (TARGET, DRAFT):
                keys = [(model, each) for each in self._hashes(request, cached[model] // self._tokens)]
                self._use(model, keys)
                self._used[model, request] = len(keys)
                self._pool.lend(model, request, len(keys) * self._tokens)
            self._hit_tokens[request] += cached[TARGET]
            if not self._begun[request]:
                self._begun[request] = True
                self.queries += int(self._prompt_tokens[request])
                self.hits += cached[TARGET]

    def share(self, ids: Ids, cached: Ints, scheduled: Ints, preempted: Bools) -> Ints:
        """Lend requests, in order, the whole blocks that earlier ones compute in one target pass; return tokens, (n,).

        A request takes none once it has computed a token, nor that of its last token; `preempted` (n,) began earlier.
        """
        computed, more = set[int](), np.zeros_like(cached)
        for place in np.flatnonzero(cached < self._prompt_tokens[ids]).tolist():
            request, prompt = int(ids[place]), int(self._prompt_tokens[ids[place]])
            hashes, first = self._hashes(request, prompt // self._tokens), int(cached[place]) // self._tokens
            if cached[place] == self._pool.lent[TARGET, request]:
                found = list(takewhile(computed.__contains__, hashes[first : (prompt - 1) // self._tokens]))
                more[place] = len(found) * self._tokens
                self._pool.lend(TARGET, request, int(cached[place] + more[place]))
            computed.update(hashes[first : int(cached[place] + more[place] + scheduled[place]) // self._tokens])
        self._hit_tokens[ids] += more
        self.hits += int(more[~preempted].sum())
        return more

    def publish(self, model: int, ids: Ids, cached: Ints, *, ended: bool = False) -> None:
        """Let others use the whole prompt blocks of requests with `cached` tokens, (n,); of `ended` ones all."""
        used = self._used[model, ids]
        known = cached if ended and self._prefixes.of_outputs else np.minimum(cached, self._prompt_tokens[ids])
        whole = np.minimum(known // self._tokens, self._prefixes.count[ids])
        for place in np.flatnonzero(whole > used).tolist():
            request, blocks = int(ids[place]), int(whole[place])
            keys = [(model, each) for each in self._hashes(request, blocks)[int(used[place]) :]]
            for key in keys:
                if key not in self._users:
                    self._changed |= self._watched.get(key, set())
            # What the request holds of its own is freed, so there is room for what all hold.
            own = blocks * self._tokens - int(self._pool.lent[model, request])
            self._pool.hand_over(model, request, own)
            self._use(model, keys)
            self._used[model, request] = blocks

    def _use(self, model: int, keys: Sequence[BlockKey]) -> None:
        """Count one more user of each block of a model; blocks without users take room in the pool."""
        unused = [key for key in keys if not self._users.get(key)]
        idle = [key for key in unused if key in self._users]
        self._pool.take(model, self._blocks * len(unused))
        self._idle_bytes -= len(idle) * self._pool.bytes_of(model, self._tokens)
        for key in idle:
            del self._idle[key]
        for key in keys:
            self._users[key] = self._users.get(key, 0) + 1

    def end(self, ids: Iterable[int]) -> None:
        """Note that requests give up their blocks, those of their own included, or wait no more.

        Blocks without a hash, of outputs, are kept as long as others; no prompt finds them.
        """
        for request in ids:
            self._unwatch(request)
            for model in (DRAFT, TARGET):
                freed = self._rest[model] + int(self._pool.blocks[model, request])
                whole, self._rest[model] = divmod(freed, self._blocks)
                own = [(model, next(self._unnamed)) for _ in range(whole)]
                self._users.update(dict.fromkeys(own, 0))
                self._keep(model, own)
                if not (blocks := int(self._used[model, request])):
                    continue
                self._leave(model, [(model, each) for each in reversed(self._hashes(request, blocks))])
                self._used[model, request] = 0
                self._pool.lend(model, request, 0)

    def _leave(self, model: int, keys: Sequence[BlockKey]) -> None:
        for key in keys:
            self._users[key] -= 1
        unused = [key for key in keys if not self._users[key]]
        self._pool.take(model, -self._blocks * len(unused))
        self._keep(model, unused)

    def _keep(self, model: int, unused: Sequence[BlockKey]) -> None:
        self._idle.update(dict.fromkeys(unused))
        self._idle_bytes += len(unused) * self._pool.bytes_of(model, self._tokens)

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
        """Drop unused blocks that have no room; return the waiting requests of which more is cached now, or less."""
        while self._idle_bytes > self._pool.free_bytes:
            _, block = next(iter(self._idle))
            # A block of a server holds both models' cache of its tokens.
            for key in ((TARGET, block), (DRAFT, block)):
                if key in self._idle:
                    del self._idle[key], self._users[key]
                    self._idle_bytes -= self._pool.bytes_of(key[0], self._tokens)
                    self._changed |= self._watched.get(key, set())
        changed = sorted(self._changed & self._waiting.keys())
        self._changed.clear()
        return changed


class Prompts:
    """Prompts of the requests that were sent to a replica, cached or not; a whole block that several share counts once.

    Without a cache of prefixes each counts all of its own.
    """

    def __init__(self, prefix: PrefixCache | None) -> None:
        self.tokens, self._prefix, self._users = 0, prefix, Counter[int]()

    def add(self, request: int, prompt_tokens: int) -> None:
        """Count a prompt."""
        self.tokens += self.further(request, prompt_tokens)
        self._users.update(self._blocks(request, prompt_tokens))

    def remove(self, request: int, prompt_tokens: int) -> None:
        """Count a prompt no more."""
        for block in self._blocks(request, prompt_tokens):
            self._users[block] -= 1
            if not self._users[block]:
                del self._users[block]
        self.tokens -= self.further(request, prompt_tokens)

    def further(self, request: int, prompt_tokens: int) -> int:
        """Return the tokens that a prompt adds to those that are counted."""
        if self._prefix is None:
            return prompt_tokens
        # A hash stands for all blocks before it, too: the first that is not shared ends what is.
        shared = bisect_left(self._blocks(request, prompt_tokens), True, key=lambda each: each not in self._users)
        return prompt_tokens - shared * self._prefix._tokens

    def _blocks(self, request: int, prompt_tokens: int) -> list[int]:
        prefix = self._prefix
        return [] if prefix is None else prefix._hashes(request, prompt_tokens // prefix._tokens)


class Caches:
    """Moves caches in and out of the pool; `prefix` is what prompts share.

    `to_load` says from where waiting requests without blocks load what is cached. The cache of one that was preempted
    by transfer is on the `HOST` and moves back. The beginning of a prompt that `OTHERS` have cached comes at no cost,
    into blocks of the request's own. So does what has come over a `LINK` from the replica that read the prompt: the
    link has taken its time.

    Parameters
    ----------
    rows, pool : of the ledger.
    feeds : whether the drafter has a cache. For one without (a lookup, heads that read the target's last state), only
        the root of each decoding request is pending.
    prefixes : of all prompts, where their blocks are kept for others; None: no block is.
    """

    def __init__(self, rows: SharedRows, pool: KvPool, feeds: bool, prefixes: Prefixes | None) -> None:
        self._progress, self._prompt_tokens, self._drafted = rows.progress, rows.facts.prompt_tokens, rows.drafted
        self._pool, self.feeds = pool, feeds
        self.to_load: dict[int, int] = {}
        self.prefix: PrefixCache | None = None
        if prefixes is not None and rows.prefix is not None:
            self.prefix = PrefixCache(prefixes, self._prompt_tokens, pool, rows.prefix)

    def enter(self, request: int, cached_tokens: int) -> None:
        """Note what is cached of a request that arrives: so many tokens, or what its prompt shares."""
        if self.prefix is not None:
            self._look_up(self.prefix, [request])
        elif cached_tokens:
            self.come(request, cached_tokens, cached_tokens, OTHERS)
        else:
            self.follow(np.array([request]))

    def come(self, request: int, target_cached: int, draft_cached: int, place: int) -> None:
        """Note what a waiting request has cached in either model's cache without blocks of its own, and where."""
        self._progress.target_cached[request] = target_cached
        self._progress.draft_cached[request] = draft_cached * self.feeds
        self.to_load[request] = place
        self.follow(np.array([request]))

    def _look_up(self, prefix: PrefixCache, waiting: list[int]) -> None:
        """Note what is cached of the prompts of waiting requests."""
        for request in waiting:
            self.come(request, *prefix.wait(request), OTHERS)

    def follow(self, ids: Ids) -> None:
        """Move a drafter without a cache to where the target is: behind all but the root of a decoding request."""
        if not self.feeds:
            progress, emitted = self._progress, self._progress.emitted_tokens[ids]
            known = self._prompt_tokens[ids] + emitted
            progress.draft_cached[ids] = known - ((known - progress.target_cached[ids] == 1) & (emitted > 0))

    def publish(self, model: int, ids: Ids, *, ended: bool = False) -> None:
        """Let others use what these requests have cached of their prompts, and of their outputs where they `ended`."""
        if self.prefix is not None and (model == TARGET or self.feeds):
            cached = self._progress.target_cached if model == TARGET else self._progress.draft_cached
            self.prefix.publish(model, ids, cached[ids], ended=ended)

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
        for request in ids.tolist() if self.to_load else ():
            self.to_load.pop(request, None)
        self._progress.target_cached[ids] = self._progress.draft_cached[ids] = 0

    def _free(self, ids: Ids) -> None:
        if self.prefix is not None:
            self.prefix.end(ids.tolist())
        self._pool.release(ids)
        self._drafted[:, ids] = 0

    def evict(self, ids: Ids, transfer: bool) -> int:
        """Take these requests' blocks; return the bytes that go to the host, 0 where they are dropped."""
        self._progress.preemptions[ids] += 1
        if transfer:
            moved = self._move(ids)
            self._free(ids)
            self.to_load.update(dict.fromkeys(ids.tolist(), HOST))
            return moved
        self.drop(ids)
        self.follow(ids)
        if self.prefix is not None:
            self._look_up(self.prefix, ids.tolist())
        return 0

    def load(self, ids: Ids, drafting: bool) -> int:
        """Take slots for the caches that the rows of a pass are to load; return the bytes that move.

        A drafter that does not read a prompt takes nothing of its beginning either.
        """
        progress = self._progress
        back = ids[np.isin(ids, np.fromiter(self.to_load, dtype=np.int64, count=len(self.to_load)))]
        where = np.array([self.to_load.pop(request) for request in back.tolist()], dtype=np.int64)
        shared = back[where == OTHERS]
        if not drafting:
            progress.draft_cached[shared] = 0
            self.follow(back)
        if self.prefix is not None:
            self.prefix.begin(shared, progress.target_cached[shared], progress.draft_cached[shared] * self.feeds)
        self._pool.hold(TARGET, back, progress.target_cached[back])
        self._pool.hold(DRAFT, back, progress.draft_cached[back])
        return self._move(back[where == HOST])

    def share(self, prefix: PrefixCache, ids: Ids, scheduled: Ints) -> None:
        """Let rows of a target pass use what earlier ones compute in it; `scheduled` (n,) shrinks to what they lack."""
        progress = self._progress
        more = prefix.share(ids, progress.target_cached[ids], scheduled, progress.preemptions[ids] > 0)
        progress.target_cached[ids] += more
        lacking = self._prompt_tokens[ids] + progress.emitted_tokens[ids] - progress.target_cached[ids]
        np.minimum(scheduled, lacking, out=scheduled, where=more > 0)

    def _move(self, ids: Ids) -> int:
        """Note that the whole cache of each request moves; return the bytes of all."""
        held = self._pool.held_bytes(ids) + self._pool.lent_bytes(ids)
        self._progress.moved_bytes[ids] += held
        return int(held.sum())
