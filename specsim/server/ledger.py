"""The only mutable state of a replica: requests, caches, emitted tokens. It refuses illegal passes."""

from __future__ import annotations

import numpy as np

from specsim.core.passes import NOBODY, Decodes, Drafted, DraftPass, Emitted, Rounds, TargetPass
from specsim.core.request import Begun, Facts, Floats, Ids, Ints, Prefixes, Requests
from specsim.core.trees import Forest
from specsim.errors import IllegalPass, ModelFault
from specsim.kernels.ledger import POSITIONS, Books, ProgressColumns, commit, deepen, reserve, reserve_draft
from specsim.pass_shape import PassShape
from specsim.server.events import Gaps
from specsim.server.kv_cache import DRAFT, KV_CAPACITY, TARGET, KvPool, Memory, OutOfMemory
from specsim.server.planning import Drafts, check_growth, illegal_draft, illegal_verification
from specsim.server.prefix_cache import LINK, Caches
from specsim.server.state import RequestQueues, SharedRows

BEHIND_A_ROUND = 2
"""The most tokens that the drafter lacks behind a round: the last of its chain, and the bonus token."""


class Ledger:
    """State of one replica; `reserve` a pass, let it run, then `commit` it.

    `queues` are the waiting and the running requests; `caches` are those of either model, in the pool and to load;
    `rejected` has the reason by request; `cancelled_s` the time, of those that were let in.

    Parameters
    ----------
    size : number of request ids, N. memory : the replica's key-value pool.
    rows : of all requests, which the replicas of a pool share; None: of its own. place : its index among them.
    draft_cached : whether the drafter keeps a cache of its own; see `Caches`.
    prefixes : of all prompts, where their blocks are kept for others; see `PrefixCache`.
    """

    def __init__(
        self,
        size: int,
        memory: Memory,
        draft_cached: bool = True,
        prefixes: Prefixes | None = None,
        rows: SharedRows | None = None,
        place: int = 0,
    ) -> None:
        rows = SharedRows.of(size, prefixes is not None) if rows is None else rows
        self.facts, self.progress = rows.facts, rows.progress
        self.pool = KvPool(memory, rows.blocks, rows.lent)
        known = self.facts.prompt_tokens, self.progress.emitted_tokens
        cached = self.progress.target_cached, self.progress.draft_cached
        self._books = Books(*known, *cached, *rows.blocks, *rows.lent, *rows.drafted)
        self._counts = ProgressColumns(*(getattr(self.progress, name) for name in ProgressColumns._fields))
        self.queues = RequestQueues(rows.at, rows.admitted, rows.row, rows.reached_s, place)
        self.caches = Caches(rows, self.pool, draft_cached, prefixes)
        self.rejected: dict[int, str] = {}
        self.cancelled_s: dict[int, float] = {}
        self.finished = 0
        self._coming_bytes = 0
        self._drafts = Drafts()
        self._ids = self._reserved = NOBODY
        self._undecoded: set[int] = set()

    def arrive(self, request: int, told: Requests, now_s: float) -> None:
        """Enter a request at `now_s`, or reject it: prompt and `max_tokens` can never fit the pool of this replica."""
        self._tell(request, told)
        most = int(told.prompt_tokens[request] + told.max_tokens[request])
        if self.pool.memory.bytes_of(most, most) > self.pool.memory.capacity_bytes:
            self.rejected[request] = KV_CAPACITY
            return
        self.queues.enter(request, now_s)
        if isinstance(told, Begun):
            self._resume(request, told)
        else:
            self.caches.enter(request, int(told.cached_tokens[request]))

    def _resume(self, request: int, told: Begun) -> None:
        """Note that a request brings its first token, sent at its admission, and the caches that it was read into."""
        self.progress.emitted_tokens[request] = 1
        self._undecoded.add(request)
        self.caches.come(request, int(told.cached_tokens[request]), int(told.draft_kv_tokens[request]), LINK)

    def refuse(self, request: int, told: Requests, reason: str) -> None:
        """Note that a request arrived and was not let in."""
        self._tell(request, told)
        self.rejected[request] = reason

    def cancel(self, request: int, reason: str, now_s: float) -> bool:
        """Free what a request holds that was given up, between two steps; return whether it had not ended by itself.

        A request that ended in the last step, too late, has not finished either.
        """
        live = bool(self.queues.here(np.array([request]))[0])
        if live:
            self.queues.strike(request)
            self.caches.drop(np.array([request]))
            self._undecoded.discard(request)
            self.progress.emitted_tokens[request] *= not np.isnan(self.progress.first_token_s[request])
        else:
            self.progress.finish_s[request] = np.nan
            self.finished -= 1
        self.rejected[request], self.cancelled_s[request] = reason, now_s
        return live

    def _tell(self, request: int, told: Requests) -> None:
        for name in Facts.__dataclass_fields__:
            getattr(self.facts, name)[request] = getattr(told, name)[request]

    def known(self, ids: Ids) -> Ints:
        """Return the tokens of each request that exist: its prompt and what was emitted, (n,)."""
        return self.facts.prompt_tokens[ids] + self.progress.emitted_tokens[ids]

    def reserve(self, work: DraftPass | TargetPass) -> PassShape:
        """Take the cache slots that a pass needs and return its shape; it is committed before the next is reserved.

        Where rows of a pass share (`TargetPass.shares`), its `scheduled_tokens` become those that they still lack.

        Raises
        ------
        IllegalPass
            When a row is unknown, doubled or not due, more tokens are scheduled than are pending, a tree hangs behind
            an unfinished prefill, a forest or a leaf is not of this step, or the pool is too small.
        """
        requests = work.requests
        unfed = isinstance(work, DraftPass) and not len(work.scheduled_tokens)
        if (
            not len(requests)
            or not (unfed or len(work.scheduled_tokens) == len(requests))
            or work.forest.rows != len(requests)
        ):
            raise IllegalPass(
                "a pass needs at least one request, and for each its scheduled tokens and a tree: "
                f"it has {len(requests)} requests, tokens for {len(work.scheduled_tokens)}, {work.forest.rows} trees"
            )
        key = requests.tobytes()
        ids = self._drafts.open.get(key)
        if ids is None:
            self._check_rows(requests)
            requests.setflags(write=False)
            ids = self._drafts.open[key] = requests
        self._drafts.check(work.forest, ids)
        self._ids = ids
        try:
            moved, self._coming_bytes = self._coming_bytes, 0
            if isinstance(work, DraftPass) and self.pool.drafter_away:
                raise IllegalPass("a draft pass while the drafter is on the host: TargetPass.drafter_away was True")
            if len(work.evict):
                self.queues.evict(work.evict, ids)
                self._drafts.close(work.evict)
                moved = self.caches.evict(work.evict, work.transfer)
            if self.caches.to_load:
                moved += self.caches.load(ids, isinstance(work, DraftPass))
            if self.caches.prefix is not None and isinstance(work, TargetPass) and work.shares:
                self.caches.share(self.caches.prefix, ids, work.scheduled_tokens)
            shape = self._reserve(work, ids)
        except OutOfMemory as error:
            raise IllegalPass(str(error)) from None
        return shape._replace(moved_bytes=moved) if moved else shape

    def _check_rows(self, ids: Ids) -> None:
        """Refuse a request that is named twice or is not on this replica."""
        self.queues.check(ids)
        here = self.queues.here(ids)
        if np.count_nonzero(here) < len(ids):
            request = int(ids[~here][0])
            why = "has not arrived" if np.isnan(self.progress.finish_s[request]) else "has finished"
            if request in self.rejected:
                why = f"was rejected ({self.rejected[request]})"
            raise IllegalPass(f"a pass names request {request}, which {why}")

    def _reserve(self, work: DraftPass | TargetPass, ids: Ids) -> PassShape:
        forest, left = work.forest, self.pool.left()
        if isinstance(work, DraftPass):
            asked = ids, work.scheduled_tokens, forest.numbers, forest.fresh, work.leaves
            blocks, shape, self._reserved = reserve_draft(self._books, *asked, left)
            if shape is None:
                raise illegal_draft(work, self.known(ids) - self.progress.draft_cached[ids])
            check_growth(work)
            self.pool.take(DRAFT, blocks)
        else:
            blocks, shape, self._reserved = reserve(self._books, ids, work.scheduled_tokens, forest.numbers, left)
            if shape is None:
                raise illegal_verification(work, self.known(ids) - self.progress.target_cached[ids])
            self.pool.take(TARGET, blocks)
        return shape

    def deepen(self, work: DraftPass, drafted: Drafted) -> None:
        """Take the slots of what the passes behind the first have extended; see `reserve`."""
        grown = drafted.forest.numbers, drafted.extended
        try:
            self.pool.take(DRAFT, deepen(self._books, self._ids, work.scheduled_tokens, *grown, self.pool.left()))
        except OutOfMemory as error:
            raise IllegalPass(str(error)) from None

    def commit_draft(self, work: DraftPass, grown: Forest, start_s: float) -> None:
        """Book a draft pass that started at `start_s`: its tokens are cached, its leaves hold slots until the end.

        `grown`, what it answered, may then be extended and verified; see `Drafts`.
        """
        ids = self._ids
        if len(work.scheduled_tokens):
            self.progress.draft_cached[ids] += work.scheduled_tokens
            self.queues.admit(ids)
            self._decode(self._reserved, start_s)
            self.caches.publish(DRAFT, ids)
        self._drafts.grown(ids, work, grown)

    def commit_verify(self, work: TargetPass, answer: Emitted, start_s: float, now_s: float) -> Gaps:
        """Book a verification; return the gap since each emitting request's previous emission (inter-token latency).

        Only the accepted path stays cached; finished requests free everything.
        """
        ids, trees = self._ids, self._reserved
        for name, column in zip(answer._fields, answer, strict=True):
            if column.shape != (len(ids),):
                told = f"a backend answers {name} {column.shape} of a verification"
                raise ModelFault(f"{told}; expected ({len(ids)},)")
        assert not len(trees) or (answer.matched <= trees).all(), "a backend accepts more than a tree holds"
        self._decode(ids, start_s)
        done = trees, answer, len(self._drafts.rows) > 0, self.caches.feeds, now_s
        blocks, gaps, first = commit(
            self._books, self._counts, ids, work.scheduled_tokens, *done, self.pool.memory.block_tokens
        )
        for model in (DRAFT, TARGET):
            self.pool.take(model, blocks[model])
        self.queues.admit(ids)
        self.caches.publish(TARGET, ids)
        self._undecoded.update(first.tolist())
        self._drafts.close(ids, verified=True)
        if np.count_nonzero(answer.finished):
            self._finish(ids[answer.finished], now_s)
        if work.drafter_away or self.pool.drafter_away:
            self._coming_bytes = self.pool.place_drafter(work.drafter_away)
        return Gaps(*gaps)

    def end_step(self) -> None:
        """Drop what was drafted in this step and never verified."""
        for ids in self._drafts.rows:
            left = ids[self._books.draft_nodes[ids] > 0]
            if len(left):
                self._books.draft_nodes[left] = self._books.draft_depth[left] = 0
                self.pool.hold(DRAFT, left, self._books.draft_cached[left])
            self.caches.follow(ids)
        self._drafts.end()
        self.caches.settle()

    def _decode(self, ids: Ids, start_s: float) -> None:
        """Note the start of the first pass in which a request decodes; a first token that it brought is sent then."""
        first = self._undecoded.intersection(ids.tolist()) if self._undecoded else None
        if first:
            progress, rows = self.progress, np.array(list(first))
            progress.first_decode_s[rows] = start_s
            brought = rows[np.isnan(progress.first_token_s[rows])]
            progress.first_token_s[brought] = progress.last_token_s[brought] = start_s
            self._undecoded -= first

    def _finish(self, ids: Ids, at_s: Floats | float) -> None:
        self.queues.end(ids)
        for model in (DRAFT, TARGET):
            self.caches.publish(model, ids, ended=True)
        self.caches.drop(ids)
        self._undecoded.difference_update(ids.tolist())
        self.progress.finish_s[ids] = at_s
        self.finished += len(ids)

    def surely_passes(self, work: TargetPass) -> int:
        """Return how often this pass, which is not reserved, can surely run; 0 unless each row decodes one token.

        Raises
        ------
        IllegalPass
            When a request is unknown or named twice.
        """
        ids, forest, progress = work.requests, work.forest, self.progress
        if len(work.evict) or self.caches.to_load or forest.draft_nodes:
            return 0
        if not 0 < len(ids) == len(work.scheduled_tokens) == forest.rows:
            return 0
        self.queues.check(ids)
        pending = self.known(ids) - progress.target_cached[ids]
        ready = (pending == 1) & (work.scheduled_tokens == 1) & (progress.emitted_tokens[ids] > 0)
        return self.pool.surely_more(len(ids)) if np.count_nonzero(ready) == len(ids) else 0

    def commit_passes(self, ids: Ids, decodes: Decodes, starts_s: Floats) -> Gaps:
        """Book passes of requests (n,) that start at `starts_s`, the end of the last behind them, (passes + 1,)."""
        progress, times = self.progress, decodes.times
        for column in ("emitted_tokens", "verifications", "decoded_tokens"):
            getattr(progress, column)[ids] += times
        cached = progress.target_cached[ids] + times
        if len(decodes) > 1 and self.caches.prefix is not None:
            self._settle(ids, cached - 1)
        progress.target_cached[ids] = cached
        self.pool.hold(TARGET, ids, cached)
        ends_s, finished = starts_s[times], decodes.finished
        gaps = self._emit_steps(ids, starts_s, ends_s)
        self.caches.follow(ids)
        if np.count_nonzero(finished):
            self._finish(ids[finished], ends_s[finished])
        return gaps

    def surely_rounds(self, work: DraftPass) -> int:
        """Return how many rounds can surely run that begin with this pass, which is not reserved; 0: not at once.

        Each row decodes, has its prompt in both caches, and is fed all that the drafter lacks, as behind a round.

        Raises
        ------
        IllegalPass
            When a request is unknown or named twice.
        """
        ids, leaves, forest, progress = work.requests, work.leaves, work.forest, self.progress
        if work.width != 1 or work.beam is not None or work.max_depth is not None or len(work.evict):
            return 0
        if self.caches.to_load or forest.draft_nodes or not 0 < len(ids) == len(work.scheduled_tokens) == forest.rows:
            return 0
        if leaves.tobytes() != forest.row.tobytes():
            return 0
        self.queues.check(ids)
        prompt, emitted = self.facts.prompt_tokens[ids], progress.emitted_tokens[ids]
        known, drafted = prompt + emitted, progress.draft_cached[ids]
        ready = (known - progress.target_cached[ids] == 1) & (emitted > 0)
        ready &= (
            (known - drafted == work.scheduled_tokens) & (work.scheduled_tokens <= BEHIND_A_ROUND) & (drafted >= prompt)
        )
        if np.count_nonzero(ready) < len(ids):
            return 0
        # In either cache a row holds at most its text and the chain behind it.
        more = self.pool.surely_more(len(ids), drafting=True) - BEHIND_A_ROUND
        return max(more // (work.depth + 1), 0)

    def commit_rounds(self, ids: Ids, rounds: Rounds, ends_s: Floats) -> Gaps:
        """Book rounds of requests (n,). The first began at `ends_s[0]`; they ended at the others, (rounds + 1,)."""
        progress, times, depth = self.progress, len(rounds), rounds.depth
        matched, tokens = np.add.reduce(rounds.matched, axis=0), np.add.reduce(rounds.tokens, axis=0)
        progress.verifications[ids] += times
        progress.speculations[ids] += times
        progress.draft_tokens[ids] += times * depth
        progress.accepted_tokens[ids] += np.add.reduce(np.minimum(rounds.matched, rounds.tokens), axis=0)
        for position in range(min(depth, POSITIONS)):
            progress.accepted_at[ids, position] += np.count_nonzero(rounds.matched > position, axis=0)
        progress.decoded_tokens[ids] += tokens
        progress.emitted_tokens[ids] += tokens
        cached = progress.target_cached[ids] + matched + times
        # The last token of a chain is in nobody's cache: nothing was drafted behind it.
        lacking = rounds.matched == depth
        if times > 1 and self.caches.prefix is not None:
            before = cached - rounds.matched[-1] - 1
            self._settle(ids, before, before - lacking[-2])
        progress.target_cached[ids] = cached
        progress.draft_cached[ids] = cached - lacking[-1]
        self.pool.hold(TARGET, ids, cached)
        self.pool.hold(DRAFT, ids, progress.draft_cached[ids])
        gaps = self._emit_steps(ids, ends_s, float(ends_s[-1]))
        if np.count_nonzero(rounds.finished):
            self._finish(ids[rounds.finished], float(ends_s[-1]))
        self.caches.follow(ids)
        return gaps

    def _settle(self, ids: Ids, target_cached: Ints, draft_cached: Ints | None = None) -> None:
        """Let go what has no room beside so many cached tokens of requests, (n,): all that went in earlier steps.

        A step that ends requests frees their blocks before it looks, so it must not look for the steps before it.
        """
        self.pool.hold(TARGET, ids, target_cached)
        if draft_cached is not None:
            self.pool.hold(DRAFT, ids, draft_cached)
        self.caches.settle()

    def _emit_steps(self, ids: Ids, starts_s: Floats, last_s: Floats | float) -> Gaps:
        """Note emissions of all at each of `starts_s[1:]`, up to the last of each; return the gaps of the first.

        All decode from `starts_s[0]` on.
        """
        self._decode(ids, float(starts_s[0]))
        gaps = Gaps(ids, starts_s[1] - self.progress.last_token_s[ids])
        self.progress.last_token_s[ids] = last_s
        return gaps
